from __future__ import annotations

from dataclasses import replace

import pytest
from report_records import (
    NORMS,
    RADII,
    all_norms,
    evaluation,
    reference_pool,
    summary,
    with_class_names,
)

from advfrontier.evaluation.compare import compare, rank
from advfrontier.evaluation.summary import summarise
from advfrontier.flags import Flag, Kind
from advfrontier.report import write_comparison, write_leaderboard, write_report


@pytest.fixture(scope="session")
def ranking():
    """Ranks of one net among three references in every norm."""
    pools = {norm: reference_pool(norm) for norm in NORMS}
    return rank([evaluation("net", norm) for norm in NORMS], reference=pools)


@pytest.fixture(scope="session")
def compared():
    """Two nets in two norms: comparison and both summaries."""
    entries = []
    for norm in ("L2", "Linf"):
        pair = evaluation("net", norm), evaluation("other", norm)
        figures = [summarise(one, radii=RADII[norm], gallery=0) for one in pair]
        entries.append((compare(*pair), *figures))
    return entries


@pytest.fixture(scope="session")
def pages(ranking, compared, tmp_path_factory):
    """A folder with every kind of page."""
    folder = tmp_path_factory.mktemp("pages")
    own = [with_class_names(found) for found in all_norms()]
    write_report(folder / "one.html", [summary("net", "Linf")])
    write_report(folder / "report.html", [*own, *all_norms("other")])
    write_comparison(folder / "comparison.html", compared)
    write_leaderboard(folder / "leaderboard.html", ranking)
    return folder


@pytest.fixture(scope="session")
def evil():
    """A name that tries every way out of a page, a terminal and the order of letters."""
    return (
        "<b>b</b></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;<!--"
        "\u2028\x1b[2J\u202eabc"
    )


@pytest.fixture(scope="session")
def hostile(evil, compared, tmp_path_factory):
    """All pages, with that name wherever text comes from outside."""
    folder = tmp_path_factory.mktemp("hostile")
    own = []
    for found in all_norms():
        items = [replace(item, label_name=evil, prediction_name=evil) for item in found.gallery]
        own.append(
            replace(
                found,
                model=evil,
                data=evil,
                ensemble=evil,
                flags=tuple(Flag(kind, f"{evil} {kind}") for kind in (Kind.RANDOM, Kind.EOT)),
                commands=(f"advfrontier evaluate {evil}",),
                versions={evil: evil},
                wins=tuple(replace(win, run=evil) for win in found.wins[:1]),
                gallery=tuple(items),
            )
        )
    others = [replace(found, model=f"{evil}2") for found in all_norms("other")]
    comparison, first, second = compared[0]
    comparison = replace(comparison, names=(evil, f"{evil}2"), flags=(evil,))
    models = {evil: evaluation("net").distances, "b": evaluation("other").distances}
    pool = replace(reference_pool(), distances=models)
    write_report(folder / "report.html", [*own, *others])
    write_comparison(folder / "comparison.html", [(comparison, first, second)])
    write_leaderboard(folder / "leaderboard.html", rank([], reference={"Linf": pool}), title=evil)
    return folder
