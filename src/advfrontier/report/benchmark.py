"""The results of a benchmark: `results.md` in the order of the paper, `results.json`, a leaderboard, and figures."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path

from advfrontier.bench import model_tables
from advfrontier.bench.attack_tables import mean_aoi
from advfrontier.bench.results import NormResults, Results
from advfrontier.bench.stored import folder_beside, store
from advfrontier.bench.subject import GREEDY, RACE, by_split, shown_tiers
from advfrontier.errors import FrontierError
from advfrontier.jsonable import read_object
from advfrontier.record.folder import check_writable, folder_name, open_folder, write_file
from advfrontier.report.benchmark_figures import draw_results
from advfrontier.report.figures import FORMATS, drawable
from advfrontier.report.html import environment, write_leaderboard
from advfrontier.report.render import as_json, as_markdown
from advfrontier.table import Column, Table, stacked
from advfrontier.threat.names import SYMBOLS

_DPI, _SMALL_DPI = 200, 100  # dots per inch of figures: to look at closely, and for a page


def write_results(results: Results, folder: str | PathLike[str]) -> list[Path]:
    """Write all of it, figures only where matplotlib is installed; returns the files."""
    target, rankings, boards = Path(folder), results.rankings(), []
    for data, ranking in rankings.items():
        board = target / (
            "leaderboard.html" if len(rankings) == 1 else f"leaderboard-{folder_name(data)}.html"
        )
        boards.append(Path(write_leaderboard(board, ranking, title=f"{results.name}: leaderboard")))
    return [*_write_page(results, target / "results.md", target, FORMATS, _DPI), *boards]


def write_page(results: Results, page: str | PathLike[str]) -> list[Path]:
    """Write the page for a site, such as `docs/results.md`; what it links to lies in `results/`.

    That is small figures, and one file per norm from which `bench page` makes all of it again.
    """
    target, beside = Path(page), folder_beside(page)
    stored = store(results, beside)
    return [*_write_page(results, target, beside, ("png",), _SMALL_DPI, stored=stored), *stored]


def check_page(page: str, known: Collection[str]) -> None:
    """Refuse a page that somebody else wrote, or that also shows norms of which nothing is known any more."""
    check_writable(page, b"`advfrontier bench run`")
    beside = folder_beside(page)
    held = open_folder(beside).read("results.json")
    shown = {} if held is None else read_object(held, f"{beside}/results.json").get("norms", {})
    if not isinstance(shown, dict):
        raise FrontierError(
            f"{beside}/results.json is damaged, or was not written by advfrontier: move it away"
        )
    if lost := [norm for norm in shown if norm not in known]:
        raise FrontierError(
            f"{page} shows {', '.join(lost)} too, of which nothing is stored beside it, so it would be lost: name "
            "another page"
        )


def _write_page(
    results: Results,
    page: Path,
    beside: Path,
    formats: Sequence[str],
    dpi: int,
    *,
    stored: Sequence[Path] = (),
) -> list[Path]:
    """The page, and what it links to in a folder: tables as JSON, what was learned, figures; returns the files."""
    content = beside / "results.json"
    learned = {beside / "ensembles" / name: text for name, text in learned_files(results).items()}
    told = json.dumps(results_json(results), indent=1, ensure_ascii=False) + "\n"
    for path, text in {content: told, **learned}.items():
        write_file(path, text.encode())
    figures = (
        draw_results(results, beside / "figures", formats=formats, dpi=dpi) if drawable() else None
    )

    def link(path: Path) -> str:
        return path.relative_to(page.parent).as_posix()

    links = None if figures is None else {name: link(paths[-1]) for name, paths in figures.items()}
    text = results_markdown(
        results,
        figures=links,
        learned=[link(path) for path in learned],
        content=link(content),
        stored=[link(path) for path in stored],
    )
    write_file(page, text.encode())
    return [
        page,
        content,
        *learned,
        *(path for paths in (figures or {}).values() for path in paths),
    ]


def learned_files(results: Results) -> dict[str, str]:
    """Name → TOML: the largest greedy ensemble of each norm, which holds the smaller ones, and the race.

    Comments say what its tiers reach on the models of each split.
    """
    files = {}
    for norm, part in results.norms.items():
        last = part.ensembles[max(part.ensembles)]
        for family, policy in ((GREEDY, last), (RACE, part.race)):
            if policy is not None:
                told = "".join(f"# {line}\n" for line in _reached(part, family))
                files[f"{norm}-{family}.toml"] = told + policy.to_toml()
    return files


def _reached(part: NormResults, family: str) -> list[str]:
    """A line per tier: its AOI on training and held-out models, and its certificate where there is one."""
    lines = []
    for name, (kind, tier) in shown_tiers(part.subjects).items():
        if kind == family:
            means = {
                split: mean_aoi(group, family, tier)
                for split, group in by_split(part.subjects).items()
            }
            words = [f"{100 * value:.2f} % on {split} models" for split, value in means.items()]
            made = part.ensembles[tier] if family == GREEDY else None
            if made is not None and made.aoi is not None and made.bound is not None:
                words.append(
                    f"on train models against the traced runs alone {100 * made.aoi:.2f} %"
                )
                words.append(f"no allocation passes {100 * made.bound:.2f} %")
            lines.append(f"{name}: AOI {'; '.join(words)}")
    return lines


def results_json(results: Results) -> dict[str, object]:
    """Every table with its rows by column name: over all norms, per norm, and per data set of each norm."""

    def told(tables: Mapping[str, Table], notes: Sequence[str]) -> dict[str, object]:
        return {
            "notes": list(notes),
            "tables": {name: as_json(table) for name, table in tables.items()},
        }

    norms = {}
    for norm, part in results.norms.items():
        groups = {
            data: told(model_tables.tables(group, title=SYMBOLS[norm]), group.notes)
            for data, group in part.groups.items()
        }
        norms[norm] = {**told(part.tables(), part.notes), "data": groups}
    return {
        "name": results.name,
        "budgets": list(results.budgets),
        "models": told(results.model_tables(), ())["tables"],
        "tables": told(results.tables(), ())["tables"],
        "norms": norms,
        "failures": list(results.failures),
    }


def results_markdown(
    results: Results,
    *,
    figures: Mapping[str, str] | None = None,
    learned: Sequence[str] = (),
    content: str = "results.json",
    stored: Sequence[str] = (),
) -> str:
    """The page, with links to figures by name (None: they could not be drawn), to what was learned, and to its data."""
    whole = results.tables()
    template = environment().overlay(autoescape=False).get_template("results.md.j2")
    page = template.render(
        results=results,
        drawn=figures is not None,
        models=results.model_tables(),
        whole=whole,
        compared="cases" in whole,
        learned=learned,
        json=content,
        stored=stored,
        norms={SYMBOLS[norm]: part.tables() for norm, part in results.norms.items()},
        groups={
            title: model_tables.tables(group, title=title) for title, group in results.groups()
        },
        figures=figures or {},
        stacked=_stacked,
    )
    return re.sub("\n{3,}", "\n\n", page).strip() + "\n"


def _stacked(
    tables_of: Mapping[str, Mapping[str, Table]], name: str, rows: int | None = None
) -> str:
    """The tables of one name, one below the other as one; of each only the first rows if a number is given."""
    tables = {
        title: tables[name].head(rows) for title, tables in tables_of.items() if name in tables
    }
    return as_markdown(stacked(name, Column("norm"), tables)) if tables else ""
