"""Rank tables: on the terminal, as CSV, and as a page to put on a web server."""

from __future__ import annotations

import csv
import io
import sys
from typing import TYPE_CHECKING, Any

from advfrontier.report.numbers import (
    SYMBOLS,
    column_decimals,
    percent,
    ranks,
    score,
    score_interval,
    size,
    tier,
    whole,
)
from advfrontier.report.page import write_page
from advfrontier.report.svg import curves_svg
from advfrontier.report.tables import Column, console_for, printable, rich_table, text_table

if TYPE_CHECKING:
    from os import PathLike
    from typing import TextIO

    from advfrontier.evaluation.ranking import NormRanking, OverallRow, Ranking, RankRow
    from advfrontier.frontier.confidence import Interval
    from advfrontier.report.tables import Cell

_OVERALL = "all"
_HEAD = (Column("rank"), Column("95 %"), Column("", right=False), Column("model", right=False, folds=True))
_COLUMNS = (
    "norm", "model", "rank", "bracketed", "rank_low", "rank_high", "doi", "doi_low", "doi_high", "aurec", "E",
    "clean_accuracy", "median_distance", "queries", "samples", "flags",
)  # fmt: skip


def print_ranking(ranking: Ranking, *, stream: TextIO | None = None) -> None:
    """Print the tables: drawn on a terminal, plain text elsewhere."""
    console = console_for(stream)
    if console is None:
        print(ranking_text(ranking), file=stream or sys.stdout)
        return
    for title, columns, rows in _tables(ranking):
        console.print(printable(title), style="bold")
        console.print(rich_table(columns, rows))
        console.print()
    for line in _notes(ranking):
        console.print(printable(line))


def ranking_text(ranking: Ranking) -> str:
    """The same as plain text."""
    blocks = ["\n".join((printable(title), "", text_table(columns, rows))) for title, columns, rows in _tables(ranking)]
    return "\n\n".join([*blocks, "\n".join(printable(line) for line in _notes(ranking))])


def ranking_csv(ranking: Ranking) -> str:
    """A line per model and norm, and with norm `all` a line per model over the norms all models share."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for table in ranking.norms:
        for row in table.rows:
            writer.writerow(
                [
                    table.norm, row.model, row.rank, int(row.bracketed), *row.ranks, row.doi.estimate, row.doi.low,
                    row.doi.high, row.aurec, table.E, row.clean_accuracy, row.median, table.queries, table.samples,
                    "; ".join(row.flags),
                ]
            )  # fmt: skip
    for overall in ranking.overall:
        mean, spread = overall.mean_doi, overall.ranks or ("", "")
        ends = (mean.low, mean.high) if overall.ranks else ("", "")
        writer.writerow(
            [_OVERALL, overall.model, overall.rank, int(overall.bracketed), *spread, mean.estimate, *ends, *[""] * 7]
        )
    return content.getvalue()


def write_leaderboard(path: str | PathLike[str], ranking: Ranking, *, title: str = "Robustness leaderboard") -> str:
    """Write the page: sortable tables, and beside each the curves, of which the one pointed at stands out."""
    return write_page(
        path,
        "leaderboard.html.j2",
        title=title,
        ranking=ranking,
        shared=[SYMBOLS[norm] for norm in ranking.shared],
        verdict=_verdict(ranking),
        charts={table.norm: _chart(table) for table in ranking.norms},
        decimals={table.norm: _decimals(table) for table in ranking.norms},
    )


def _chart(table: NormRanking) -> dict[str, Any]:
    curves = [(row.model, row.curve) for row in table.rows]
    trusted = [row.curve for row in table.rows if not row.bracketed]
    return curves_svg(curves, frontier=table.frontier, trusted=trusted, axis=f"ε in {SYMBOLS[table.norm]}")


def _decimals(table: NormRanking) -> tuple[int, int]:
    """Of the areas and of the medians, so that their columns line up."""
    return column_decimals(row.aurec for row in table.rows), column_decimals(row.median for row in table.rows)


def _verdict(ranking: Ranking) -> str:
    if ranking.overall:
        best = next(row for row in ranking.overall if not row.bracketed) if _any_trusted(ranking) else None
        if best:
            where = ", ".join(SYMBOLS[norm] for norm in ranking.shared)
            return f"{best.model} has the highest mean DOI over {where}: {score(best.mean_doi.estimate)}."
    leaders = [
        f"{row.model} in {SYMBOLS[table.norm]} ({score(row.doi.estimate)})"
        for table in ranking.norms
        for row in table.rows
        if row.rank == 1 and not row.bracketed
    ]
    return f"The highest DOI: {', '.join(leaders)}."


def _any_trusted(ranking: Ranking) -> bool:
    return any(not row.bracketed for row in ranking.overall)


def _tables(ranking: Ranking) -> list[tuple[str, list[Column], list[list[Cell]]]]:
    tables: list[tuple[str, list[Column], list[list[Cell]]]] = []
    if ranking.overall:
        columns = [*_HEAD, Column("mean DOI"), Column("95 %"), *(Column(f"DOI\n{norm}") for norm in ranking.shared)]
        rows: list[list[Cell]] = [
            [*_start(row, row.mean_doi), *(score(row.doi[norm]) for norm in ranking.shared)] for row in ranking.overall
        ]
        tables.append((f"All norms: mean DOI over {', '.join(ranking.shared)}", columns, rows))
    for table in ranking.norms:
        areas, medians = _decimals(table)
        area = f"AUREC\nup to {size(table.E)}"
        columns = [*_HEAD, *(Column(heading) for heading in ("DOI", "95 %", area, "clean %", "median"))]
        rows = [
            [
                *_start(row, row.doi),
                size(row.aurec, areas),
                percent(row.clean_accuracy),
                size(row.median, medians),
            ]
            for row in table.rows
        ]
        title = f"{table.norm} on {table.data}: {whole(table.samples)} samples, {tier(table.queries)} queries each"
        tables.append((title, columns, rows))
    return tables


def _start(row: RankRow | OverallRow, doi: Interval) -> tuple[Cell, ...]:
    """What every row begins with."""
    given = "*" if row.given else ""
    return row.position, ranks(row.ranks), given, row.model, score(doi.estimate), score_interval(doi)


def _notes(ranking: Ranking) -> list[str]:
    notes = ["* the records asked about; (…) distances that cannot be trusted: such a model takes nobody's rank"]
    if len(ranking.norms) > 1 and not ranking.overall:
        notes.append("no table over all norms: fewer than two norms hold all models")
    for table in ranking.norms:
        notes += [f"flag in {table.norm}: {row.model}: {flag}" for row in table.rows for flag in row.flags]
    return notes
