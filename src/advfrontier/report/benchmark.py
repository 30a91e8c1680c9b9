"""The results of a benchmark: `results.md` in the order of the paper, `results.json`, a leaderboard, and figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.bench import model_tables
from advfrontier.bench.benchmark import SPLITS
from advfrontier.record import folder_name
from advfrontier.report.benchmark_figures import draw_results
from advfrontier.report.leaderboard import write_leaderboard
from advfrontier.report.page import environment
from advfrontier.report.render import as_json, as_markdown
from advfrontier.report.style import drawable
from advfrontier.table import Column, stacked
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from advfrontier.bench.results import Results
    from advfrontier.table import Table


def write_results(results: Results, folder: str | PathLike[str]) -> list[Path]:
    """Write all of it, figures only where matplotlib is installed; returns the files."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = draw_results(results, target / "figures") if drawable() else None
    content, page = target / "results.json", target / "results.md"
    content.write_text(json.dumps(results_json(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    linked = {name: paths[-1].relative_to(target).as_posix() for name, paths in (figures or {}).items()}
    page.write_text(results_markdown(results, figures=None if figures is None else linked), encoding="utf-8")
    rankings = results.rankings()
    boards = []
    for data, ranking in rankings.items():
        board = target / ("leaderboard.html" if len(rankings) == 1 else f"leaderboard-{folder_name(data)}.html")
        boards.append(Path(write_leaderboard(board, ranking, title=f"{results.name}: leaderboard")))
    return [page, content, *boards, *(path for paths in (figures or {}).values() for path in paths)]


def results_json(results: Results) -> dict[str, object]:
    """Every table with its rows by column name: over all norms, per norm, and per data set of each norm."""
    return {
        "name": results.name,
        "budgets": list(results.budgets),
        "models": _json(results.model_tables()),
        "tables": _json(results.tables()),
        "norms": {
            norm: {
                "notes": list(part.notes),
                "tables": _json(part.tables()),
                "data": {
                    data: {
                        "notes": list(group.notes),
                        "tables": _json(model_tables.tables(group, title=SYMBOLS[norm])),
                    }
                    for data, group in part.groups.items()
                },
            }
            for norm, part in results.norms.items()
        },
        "failures": list(results.failures),
    }


def _json(tables: Mapping[str, Table]) -> dict[str, object]:
    return {name: as_json(table) for name, table in tables.items()}


def results_markdown(results: Results, *, figures: Mapping[str, str] | None = None) -> str:
    """The page. `figures` are files by name; None says that they could not be drawn."""
    template = environment().overlay(autoescape=False).get_template("results.md.j2")
    page = template.render(
        results=results,
        opening=_opening(results, drawn=figures is not None),
        models=results.model_tables(),
        whole=results.tables(),
        norms={SYMBOLS[norm]: part.tables() for norm, part in results.norms.items()},
        groups={title: model_tables.tables(group, title=title) for title, group in results.groups()},
        figures=figures or {},
        stacked=_stacked,
    )
    return re.sub("\n{3,}", "\n\n", page).strip() + "\n"


def _stacked(tables_of: Mapping[str, Mapping[str, Table]], name: str, rows: int | None = None) -> str:
    """The tables of one name, one below the other as one; of each only the first rows if a number is given."""
    tables = {title: tables[name].head(rows) for title, tables in tables_of.items() if name in tables}
    return as_markdown(stacked(name, Column("norm"), tables)) if tables else ""


def _opening(results: Results, *, drawn: bool) -> str:
    lines = []
    for norm, part in results.norms.items():
        counts = {split: sum(subject.split == split for subject in part.subjects) for split in SPLITS}
        samples = ", ".join(f"{len(group.subjects[0].samples)} of {data}" for data, group in part.groups.items())
        models = f"{counts['train']} training and {counts['held-out']} held-out models"
        lines.append(f"- {SYMBOLS[norm]}: {models}, samples: {samples}")
        lines += [f"  - {note}" for note in part.notes]
        lines += [f"  - {data}: {note}" for data, group in part.groups.items() for note in group.notes]
    if not drawn:
        lines.append("- no figures: matplotlib is not installed; type `pip install 'advfrontier[figures]'`")
    if results.failures:
        lines.append(f"- {len(results.failures)} parts failed and are missing below:")
        lines += [f"  - {failure}" for failure in results.failures]
    return "\n".join(lines)
