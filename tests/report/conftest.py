from __future__ import annotations

from pathlib import Path

import pytest
from support.records import RADII, SCALES, evaluated, pool, record

from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import summarise
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import compare
from advfrontier.report import write_comparison, write_leaderboard, write_report


@pytest.fixture(scope="session")
def references():
    return {norm: pool(norm) for norm in SCALES}


@pytest.fixture(scope="session")
def summaries(references):
    """Of one model in all norms, made as the keywords of `record` say."""

    def make(model="zoo:F3", **more):
        return [
            summarise(
                record(model, norm, **more),
                radii=RADII[norm],
                reference=references[norm],
                gallery=2,
            )
            for norm in SCALES
        ]

    return make


@pytest.fixture(scope="session")
def evil():
    """A name that tries every way out of a page."""
    return (
        "<b>b</b></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;<!--\u2028"
    )


@pytest.fixture(scope="session")
def hostile(evil, summaries, references, tmp_path_factory):
    """All pages, with that name wherever a text comes from outside."""
    folder = tmp_path_factory.mktemp("hostile")
    own, others = summaries(evil), summaries(evil + "2", seed=4)
    for summary in own:
        object.__setattr__(summary, "flags", (Flag(Kind.RANDOM, evil),))
        object.__setattr__(summary, "commands", (f"advfrontier evaluate {evil}",))
        object.__setattr__(summary, "versions", {evil: evil})
    pair = own[2], others[2]
    found = compare(*map(evaluated, pair))
    ranking = rank([record(evil, norm) for norm in SCALES], reference=references)
    pages = [
        write_report(folder / "report.html", [*own, *others]),
        write_comparison(folder / "comparison.html", [(found, *pair)]),
        write_leaderboard(folder / "leaderboard.html", ranking, title=evil),
    ]
    return [Path(page) for page in pages]


@pytest.fixture(scope="session")
def pages(summaries, references, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    own, others = summaries("zoo:F3"), summaries("other", seed=6, strength=1.2)
    pairs = list(zip(own, others, strict=True))
    compared = [(compare(*map(evaluated, pair)), *pair) for pair in pairs]
    ranking = rank([record(norm=norm) for norm in SCALES], reference=references)
    write_report(folder / "report.html", [*own, *others])
    write_comparison(folder / "comparison.html", compared)
    write_leaderboard(folder / "leaderboard.html", ranking)
    return folder
