"""The result of an evaluation as a table: the numbers people paste into papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advfrontier.evaluation.summary import total_counts
from advfrontier.pool import tier_label
from advfrontier.report.numbers import percent, size, whole
from advfrontier.table import Column, Doubted, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advfrontier.evaluation.summary import NormSummary

NO_RADII = "no radius is customary for this data: for robust accuracy give some, such as --radii 4/255,8/255"


def summary_tables(summaries: Sequence[NormSummary]) -> list[Table]:
    """One table per model and tier, a row per norm and radius."""
    groups: dict[str, list[NormSummary]] = {}
    for summary in summaries:
        title = (
            f"{summary.model} on {summary.data}, {whole(len(summary.samples))} samples, "
            f"at most {tier_label(summary.tier)} queries per sample, seed {summary.seed}"
        )
        groups.setdefault(title, []).append(summary)
    return [_table(title, group) for title, group in groups.items()]


def _table(title: str, summaries: Sequence[NormSummary]) -> Table:
    ranked, radii = any(s.standing for s in summaries), any(s.robust for s in summaries)
    certified = radii and any(s.certified for s in summaries)
    columns = (
        Column("norm"),
        Column("clean accuracy %", "percent"),
        *((Column("at ε", "size"), Column("robust accuracy %", "percent")) if radii else ()),
        *((Column("certified accuracy %", "percent"),) if certified else ()),
        Column("median distance", "size"),
        Column("AUREC", "size"),
        Column("up to", "size"),
        *((Column("DOI", "score"), Column("rank", "integer")) if ranked else ()),
        Column("queries per sample", "count"),
    )
    rows = [row for summary in summaries for row in _rows(summary, ranked=ranked, radii=radii, certified=certified)]
    return Table(title, columns, tuple(rows), _notes(summaries))


def _rows(summary: NormSummary, *, ranked: bool, radii: bool, certified: bool) -> list[tuple[Any, ...]]:
    """A row with everything, and one for every further radius."""
    where = summary.standing
    standing: tuple[Any, ...] = (None, None)
    if where:
        doi = where.row.doi
        standing = (Doubted(doi) if where.row.bracketed else doi, where.position)
    robust: list[tuple[Any, ...]] = [(at.label, at.accuracy) for at in summary.robust] or [(None, None)]
    if certified:
        proven = [at.accuracy for at in summary.certified.robust] if summary.certified else [None] * len(robust)
        robust = [(*at, share) for at, share in zip(robust, proven or [None], strict=True)]
    after = (
        summary.median,
        summary.aurec,
        summary.E if summary.aurec.known else None,
        *(standing if ranked else ()),
        summary.queries_per_sample,
    )
    first = (summary.norm, summary.clean, *(robust[0] if radii else ()), *after)
    more = [("", "", *at, *([""] * len(after))) for at in robust[1:]]
    return [first, *more]


def _notes(summaries: Sequence[NormSummary]) -> tuple[str, ...]:
    spent = ", ".join(f"{whole(count)} {purpose}" for purpose, count in total_counts(summaries).items())
    notes = ["intervals in brackets: 95 %, for other samples of the same source", f"queries spent: {spent}"]
    if not any(s.robust for s in summaries):
        notes.append(NO_RADII)
    notes += _doi_notes(summaries)
    notes += [
        f"certified in {s.norm}: median radius {size(s.certified.median)}, of a median distance of {size(s.median)}"
        for s in summaries
        if s.certified
    ]
    for s in summaries:
        if s.unbroken and not s.broken:
            notes.append(f"no AUREC in {s.norm}: no run broke any sample")
        elif s.convergence.settled is False:
            drop = percent(s.convergence.last_drop)
            notes.append(f"not settled in {s.norm}: the last quarter of the queries lowered AUREC by {drop} %")
    notes += [f"flag in {s.norm}: {flag}" for s in summaries for flag in s.flags]
    return (*notes, *(f"flag in {s.norm}: DOI: {note}" for s in summaries for note in s.notes))


def _doi_notes(summaries: Sequence[NormSummary]) -> list[str]:
    """Why there is no DOI, each reason once; and the tier it was read at, where that is not the record's own."""
    reasons: dict[str, list[str]] = {}
    for s in summaries:
        if s.no_standing:
            reasons.setdefault(s.no_standing, []).append(s.norm)
    lower = [(s.norm, s.standing.table.queries) for s in summaries if s.standing and s.standing.table.queries != s.tier]
    return [
        *(f"no DOI in {', '.join(norms)}: {reason}" for reason, norms in reasons.items()),
        *(
            f"DOI and rank in {norm} after {tier_label(queries)} queries, as the reference models"
            for norm, queries in lower
        ),
    ]
