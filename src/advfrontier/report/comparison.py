"""Two models side by side: what `frontier.compare` found, on the terminal and as a page."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.report import words
from advfrontier.report.html import norm_data
from advfrontier.report.numbers import percent, percent_interval, size, size_interval, tier
from advfrontier.report.page import script_json, write_page
from advfrontier.report.tables import Column, console_for, printable, rich_table, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import TextIO

    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.comparison import Comparison
    from advfrontier.report.tables import Cell

_SHOWN = 6  # crossings written out; there may be hundreds where two curves run together


def print_comparison(
    comparison: Comparison,
    summaries: Sequence[NormSummary] = (),
    *,
    norm: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the verdict and the figures behind it; `summaries` of the two, in order, add robust accuracies."""
    console = console_for(stream)
    if console is None:
        print(comparison_text(comparison, summaries, norm=norm), end="\n\n", file=stream or sys.stdout)
        return
    console.print(printable(_verdict(comparison, norm)), style="bold")
    console.print(rich_table(*_table(comparison, summaries)))
    for line in _notes(comparison):
        console.print(f"  {printable(line)}")


def comparison_text(comparison: Comparison, summaries: Sequence[NormSummary] = (), *, norm: str | None = None) -> str:
    """The same as plain text."""
    table = text_table(*_table(comparison, summaries))
    notes = [printable(note) for note in _notes(comparison)]
    return "\n".join([printable(_verdict(comparison, norm)), "", table, *([""] if notes else []), *notes])


def write_comparison(path: str | PathLike[str], compared: Sequence[tuple[Comparison, NormSummary, NormSummary]]) -> str:
    """Write a page with both curves in every norm, their bands, and by how much one leads where.

    Each entry is a comparison with the summaries of its two models, in its order; one entry per norm.
    """
    if not compared:
        raise FrontierError("nothing to compare: expected at least one comparison with the summaries of its two models")
    entries, norms = [], []
    for comparison, *summaries in compared:
        first, second = named(comparison, *summaries)
        norms.append(
            {
                **norm_data(first, [second], {"pool": [], "frontier": None}),
                "difference": difference(first, second),
            }
        )
        entries.append(
            {
                "comparison": comparison,
                "rows": (first, second),
                "norm": first.norm,
                "notes": _notes(comparison),
                "chart_text": f"{words.chart_text(first)} {words.chart_text(second)}",
                "difference_text": _difference_text(comparison),
            }
        )
    names = compared[0][0].names
    return write_page(
        path,
        "comparison.html.j2",
        title=f"{names[0]} and {names[1]}",
        names=names,
        first=compared[0][1],
        entries=entries,
        radii=any(first.robust for _, first, _ in compared),
        data=script_json({"model": names[0], "norms": norms}),
    )


def named(comparison: Comparison, first: NormSummary, second: NormSummary) -> tuple[NormSummary, NormSummary]:
    """The summaries under the comparison's names, which tell two records of one model apart."""
    if first.norm != second.norm:
        raise FrontierError(f"{first.model} in {first.norm}, {second.model} in {second.norm}: expected the same norm")
    return replace(first, model=comparison.names[0]), replace(second, model=comparison.names[1])


def _verdict(comparison: Comparison, norm: str | None) -> str:
    return f"{norm}: {comparison.verdict}" if norm else comparison.verdict


def difference(first: NormSummary, second: NormSummary) -> dict[str, Any]:
    """The first curve less the second, as steps."""
    steps = np.unique([*first.curve.epsilons, *second.curve.epsilons])
    return {
        "x": [float(f"{ε:.6g}") for ε in steps],
        "y": [round(first.curve.at(ε) - second.curve.at(ε), 6) for ε in steps.tolist()],
        "first": first.model,
        "second": second.model,
    }


def _table(comparison: Comparison, summaries: Sequence[NormSummary]) -> tuple[list[Column], list[list[Cell]]]:
    labels = [at.label for at in summaries[0].robust] if summaries else []
    columns = [Column("model", right=False, folds=True), Column(f"AUREC\nup to {size(comparison.E)}")]
    columns += [Column(f"robust %\nat {label}") for label in labels]
    rows: list[list[Cell]] = [[name, size(area)] for name, area in zip(comparison.names, comparison.aurec, strict=True)]
    for row, summary in zip(rows, summaries, strict=False):
        row += [f"{percent(at.accuracy.estimate)} ({percent_interval(at.accuracy)})" for at in summary.robust]
    gap = comparison.difference
    rows.append(["difference", f"{size(gap.estimate)} ({size_interval(gap)})", *("" for _ in labels)])
    return columns, rows


def _notes(comparison: Comparison) -> list[str]:
    notes = []
    if comparison.crossings:
        shown = ", ".join(size(ε) for ε in comparison.crossings[:_SHOWN])
        more = len(comparison.crossings) - _SHOWN
        notes.append(f"the curves cross at ε = {shown}{f' and {more} more' if more > 0 else ''}")
    notes += [f"next: extend {name} to {tier(queries)}" for name, queries in comparison.run_next.items()]
    return notes + [f"flag: {flag}" for flag in comparison.flags]


def _difference_text(comparison: Comparison) -> str:
    a, b = comparison.names
    where = f"It changes sign {len(comparison.crossings)} times." if comparison.crossings else "It never changes sign."
    return f"Robust accuracy of {a} less that of {b}, against ε. {where}"
