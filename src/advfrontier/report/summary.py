"""Results as tables: the numbers people paste into papers, of one evaluation and of models ranked, these as CSV too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from advfrontier.evaluation.summary import NormSummary, total_counts
from advfrontier.frontier.ranking import Ranking, RankRow, RankTable
from advfrontier.pool import tier_label
from advfrontier.report.numbers import known, percent, size, whole
from advfrontier.report.render import as_csv
from advfrontier.report.words import averaged_text, passes_text
from advfrontier.table import Column, Doubted, Table
from advfrontier.threat.names import NORMS

NO_RADII = "no radius is customary for this data: for robust accuracy give some, such as --radii 4/255,8/255"
_COLUMNS = (
    Column("norm"), Column("model", folds=True), Column("clean accuracy %", "percent"), Column("at ε", "size"),
    Column("robust accuracy %", "percent"), Column("certified accuracy %", "percent"),
    Column("median distance", "size"), Column("AUREC", "size"), Column("up to", "size"), Column("DOI", "score"),
    Column("rank", "integer"), Column("queries per sample", "count"),
)  # fmt: skip
_HEAD = (
    Column("rank", "integer"),
    Column("95 %", "integer"),
    Column(""),
    Column("model", folds=True),
)
_LEGEND = "* the records asked about; (…) distances that cannot be trusted, which do not count in the others' ranks"
_CSV = (
    "norm", "model", "rank", "bracketed", "rank_low", "rank_high", "doi", "doi_low", "doi_high", "aurec", "E",
    "clean_accuracy", "median_distance", "queries", "samples", "flags",
)  # fmt: skip


def in_order(summaries: Iterable[NormSummary]) -> list[NormSummary]:
    """Norms in their usual order."""
    return sorted(summaries, key=lambda summary: NORMS.index(summary.norm))


def summary_tables(summaries: Sequence[NormSummary]) -> list[Table]:
    """A row per norm and radius: one table per tier of a model, or one of all models norm by norm."""
    several = len({summary.model for summary in summaries}) > 1
    groups: dict[tuple[Any, ...], list[NormSummary]] = {}
    for s in summaries:
        groups.setdefault(
            (s.data, len(s.samples), *(() if several else (s.tier, s.seed))), []
        ).append(s)
    return [_table(in_order(group)) for group in groups.values()]


def _title(summaries: Sequence[NormSummary]) -> str:
    first, models = summaries[0], {s.model for s in summaries}
    tiers = " or ".join(tier_label(tier) for tier in sorted({s.tier for s in summaries}))
    seeds = ", ".join(str(seed) for seed in sorted({s.seed for s in summaries}))
    return (
        f"{first.model if len(models) == 1 else f'{len(models)} models'} on {first.data}, {whole(len(first.samples))} "
        f"samples, at most {tiers} queries per sample{passes_text(summaries)}, seed {seeds}"
    )


def _table(summaries: Sequence[NormSummary]) -> Table:
    ranked, radii = any(s.standing for s in summaries), any(s.robust for s in summaries)
    several, certified = (
        len({s.model for s in summaries}) > 1,
        radii and any(s.certified for s in summaries),
    )
    optional = {"model": several, "certified accuracy %": certified, "DOI": ranked, "rank": ranked}
    optional |= {"at ε": radii, "robust accuracy %": radii}
    shown = [k for k, column in enumerate(_COLUMNS) if optional.get(column.name, True)]
    rows = tuple(tuple(row[k] for k in shown) for summary in summaries for row in _rows(summary))
    return Table(
        _title(summaries),
        tuple(_COLUMNS[k] for k in shown),
        rows,
        _notes(summaries, several=several),
    )


def _rows(summary: NormSummary) -> list[tuple[Any, ...]]:
    """A row with everything, and one for every further radius."""
    where, certified = summary.standing, summary.certified
    doi = where and (Doubted(where.row.doi) if where.row.bracketed else where.row.doi)
    proven = [at.accuracy for at in certified.robust] if certified else [None] * len(summary.robust)
    robust: list[tuple[Any, ...]] = [
        (at.label, at.accuracy, p) for at, p in zip(summary.robust, proven, strict=True)
    ]
    first, *more = robust or [(None, None, None)]
    end = summary.E if summary.aurec.known else None
    after = (
        summary.median,
        summary.aurec,
        end,
        doi,
        where and where.position,
        summary.queries_per_sample,
    )
    return [
        (summary.norm, summary.model, summary.clean, *first, *after),
        *(("", "", "", *at, *[""] * 6) for at in more),
    ]


def _notes(summaries: Sequence[NormSummary], *, several: bool) -> tuple[str, ...]:
    def place(s: NormSummary) -> str:
        return f"{s.norm} of {s.model}" if several else s.norm

    spent = ", ".join(
        f"{whole(count)} {purpose}" for purpose, count in total_counts(summaries).items()
    )
    notes = [
        "intervals in brackets: 95 %, for other samples of the same source",
        f"queries spent: {spent}",
    ]
    notes += [f"EOT in {place(s)}: {text}" for s in summaries if (text := averaged_text(s))]
    if not any(s.robust for s in summaries):
        notes.append(NO_RADII)
    notes += _doi_notes(summaries)
    notes += [
        f"certified in {place(s)}: median radius {size(s.certified.median)}, of a median distance of {size(s.median)}"
        for s in summaries
        if s.certified
    ]
    for s in summaries:
        if s.unbroken and not s.broken:
            notes.append(f"no AUREC in {place(s)}: no run broke any sample")
        elif s.convergence.settled is False:
            drop = percent(s.convergence.last_drop)
            notes.append(
                f"not settled in {place(s)}: the last quarter of the queries lowered AUREC by {drop} %"
            )
    notes += [f"flag in {place(s)}: {flag}" for s in summaries for flag in s.flags]
    return (*notes, *(f"flag in {place(s)}: DOI: {note}" for s in summaries for note in s.notes))


def _doi_notes(summaries: Sequence[NormSummary]) -> list[str]:
    """Why there is no DOI, each reason once; and the tier it was read at, where that is not the record's own."""
    reasons: dict[str, list[str]] = {}
    for s in summaries:
        if s.no_standing:
            reasons.setdefault(s.no_standing, []).append(s.norm)
    tables = {
        s.norm: s.standing.table.queries
        for s in summaries
        if s.standing and s.standing.table.queries != s.tier
    }
    return [
        *(
            f"no DOI in {', '.join(dict.fromkeys(norms))}: {reason}"
            for reason, norms in reasons.items()
        ),
        *(
            f"DOI and rank in {norm} after {tier_label(queries)} queries, as the other models"
            for norm, queries in tables.items()
        ),
    ]


