"""The result of an evaluation on the terminal: the numbers people paste into papers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from advfrontier.report.numbers import (
    percent,
    percent_interval,
    score,
    score_interval,
    size,
    size_interval,
    tier,
    whole,
)
from advfrontier.report.tables import Column, console_for, fits, printable, rich_table, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.report.tables import Cell


NO_RADII = "no radius is customary for this data: for robust accuracy give some, such as --radii 4/255,8/255"


def print_summaries(summaries: Sequence[NormSummary], *, stream: TextIO | None = None) -> None:
    """Print the tables: drawn on a terminal, plain text elsewhere."""
    console = console_for(stream)
    if console is None:
        print(summaries_text(summaries), file=stream or sys.stdout)
        return
    for title, group in _by_title(summaries):
        console.print(printable(title), style="bold")
        table = rich_table(*_table(group))
        if fits(table, console):
            console.print(table)
            console.print()
        else:
            console.print("", *(f"{_listing(summary)}\n" for summary in group), sep="\n")
        for line in _notes(group):
            console.print(f"  {printable(line)}", style="yellow" if line.startswith("flag") else None)


def summaries_text(summaries: Sequence[NormSummary]) -> str:
    """The same as plain text."""
    blocks = []
    for title, group in _by_title(summaries):
        blocks.append("\n".join([printable(title), "", text_table(*_table(group)), "", *map(printable, _notes(group))]))
    return "\n\n".join(blocks)


def _by_title(summaries: Sequence[NormSummary]) -> Iterator[tuple[str, list[NormSummary]]]:
    groups: dict[str, list[NormSummary]] = {}
    for summary in summaries:
        title = (
            f"{summary.model} on {summary.data}, {whole(len(summary.samples))} samples, "
            f"at most {tier(summary.tier)} queries per sample, seed {summary.seed}"
        )
        groups.setdefault(title, []).append(summary)
    yield from groups.items()


def _table(summaries: Sequence[NormSummary]) -> tuple[list[Column], list[list[Cell]]]:
    ranked, radii = any(s.standing for s in summaries), any(s.robust for s in summaries)
    columns = [
        Column("norm", right=False),
        Column("clean\naccuracy %"),
        *((Column("at ε"), Column("robust\naccuracy %")) if radii else ()),
        Column("median\ndistance"),
        Column("AUREC"),
        *((Column("DOI"), Column("rank")) if ranked else ()),
        Column("queries\nper sample"),
    ]
    return columns, [_row(summary, ranked=ranked, radii=radii) for summary in summaries]


def _row(summary: NormSummary, *, ranked: bool, radii: bool) -> list[Cell]:
    where = summary.standing
    standing: tuple[Cell, ...] = ("–", "–")
    if where:
        standing = ((score(where.doi.estimate), f"({score_interval(where.doi)})"), where.position)
    robust: tuple[Cell, ...] = (
        tuple(line for at in summary.robust for line in (at.label, "")),
        tuple(
            line
            for at in summary.robust
            for line in (percent(at.accuracy.estimate), f"({percent_interval(at.accuracy)})")
        ),
    )
    return [
        summary.norm,
        (percent(summary.clean.estimate), f"({percent_interval(summary.clean)})"),
        *(robust if radii else ()),
        size(summary.median),
        (size(summary.aurec.estimate), f"({size_interval(summary.aurec)})", f"up to {size(summary.E)}"),
        *(standing if ranked else ()),
        whole(summary.queries_per_sample),
    ]


def _listing(summary: NormSummary) -> str:
    """One figure a line, for narrow terminals."""
    where = summary.standing
    lines = [("clean accuracy %", f"{percent(summary.clean.estimate)} ({percent_interval(summary.clean)})")]
    lines += [
        (f"robust % at {at.label}", f"{percent(at.accuracy.estimate)} ({percent_interval(at.accuracy)})")
        for at in summary.robust
    ]
    lines += [
        ("median distance", size(summary.median)),
        (f"AUREC up to {size(summary.E)}", f"{size(summary.aurec.estimate)} ({size_interval(summary.aurec)})"),
    ]
    if where:
        lines.append(("DOI", f"{score(where.doi.estimate)} ({score_interval(where.doi)}), rank {where.position}"))
    lines.append(("queries per sample", whole(summary.queries_per_sample)))
    longest = max(len(name) for name, _ in lines)
    return "\n".join([summary.norm, *(f"  {name:{longest}}  {figure}" for name, figure in lines)])


def _doi_notes(summaries: Sequence[NormSummary]) -> list[str]:
    """Why there is none, each reason once, or how it was read where a record went further than the reference models."""
    reasons: dict[str, list[str]] = {}
    for s in summaries:
        if s.no_standing:
            reasons.setdefault(s.no_standing, []).append(s.norm)
    lower = [(s.norm, s.standing.queries) for s in summaries if s.standing and s.standing.queries != s.tier]
    return [
        *(f"no DOI in {', '.join(norms)}: {reason}" for reason, norms in reasons.items()),
        *(f"DOI and rank in {norm} after {tier(queries)} queries, as the reference models" for norm, queries in lower),
    ]


def _notes(summaries: Sequence[NormSummary]) -> list[str]:
    passes = {purpose: 0 for s in summaries for purpose in s.counts}
    for summary in summaries:
        for purpose, count in summary.counts.items():
            passes[purpose] += count
    spent = ", ".join(f"{whole(count)} {purpose}" for purpose, count in passes.items())
    notes = ["intervals in brackets: 95 %, for other samples of the same source", f"queries spent: {spent}"]
    if not any(s.robust for s in summaries):
        notes.append(NO_RADII)
    notes += _doi_notes(summaries)
    notes += [
        f"not settled in {s.norm}: the last quarter of the queries lowered AUREC by "
        f"{percent(s.convergence.last_drop)} %"
        for s in summaries
        if not s.convergence.settled
    ]
    return notes + [f"flag in {s.norm}: {flag}" for s in summaries for flag in s.flags]
