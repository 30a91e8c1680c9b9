"""Rank tables: for the terminal, as CSV, and as a page to put on a web server."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.frontier.ranking import Ranking, RankRow, RankTable
from advfrontier.pool import tier_label
from advfrontier.report.charts import svg_chart
from advfrontier.report.numbers import column_decimals, known, score, size, whole
from advfrontier.report.page import write_page
from advfrontier.report.render import as_csv
from advfrontier.table import Column, Doubted, Table
from advfrontier.threat.names import SYMBOLS

_HEAD = (Column("rank", "integer"), Column("95 %", "integer"), Column(""), Column("model", folds=True))
_LEGEND = "* the records asked about; (…) distances that cannot be trusted, which do not count in the others' ranks"
_CSV = (
    "norm", "model", "rank", "bracketed", "rank_low", "rank_high", "doi", "doi_low", "doi_high", "aurec", "E",
    "clean_accuracy", "median_distance", "queries", "samples", "flags",
)  # fmt: skip


def rank_tables(ranking: Ranking) -> list[Table]:
    """The table over all norms, if there is one, and that of every norm."""
    tables = [_overall(ranking)] if ranking.overall else []
    tables += [_of_norm(table) for table in ranking.norms]
    notes = [_LEGEND]
    if len(ranking.norms) > 1 and not ranking.overall:
        notes.append("no table over all norms: fewer than two norms hold all models")
    for table in ranking.norms:
        notes += [f"flag in {table.norm}: {row.model}: {told}" for row in table.rows for told in _told(row)]
    *others, last = tables
    return [*others, Table(last.title, last.columns, last.rows, tuple(notes))]


def ranking_csv(ranking: Ranking) -> str:
    """A line per model and norm, and with norm `all` a line per model over the norms all models share."""
    models: list[tuple[RankTable | None, RankRow]] = [(table, row) for table in ranking.norms for row in table.rows]
    radii = [(table.norm, radius) for table in ranking.norms for radius in table.radii]
    rows = []
    for table, row in (*models, *((None, row) for row in ranking.overall)):
        norm, *about = (table.norm, table.E, table.queries, table.samples) if table else ("all", None, None, None)
        doi = [value if known(value) else None for value in (row.doi.estimate, row.doi.low, row.doi.high, row.aurec)]
        robust = (row.robust.get(radius) if norm == of else None for of, radius in radii)
        start = (norm, row.model, row.rank, int(row.bracketed), *(row.ranks or (None, None)), *doi)
        told = (about[0], row.clean_accuracy, row.median, *about[1:], "; ".join(_told(row)))
        rows.append((*start, *told, *robust))
    columns = (*_CSV, *(f"robust_accuracy_{of}_{radius}" for of, radius in radii))
    return as_csv(Table("", tuple(Column(name) for name in columns), tuple(rows)))


def write_leaderboard(
    path: str | PathLike[str],
    ranking: Ranking,
    *,
    title: str = "Robustness leaderboard",
    highlight: Collection[str] | None = None,
) -> str:
    """Write the page: sortable tables, and beside each the curves, every model in one colour on all of the page.

    The models to highlight are by default those asked about, where they stand among reference models.
    """
    rows = [row for table in ranking.norms for row in table.rows]
    names = list(dict.fromkeys(row.model for row in (*ranking.overall, *rows)))
    if highlight is None:
        highlight = {row.model for row in rows if row.given} if not all(row.given for row in rows) else ()
    if unknown := [model for model in highlight if model not in names]:
        raise FrontierError(f"no model {unknown[0]} to highlight: expected some of {', '.join(names)}")

    def chart_of(table: RankTable) -> dict[str, Any]:
        doubted = {row.model for row in table.rows if row.bracketed}
        curves = {row.model: table.curves[row.model] for row in table.rows}
        return svg_chart(table.norm, curves, frontier=table.frontier, doubted=doubted, names=names)

    return write_page(
        path,
        "leaderboard.html.j2",
        title=title,
        ranking=ranking,
        verdict=_verdict(ranking),
        told=_told,
        chart_of=chart_of,
        highlight=highlight,
        decimals=column_decimals,  # of the areas and of the medians, so that their columns line up
    )


def _overall(ranking: Ranking) -> Table:
    columns = (*_HEAD, Column("mean DOI", "score"), *(Column(f"DOI {norm}", "score") for norm in ranking.shared))
    rows = tuple(
        (*_start(row), *(Doubted(row.dois[norm]) if row.bracketed else row.dois[norm] for norm in ranking.shared))
        for row in ranking.overall
    )
    return Table(f"All norms: mean DOI over {', '.join(ranking.shared)}", columns, rows)


def _of_norm(table: RankTable) -> Table:
    area = Column(f"AUREC up to {size(table.E)}", "sizes")
    robust = (Column(f"at {radius} %", "percent") for radius in table.radii)
    columns = (*_HEAD, Column("DOI", "score"), area, Column("clean %", "percent"), *robust, Column("median", "sizes"))
    rows = tuple((*_start(row), row.aurec, row.clean_accuracy, *row.robust.values(), row.median) for row in table.rows)
    title = f"{table.norm} on {table.data}: {whole(table.samples)} samples, {tier_label(table.queries)} queries each"
    return Table(title, columns, rows)


def _start(row: RankRow) -> tuple[Any, ...]:
    """What every row begins with."""
    rank, doi = (Doubted(row.rank), Doubted(row.doi)) if row.bracketed else (row.rank, row.doi)
    return rank, row.ranks, "*" if row.given else "", row.model, doi


def _told(row: RankRow) -> list[str]:
    """Why a model is in doubt, and what is to be known about its DOI, each once."""
    return list(dict.fromkeys((*map(str, row.flags), *(row.doi.flags if not row.dois else ()))))


def _verdict(ranking: Ranking) -> str:
    best = next((row for row in ranking.overall if row.rank == 1 and not row.bracketed), None)
    if best:
        where = ", ".join(SYMBOLS[norm] for norm in ranking.shared)
        return f"{best.model} has the highest mean DOI over {where}: {score(best.doi.estimate)}."
    leaders = [
        f"{row.model} in {SYMBOLS[table.norm]} ({score(row.doi.estimate)})"
        for table in ranking.norms
        for row in table.rows
        if row.rank == 1 and not row.bracketed
    ]
    return f"The highest DOI: {', '.join(leaders)}." if leaders else "No model has a DOI."