def rank_tables(ranking: Ranking) -> list[Table]:
    """The table over all norms, if there is one, and that of every norm."""
    tables = [_overall(ranking)] if ranking.overall else []
    tables += [_of_norm(table) for table in ranking.norms]
    notes = [_LEGEND]
    if len(ranking.norms) > 1 and not ranking.overall:
        notes.append("no table over all norms: fewer than two norms hold all models")
    for table in ranking.norms:
        notes += [
            f"flag in {table.norm}: {row.model}: {told}"
            for row in table.rows
            for told in row_flags(row)
        ]
    *others, last = tables
    return [*others, Table(last.title, last.columns, last.rows, tuple(notes))]


def ranking_csv(ranking: Ranking) -> str:
    """A line per model and norm, and with norm `all` a line per model over the norms all models share."""
    models: list[tuple[RankTable | None, RankRow]] = [
        (table, row) for table in ranking.norms for row in table.rows
    ]
    radii = [(table.norm, radius) for table in ranking.norms for radius in table.radii]
    rows = []
    for table, row in (*models, *((None, row) for row in ranking.overall)):
        norm, *about = (
            (table.norm, table.E, table.queries, table.samples)
            if table
            else ("all", None, None, None)
        )
        doi = [
            value if known(value) else None
            for value in (row.doi.estimate, row.doi.low, row.doi.high, row.aurec)
        ]
        robust = (row.robust.get(radius) if norm == of else None for of, radius in radii)
        start = (norm, row.model, row.rank, int(row.bracketed), *(row.ranks or (None, None)), *doi)
        told = (about[0], row.clean_accuracy, row.median, *about[1:], "; ".join(row_flags(row)))
        rows.append((*start, *told, *robust))
    columns = (*_CSV, *(f"robust_accuracy_{of}_{radius}" for of, radius in radii))
    return as_csv(Table("", tuple(Column(name) for name in columns), tuple(rows)))


def _overall(ranking: Ranking) -> Table:
    columns = (
        *_HEAD,
        Column("mean DOI", "score"),
        *(Column(f"DOI {norm}", "score") for norm in ranking.shared),
    )
    rows = tuple(
        (
            *_start(row),
            *(
                Doubted(row.dois[norm]) if row.bracketed else row.dois[norm]
                for norm in ranking.shared
            ),
        )
        for row in ranking.overall
    )
    return Table(f"All norms: mean DOI over {', '.join(ranking.shared)}", columns, rows)


def _of_norm(table: RankTable) -> Table:
    area = Column(f"AUREC up to {size(table.E)}", "sizes")
    robust = (Column(f"at {radius} %", "percent") for radius in table.radii)
    columns = (
        *_HEAD,
        Column("DOI", "score"),
        area,
        Column("clean %", "percent"),
        *robust,
        Column("median", "sizes"),
    )
    rows = tuple(
        (*_start(row), row.aurec, row.clean_accuracy, *row.robust.values(), row.median)
        for row in table.rows
    )
    title = f"{table.norm} on {table.data}: {whole(table.samples)} samples, {tier_label(table.queries)} queries each"
    return Table(title, columns, rows)


def _start(row: RankRow) -> tuple[Any, ...]:
    """What every row begins with."""
    rank, doi = (Doubted(row.rank), Doubted(row.doi)) if row.bracketed else (row.rank, row.doi)
    return rank, row.ranks, "*" if row.given else "", row.model, doi


def row_flags(row: RankRow) -> list[str]:
    """Why a model is in doubt, and what is to be known about its DOI, each once."""
    return list(dict.fromkeys((*map(str, row.flags), *(row.doi.flags if not row.dois else ()))))
