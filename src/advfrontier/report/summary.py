"""Results as tables: one evaluation, several models, ranks, and two models compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from advfrontier.evaluation.summary import NormSummary, total_counts
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.ranking import Ranking, RankRow, RankTable
from advfrontier.pool import tier_label
from advfrontier.report.numbers import known, ranks, size, whole
from advfrontier.report.render import as_csv
from advfrontier.report.words import (
    averaged_text,
    further_text,
    models_of,
    passes_text,
    threat_text,
)
from advfrontier.table import Column, Doubted, Table
from advfrontier.threat.names import NORMS

NO_RADII = (
    "no radius is customary for this data: for robust accuracy give some, such as "
    "--radii 4/255,8/255"
)
_SHOWN_CROSSINGS = 6  # there may be hundreds where two curves run together
_LEGEND = (
    "* the records asked about; (…) distances that cannot be trusted, which do not count in the "
    "others' ranks"
)
_CSV = (
    "norm",
    "model",
    "rank",
    "bracketed",
    "rank_low",
    "rank_high",
    "doi",
    "doi_low",
    "doi_high",
    "aurec",
    "E",
    "clean_accuracy",
    "median_distance",
    "queries",
    "samples",
    "flags",
)


def in_order(summaries: Iterable[NormSummary]) -> list[NormSummary]:
    """Return summaries in the usual order of norms; norms of a user come last.

    Args:
        summaries: Summaries of one model, or of several.
    """

    def place(summary: NormSummary) -> int:
        return NORMS.index(summary.norm) if summary.norm in NORMS else len(NORMS)

    return sorted(summaries, key=place)


def has_rank(summary: NormSummary) -> bool:
    """Tell whether a model has a DOI and a rank, possibly in brackets.

    Args:
        summary: Summary of one evaluation.
    """
    return summary.standing is not None and summary.standing.row.rank is not None


def summary_tables(summaries: Sequence[NormSummary]) -> list[Table]:
    """Return a row per norm and radius.

    Args:
        summaries: Evaluations. One model has a table per budget; several models share one table,
            norm by norm, per set of samples.
    """
    several = len(models_of(summaries)) > 1
    groups: dict[tuple[Any, ...], list[NormSummary]] = {}
    for summary in summaries:
        key: tuple[Any, ...] = (summary.data, len(summary.samples))
        if not several:
            key += (summary.tier, summary.seed)
        groups.setdefault(key, []).append(summary)
    return [_summary_table(in_order(group)) for group in groups.values()]


def _summary_table(summaries: Sequence[NormSummary]) -> Table:
    """Return the table of evaluations on the same samples; columns without content are left out."""
    several = len(models_of(summaries)) > 1
    ranked = any(has_rank(summary) for summary in summaries)
    radii = any(summary.robust for summary in summaries)
    certified = radii and any(summary.certified for summary in summaries)
    columns = [Column("norm")]
    if several:
        columns.append(Column("model", folds=True))
    columns.append(Column("clean accuracy %", "percent"))
    if radii:
        columns += [Column("at ε", "size"), Column("robust accuracy %", "percent")]
    if certified:
        columns.append(Column("certified accuracy %", "percent"))
    columns += [Column("median distance", "size"), Column("AUREC", "size"), Column("up to", "size")]
    if ranked:
        columns += [Column("DOI", "score"), Column("rank", "integer")]
    columns.append(Column("queries per sample", "count"))
    rows = []
    for summary in summaries:
        for values in _summary_rows(summary):
            rows.append(tuple(values[column.name] for column in columns))
    notes = _notes(summaries, several=several)
    return Table(_title(summaries), tuple(columns), tuple(rows), notes)


def _summary_rows(summary: NormSummary) -> list[dict[str, Any]]:
    """Return the values of an evaluation by column: all at its first radius, few at the others."""
    standing, certified = summary.standing, summary.certified
    doi = standing.row.doi if standing else None
    row: dict[str, Any] = {
        "norm": summary.norm,
        "model": summary.model,
        "clean accuracy %": summary.clean,
        "at ε": None,
        "robust accuracy %": None,
        "certified accuracy %": None,
        "median distance": summary.median,
        "AUREC": summary.aurec,
        "up to": summary.E if summary.aurec.known else None,
        "DOI": Doubted(doi) if standing and standing.row.bracketed else doi,
        "rank": standing.position if standing else None,
        "queries per sample": summary.queries_per_sample,
    }
    rows: list[dict[str, Any]] = []
    for index, at in enumerate(summary.robust):
        proven = certified.robust[index].accuracy if certified else None
        start = dict.fromkeys(row, "") if rows else row
        robust = {"at ε": at.label, "robust accuracy %": at.accuracy}
        rows.append(start | robust | {"certified accuracy %": proven})
    return rows or [row]


def _title(summaries: Sequence[NormSummary]) -> str:
    first = summaries[0]
    models = models_of(summaries)
    tiers = sorted({summary.tier for summary in summaries})
    seeds = sorted({summary.seed for summary in summaries})
    return (
        f"{first.model if len(models) == 1 else f'{len(models)} models'} on {first.data}, "
        f"{whole(len(first.samples))} samples, at most {' or '.join(map(tier_label, tiers))} "
        f"queries per sample{passes_text(summaries)}{threat_text(summaries)}, seed "
        f"{', '.join(map(str, seeds))}"
    )


def _notes(summaries: Sequence[NormSummary], *, several: bool) -> tuple[str, ...]:
    """Return everything to know beside the figures, flags last."""

    def place(summary: NormSummary) -> str:
        return f"{summary.norm} of {summary.model}" if several else summary.norm

    counts = total_counts(summaries).items()
    spent = ", ".join(f"{whole(count)} {purpose}" for purpose, count in counts)
    notes = ["intervals in brackets: 95 %, for other samples of the same source"]
    notes.append(f"queries spent: {spent}")
    for summary in summaries:
        averaged = averaged_text(summary)
        if averaged:
            notes.append(f"EOT in {place(summary)}: {averaged}")
    for summary in filter(further_text, summaries):
        notes.append(f"further queries in {place(summary)}: {further_text(summary)}")
    if not any(summary.robust for summary in summaries):
        notes.append(NO_RADII)
    notes += _doi_notes(summaries)
    for summary in summaries:
        notes += _area_notes(summary, place(summary))
    for summary in summaries:
        for flag in [*summary.flags, *(f"DOI: {note}" for note in summary.notes)]:
            notes.append(f"flag in {place(summary)}: {flag}")
    return tuple(notes)


def _area_notes(summary: NormSummary, place: str) -> list[str]:
    """Return what is certified, and why there is no AUREC."""
    notes = []
    if summary.certified:
        notes.append(
            f"certified in {place}: median radius {size(summary.certified.median)}, of a median "
            f"distance of {size(summary.median)}"
        )
    if summary.unbroken and not summary.broken:
        notes.append(f"no AUREC in {place}: no run broke any sample")
    return notes


def _doi_notes(summaries: Sequence[NormSummary]) -> list[str]:
    """Return why there is no DOI, each reason once, and at which budget a DOI was read."""
    reasons: dict[str, dict[str, None]] = {}
    budgets = {}
    for summary in summaries:
        if summary.no_standing:
            reasons.setdefault(summary.no_standing, {})[summary.norm] = None
        if summary.standing and summary.standing.table.queries != summary.tier:
            budgets[summary.norm] = summary.standing.table.queries
    notes = []
    for reason, norms in reasons.items():
        notes.append(f"no DOI in {', '.join(norms)}: {reason}")
    for norm, queries in budgets.items():
        notes.append(
            f"DOI and rank in {norm} after {tier_label(queries)} queries, as the other models"
        )
    return notes


# Ranks


def rank_tables(ranking: Ranking) -> list[Table]:
    """Return the table over all norms, if there is one, and a table per norm.

    Args:
        ranking: Ranking in each norm and over all of them.
    """
    tables = [_overall(ranking)] if ranking.overall else []
    tables += map(_of_norm, ranking.norms)
    notes = [_LEGEND]
    if len(ranking.norms) > 1 and not ranking.overall:
        notes.append("no table over all norms: fewer than two norms hold all models")
    for table in ranking.norms:
        for row in table.rows:
            for flag in row_flags(row):
                notes.append(f"flag in {table.norm}: {row.model}: {flag}")
    *others, last = tables
    return [*others, Table(last.title, last.columns, last.rows, tuple(notes))]


def _overall(ranking: Ranking) -> Table:
    columns = [*_rank_columns(), Column("mean DOI", "score")]
    for norm in ranking.shared:
        columns.append(Column(f"DOI {norm}", "score"))
    rows = []
    for row in ranking.overall:
        cells = [*_rank_cells(row)]
        for norm in ranking.shared:
            doi = row.dois[norm]
            cells.append(Doubted(doi) if row.bracketed else doi)
        rows.append(tuple(cells))
    title = f"All norms: mean DOI over {', '.join(ranking.shared)}"
    return Table(title, tuple(columns), tuple(rows))


def _of_norm(table: RankTable) -> Table:
    columns = [*_rank_columns(), Column("DOI", "score")]
    columns.append(Column(f"AUREC up to {size(table.E)}", "sizes"))
    columns.append(Column("clean %", "percent"))
    for radius in table.radii:
        columns.append(Column(f"at {radius} %", "percent"))
    columns.append(Column("median", "sizes"))
    rows = []
    for row in table.rows:
        figures = (row.aurec, row.clean_accuracy, *row.robust.values(), row.median)
        rows.append((*_rank_cells(row), *figures))
    title = (
        f"{table.norm} on {table.data}: {whole(table.samples)} samples, "
        f"{tier_label(table.queries)} queries each"
    )
    return Table(title, tuple(columns), tuple(rows))


def _rank_columns() -> list[Column]:
    mark = Column("")  # a star for the models asked about
    return [Column("rank", "integer"), Column("95 %"), mark, Column("model", folds=True)]


def _rank_cells(row: RankRow) -> tuple[Any, ...]:
    """Return rank, range of ranks, mark, model and DOI of a row."""
    rank = Doubted(row.rank) if row.bracketed else row.rank
    doi = Doubted(row.doi) if row.bracketed else row.doi
    spread = None if row.ranks is None else ranks(row.ranks)
    return rank, spread, "*" if row.given else "", row.model, doi


def row_flags(row: RankRow) -> list[str]:
    """Return why a model is in doubt and what limits its DOI, each reason once.

    Args:
        row: Row of a rank table.
    """
    texts = [*map(str, row.flags)]
    if not row.dois:  # a row of one norm, not a mean over norms
        texts += row.doi.flags
    return list(dict.fromkeys(texts))


def ranking_csv(ranking: Ranking) -> str:
    """Return a line per model and norm, and with norm `all` a line per model over shared norms.

    Args:
        ranking: Ranking in each norm and over all of them.
    """
    columns = [*map(Column, _CSV)]
    radii = []
    for table in ranking.norms:
        for radius in table.radii:
            radii.append((table.norm, radius))
            columns.append(Column(f"robust_accuracy_{table.norm}_{radius}"))
    rows = []
    for table in ranking.norms:
        for row in table.rows:
            cells = [*_csv_cells(row, table)]
            for norm, radius in radii:
                cells.append(row.robust[radius] if norm == table.norm else None)
            rows.append(tuple(cells))
    for row in ranking.overall:
        rows.append((*_csv_cells(row), *[None] * len(radii)))
    return as_csv(Table("", tuple(columns), tuple(rows)))


def _csv_cells(row: RankRow, table: RankTable | None = None) -> tuple[Any, ...]:
    """Return the values of a row in the order of `_CSV`; without a table it is over all norms."""
    low, high = row.ranks or (None, None)
    figures = []
    for value in (row.doi.estimate, row.doi.low, row.doi.high, row.aurec):
        figures.append(value if known(value) else None)
    return (
        table.norm if table else "all",
        row.model,
        row.rank,
        int(row.bracketed),
        low,
        high,
        *figures,
        table.E if table else None,
        row.clean_accuracy,
        row.median,
        table.queries if table else None,
        table.samples if table else None,
        "; ".join(row_flags(row)),
    )


# Two models


def comparison_table(comparison: Comparison, first: NormSummary, second: NormSummary) -> Table:
    """Return the verdict on two models in one norm and the figures behind it.

    Args:
        comparison: Comparison of the two models.
        first: Summary of its first model.
        second: Summary of its second model, in the same norm.
    """
    columns = [
        Column("model", folds=True),
        Column("queries", "count"),
        Column(f"AUREC up to {size(comparison.E)}", "size"),
    ]
    for at in first.robust:
        columns.append(Column(f"robust % at {at.label}", "percent"))
    rows: list[tuple[Any, ...]] = []
    for index, summary in enumerate((first, second)):
        accuracies = [at.accuracy for at in summary.robust]
        name, area = comparison.names[index], comparison.aurec[index]
        rows.append((name, summary.tier, area, *accuracies))
    rows.append(("difference", "", comparison.difference, *[""] * len(first.robust)))
    notes = tuple(comparison_notes(comparison))
    return Table(f"{first.norm}: {comparison.verdict}", tuple(columns), tuple(rows), notes)


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return what to know beside the verdict: where the curves cross, and flags.

    Args:
        comparison: Comparison of two models in one norm.
    """
    notes = []
    if comparison.crossings:
        crossings = comparison.crossings
        text = ", ".join(map(size, crossings[:_SHOWN_CROSSINGS]))
        if len(crossings) > _SHOWN_CROSSINGS:
            text += f" and {len(crossings) - _SHOWN_CROSSINGS} more"
        notes.append(f"the curves cross at ε = {text}")
    for flag in comparison.flags:
        notes.append(f"flag: {flag}")
    return notes
