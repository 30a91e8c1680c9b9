"""Unions of norms: a table of each model's accuracies, and a row per sample for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from advfrontier.evaluation.union import UnionOfModel
from advfrontier.frontier.comparison import Comparison
from advfrontier.pool import tier_label
from advfrontier.report.numbers import size, whole
from advfrontier.report.summary import comparison_notes
from advfrontier.table import Column, Table

_HEAD = ("model", "sample", "t", "weakest")
UNIONS_MARK = ",".join(_HEAD).encode()


def union_tables(found: Sequence[UnionOfModel], shares: Sequence[tuple[str, float]]) -> list[Table]:
    """Return a table per model: accuracy against all norms at once, and against each of them.

    Args:
        found: Unions of the models, all of the same radii.
        shares: Values of t, as written and as numbers.
    """
    return [_table(each, shares) for each in found]


def _table(union: UnionOfModel, shares: Sequence[tuple[str, float]]) -> Table:
    columns = [Column("t", "text"), Column("robust accuracy %", "percent", key="robust_accuracy")]
    for norm in union.radii:
        columns.append(Column(f"{norm} alone %", "percent", key=f"{norm}_alone"))
    for norm in union.radii:
        columns.append(Column(f"broken by {norm} only %", "percent", key=f"{norm}_only"))
    rows = []
    for label, t in shares:
        cells: list[Any] = [label, union.robust_accuracy_interval(t)]
        cells += [union.alone(norm, t) for norm in union.radii]
        cells += [union.broken_only_by(norm, t) for norm in union.radii]
        rows.append(tuple(cells))
    area = union.aurec_interval()
    notes = []
    if area.known:
        notes.append(
            f"AUREC {size(area.estimate)} ({size(area.low)}–{size(area.high)}), in units of t"
        )
    notes.append(
        "t scales all radii together; intervals in brackets: 95 %, for other samples drawn "
        "for all norms at once from the same source"
    )
    for flag in union.flags:
        notes.append(f"flag: {flag}")
    title = (
        f"{union.model} on {union.data} against {union.name} at once: {whole(len(union.samples))} "
        f"samples, {tier_label(union.queries)} queries in each norm"
    )
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def unions_compared(comparison: Comparison) -> Table:
    """Return the verdict on two models along the same path and the figures behind it.

    Args:
        comparison: Comparison of two unions of the same radii.
    """
    columns = (Column("model", folds=True), Column(f"AUREC up to {size(comparison.E)}", "size"))
    rows: list[tuple[Any, ...]] = list(zip(comparison.names, comparison.aurec, strict=True))
    rows.append(("difference", comparison.difference))
    return Table(comparison.verdict, columns, tuple(rows), tuple(comparison_notes(comparison)))


def unions_csv(found: Sequence[UnionOfModel]) -> str:
    """Return a row per model and sample: the t that breaks it, the norm, and all distances.

    Args:
        found: Unions of the models, all of the same radii.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    norms = list(found[0].radii)
    writer.writerow([*_HEAD, *norms])
    for union in found:
        for row, sample in enumerate(union.samples):
            distances = [union.by_norm[norm][row] for norm in norms]
            weakest = union.weakest[row] or ""
            writer.writerow([union.model, sample, union.distances[row], weakest, *distances])
    return text.getvalue()
