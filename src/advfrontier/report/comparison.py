"""Two models side by side: what `frontier.compare` found, as a table and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.comparison import Comparison
from advfrontier.report.charts import norm_data, short
from advfrontier.report.numbers import size
from advfrontier.report.page import script_json, write_page
from advfrontier.table import Column, Table

_SHOWN = 6  # crossings written out; there may be hundreds where two curves run together


def comparison_table(comparison: Comparison, first: NormSummary, second: NormSummary) -> Table:
    """The verdict, and the figures behind it."""
    labels = [at.label for at in first.robust]
    columns = (
        Column("model", folds=True),
        Column("queries", "count"),
        Column(f"AUREC up to {size(comparison.E)}", "size"),
        *(Column(f"robust % at {label}", "percent") for label in labels),
    )
    rows: list[tuple[Any, ...]] = [
        (name, summary.tier, area, *(at.accuracy for at in summary.robust))
        for name, summary, area in zip(comparison.names, (first, second), comparison.aurec, strict=True)
    ]
    rows.append(("difference", "", comparison.difference, *("" for _ in labels)))
    return Table(f"{first.norm}: {comparison.verdict}", columns, tuple(rows), tuple(comparison_notes(comparison)))


def write_comparison(path: str | PathLike[str], compared: Sequence[tuple[Comparison, NormSummary, NormSummary]]) -> str:
    """Write a page with both curves in every norm, their bands, and by how much one leads where.

    Each entry is a comparison with the summaries of its two models, in its order; one entry per norm.
    """
    if not compared:
        raise FrontierError("nothing to compare: expected at least one comparison with the summaries of its two models")
    entries = [(comparison, *_named(comparison, *summaries)) for comparison, *summaries in compared]
    norms = [{**norm_data(first, [second]), "difference": _difference(first, second)} for _, first, second in entries]
    first, second = compared[0][0].names
    return write_page(
        path,
        "comparison.html.j2",
        title=f"{first} and {second}",
        names=(first, second),
        entries=entries,
        notes=comparison_notes,
        radii=any(one.robust for _, one, _ in entries),
        data=script_json({"model": first, "norms": norms}),
    )


def _named(comparison: Comparison, first: NormSummary, second: NormSummary) -> tuple[NormSummary, NormSummary]:
    """The summaries under the comparison's names, which tell two records of one model apart; without their pools."""
    if first.norm != second.norm:
        raise FrontierError(f"{first.model} in {first.norm}, {second.model} in {second.norm}: expected the same norm")
    both = zip((first, second), comparison.names, strict=True)
    one, other = (replace(summary, model=name, standing=None) for summary, name in both)
    return one, other


def _difference(first: NormSummary, second: NormSummary) -> dict[str, Any]:
    """The first curve less the second, as steps."""
    steps, gaps = first.curve.less(second.curve)
    names = {"first": first.model, "second": second.model}
    return {"x": [short(ε) for ε in steps.tolist()], "y": [round(gap, 6) for gap in gaps.tolist()], **names}


def comparison_notes(comparison: Comparison) -> list[str]:
    """What to know beside the verdict, which says what to run next: where the curves cross, and flags."""
    notes = []
    if comparison.crossings:
        shown = ", ".join(size(ε) for ε in comparison.crossings[:_SHOWN])
        more = len(comparison.crossings) - _SHOWN
        notes.append(f"the curves cross at ε = {shown}{f' and {more} more' if more > 0 else ''}")
    return notes + [f"flag: {flag}" for flag in comparison.flags]
