"""Pages from templates: the report of a model, two models compared, and the leaderboard.

A page is one file that fetches nothing. Charts are drawn by `plots`, samples are bitmaps.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from os import PathLike
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.evaluation.samples import GalleryItem
from advfrontier.evaluation.summary import NormSummary, Win
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.ranking import Ranking, RankRow, mean_rows
from advfrontier.pool import tier_label
from advfrontier.record.folder import write_file
from advfrontier.report import numbers, plots, words
from advfrontier.report.numbers import norm_text, score
from advfrontier.report.render import as_cells, clean
from advfrontier.report.summary import NO_RADII, comparison_notes, has_rank, in_order, row_flags
from advfrontier.table import Table

MARK = b'<meta name="generator" content="advfrontier">'  # by which own pages are known
PICTURE_BYTES = 1_000_000  # of all samples of a report together
_SHOWN_WINS = 8
_REST = "other runs"
_RAISED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RANGE = r"[\d.]+–[\d.]*\d"  # such as 2–4.5
_BITMAP = struct.Struct("<2sIHHI IiiHHIIiiII")  # file header and BITMAPINFOHEADER


def write_report(path: str | PathLike[str], summaries: Sequence[NormSummary]) -> str:
    """Write the report of the first model in all its norms, and return its path or address.

    Args:
        path: Output file, such as `report.html`: a path or an address.
        summaries: Summaries of the model, and of other models that are drawn beside it.
    """
    if not summaries:
        raise FrontierError(
            "nothing to report: expected at least one summary, such as summarise(evaluation, …)"
        )
    model = summaries[0].model
    own = [summary for summary in summaries if summary.model == model]
    beside = [summary for summary in summaries if summary.model != model]
    own, rows = in_order(own), in_order([*own, *beside])
    _check_once(rows)
    names = words.models_of([*own, *beside])
    curves, queries, wins = [], [], []
    purposes: dict[str, None] = {}
    commands: dict[str, None] = {}
    for summary in own:
        group = [other for other in rows if other.norm == summary.norm]
        curves.append(plots.curve_chart(group, names))
        queries.append(plots.queries_chart(group, names))
        wins.append((summary.norm, _wins(group)))
        purposes |= dict.fromkeys(summary.counts)
        commands |= dict.fromkeys(summary.commands)
    return write_page(
        path,
        "report.html.j2",
        title=f"Robustness of {model}",
        model=model,
        names=names,
        own=own,
        rows=rows,
        curves=curves,
        queries=queries,
        wins=wins,
        standings=_standings(own),
        ranked=any(map(has_rank, rows)),
        no_radii=NO_RADII,
        purposes=list(purposes),
        gallery=_gallery(own),
        commands=list(commands),
    )


def _check_once(summaries: Iterable[NormSummary]) -> None:
    """Raise if a model comes twice in a norm."""
    known: set[tuple[str, str]] = set()
    for summary in summaries:
        if (summary.model, summary.norm) in known:
            raise FrontierError(
                f"two summaries of {summary.model} in {summary.norm}: expected one per model and "
                "norm; leave one out"
            )
        known.add((summary.model, summary.norm))


@dataclass(frozen=True)
class Standings:
    """DOI and rank of every model in every norm that has a rank table.

    Args:
        norms: Names of these norms.
        rows: Per model its mean over the norms, and its row in each norm by name.
        data: Data set of the samples.
        queries: Budgets at which the tables were read.
        referenced: Whether reference models are among the models.
    """

    norms: list[str]
    rows: list[tuple[RankRow, dict[str, RankRow]]]
    data: str
    queries: list[int]
    referenced: bool


def _standings(own: Sequence[NormSummary]) -> Standings | None:
    """Return the rank tables of all norms side by side, or None if there is none."""
    tables, referenced = [], False
    for summary in own:
        if summary.standing:
            tables.append(summary.standing.table)
            referenced = referenced or summary.standing.referenced
    if not tables:
        return None
    rows = []
    for mean in mean_rows(tables):
        cells = {}
        for table in tables:
            for row in table.rows:
                if row.model == mean.model:
                    cells[table.norm] = row
        rows.append((mean, cells))
    return Standings(
        norms=[table.norm for table in tables],
        rows=rows,
        data=tables[0].data,
        queries=sorted({table.queries for table in tables}),
        referenced=referenced,
    )


def _wins(summaries: Sequence[NormSummary]) -> list[tuple[str, list[Win | None]]]:
    """Return the runs that found the most points of the first model, with all models beside it.

    Runs that are not listed are summed in the last row.
    """
    listed: dict[str, list[Win | None]] = {}
    for summary in summaries:
        shown = 2 if listed else _SHOWN_WINS  # few of a model beside, which others list already
        for win in summary.wins[:shown]:
            listed.setdefault(win.run, [])
    rest: list[Win | None] = []
    for summary in summaries:
        for cells in listed.values():
            cells.append(None)
        others = Win(_REST, 0, 0.0)
        for win in summary.wins:
            if win.run in listed:
                listed[win.run][-1] = win
            else:
                others = Win(_REST, others.samples + win.samples, others.share + win.share)
        rest.append(others if others.samples else None)
    if any(rest):
        listed[_REST] = rest
    return list(listed.items())


def _gallery(own: Sequence[NormSummary]) -> list[dict[str, GalleryItem]]:
    """Return, sample by sample, what each norm did to it: as many as `PICTURE_BYTES` allow."""
    samples: dict[str, dict[str, GalleryItem]] = {}
    for summary in own:
        for item in summary.gallery:
            samples.setdefault(item.sample, {})[summary.norm] = item
    shown, spent = [], 0
    for norms in samples.values():
        for index, item in enumerate(norms.values()):
            pictures = (0 if index else 1) + (2 if item.magnification else 0)
            spent += pictures * len(bitmap_uri(item.original))
        if spent > PICTURE_BYTES:
            break
        shown.append(norms)
    return shown


def write_comparison(
    path: str | PathLike[str], compared: Sequence[tuple[Comparison, NormSummary, NormSummary]]
) -> str:
    """Write a page with both curves and their difference in every norm; return where.

    Args:
        path: Output file, such as `comparison.html`: a path or an address.
        compared: Per norm a comparison, and the summaries of its two models in its order.
    """
    if not compared:
        raise FrontierError(
            "nothing to compare: expected at least one comparison with the summaries of its two "
            "models"
        )
    names = compared[0][0].names
    entries, charts = [], []
    for comparison, *summaries in compared:
        first, second = _named(comparison, *summaries)
        entries.append((comparison, first, second))
        charts.append(plots.curve_chart([first, second], names))
        charts.append(plots.difference_chart(first, second))
    return write_page(
        path,
        "comparison.html.j2",
        title=f"{names[0]} and {names[1]}",
        names=names,
        entries=entries,
        charts=charts,
        notes=comparison_notes,
    )


def _named(
    comparison: Comparison, first: NormSummary, second: NormSummary
) -> tuple[NormSummary, NormSummary]:
    """Return the summaries under the names that tell two records of one model apart."""
    if first.norm != second.norm:
        raise FrontierError(
            f"{first.model} in {first.norm}, {second.model} in {second.norm}: expected the same "
            "norm"
        )
    one, other = comparison.names
    return replace(first, model=one, standing=None), replace(second, model=other, standing=None)


def write_leaderboard(
    path: str | PathLike[str],
    ranking: Ranking,
    *,
    title: str = "Robustness leaderboard",
    highlight: Collection[str] | None = None,
) -> str:
    """Write the leaderboard: sortable tables with the curves beside them; return where.

    Args:
        path: Output file, such as `board.html`: a path or an address.
        ranking: Ranks of the models in each norm and over all norms.
        title: Heading of the page.
        highlight: Models that stand out; by default the models asked about, where they stand among
            reference models.
    """
    given: dict[str, bool] = {}  # model: whether it is one of those asked about
    for row in ranking.overall:
        given[row.model] = row.given
    boards = []
    for table in ranking.norms:
        for row in table.rows:
            given[row.model] = row.given
    names = list(given)
    for table in ranking.norms:
        boards.append((table, plots.board_chart(table, names)))
    if highlight is None:
        highlight = set() if all(given.values()) else {name for name in names if given[name]}
    for model in highlight:
        if model not in names:
            raise FrontierError(
                f"no model {model} to highlight: expected some of {', '.join(names)}"
            )
    return write_page(
        path,
        "leaderboard.html.j2",
        title=title,
        ranking=ranking,
        names=names,
        verdict=_verdict(ranking),
        boards=boards,
        row_flags=row_flags,
        highlight=highlight,
        decimals=numbers.column_decimals,
    )


def _verdict(ranking: Ranking) -> str:
    """Return who leads: over all norms, or norm by norm where no norms are shared."""
    for row in ranking.overall:
        if row.rank == 1 and not row.bracketed:
            where = ", ".join(map(norm_text, ranking.shared))
            return f"{row.model} has the highest mean DOI over {where}: {score(row.doi.estimate)}."
    leaders = []
    for table in ranking.norms:
        for row in table.rows:
            if row.rank == 1 and not row.bracketed:
                doi = score(row.doi.estimate)
                leaders.append(f"{row.model} in {norm_text(table.norm)} ({doi})")
    return f"The highest DOI: {', '.join(leaders)}." if leaders else "No model has a DOI."


def write_page(path: str | PathLike[str], template: str, **content: Any) -> str:
    """Fill a template and write it, with the folders on its way; return its path or address.

    Args:
        path: Output file: a path or an address.
        template: Name of the template.
        content: Variables of the template, by name.
    """
    page = environment().get_template(template).render(**content)
    return write_file(path, page.encode(), mark=MARK)


def as_html(table: Table) -> Markup:
    """Return a table element with title and notes, for a notebook.

    Args:
        table: Table, which may hold texts of users.
    """
    template = environment().get_template("table.html.j2")
    return Markup(template.render(table=table, rows=as_cells(table)))  # noqa: S704 - it escapes


def chart_html(chart: plots.Chart) -> Markup:
    """Return a chart with its style sheet, for a notebook: nothing in it needs a script.

    Args:
        chart: Chart to draw.
    """
    macros: Any = environment().get_template("chart.html.j2").module
    return Markup('<style>{}</style><div style="max-width: 560px">{}</div>').format(
        asset("chart.css"), macros.chart(chart)
    )


@cache
def environment() -> Environment:
    """Return the templates. Every text is cleaned and escaped where it is put into a page."""
    pages = Environment(
        loader=PackageLoader("advfrontier.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )
    pages.globals |= {
        "asset": asset,
        "words": words,
        "look": plots.look,
        "has_rank": has_rank,
        "levels_of": numbers.LEVELS,
    }
    pages.filters |= {
        "whole": numbers.whole,
        "ranks": numbers.ranks,
        "duration": numbers.duration,
        "percent": numbers.percent,
        "size": numbers.size,
        "score": numbers.score,
        "levels": numbers.levels,
        "percent_interval": partial(numbers.ends, show=numbers.percent),
        "size_interval": partial(numbers.ends, show=numbers.size),
        "score_interval": partial(numbers.ends, show=numbers.score),
        "tier": tier_label,
        "norm": norm_text,
        "typeset": typeset,
        "picture": bitmap_uri,
        "sort_key": lambda value: value if numbers.known(value) else -1,  # unknown sorts last
    }
    return pages


def _cleaned(value: Any) -> Any:
    """Clean what a template prints, except markup of our own."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def typeset(text: str) -> Markup:
    """Return a text as markup: the index of a norm is set low, and figures stay in one line.

    No line ends before a % or within a range such as 2–4.

    Args:
        text: Plain text.
    """
    escaped = str(escape(clean(text)))
    marked = re.sub("ℓ([₀-₉∞])", lambda norm: f"ℓ<sub>{norm[1].translate(_RAISED)}</sub>", escaped)
    joined = re.sub(_RANGE, r'<span class="whole">\g<0></span>', marked.replace(" %", "\u00a0%"))
    return Markup(joined)  # noqa: S704 - escaped just above


def asset(name: str) -> Markup:
    """Return a style sheet or script of this package.

    Args:
        name: File name, such as `page.css`.
    """
    text = files("advfrontier.report").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file


def bitmap(image: NDArray[np.uint8]) -> bytes:
    """Return an image as a BMP file of 24 bits per pixel.

    Args:
        image: Array (height, width, 1 or 3) of uint8, grey or RGB.
    """
    height, width, _ = image.shape
    stride = -(-3 * width // 4) * 4  # rows are filled to a multiple of four bytes
    rows = np.zeros((height, stride), dtype=np.uint8)
    colours = np.broadcast_to(image, (height, width, 3))
    rows[:, : 3 * width] = colours[::-1, :, ::-1].reshape(height, -1)  # bottom up, blue first
    offset, length = _BITMAP.size, rows.size
    header = _BITMAP.pack(
        b"BM", offset + length, 0, 0, offset, 40, width, height, 1, 24, 0, length, 0, 0, 0, 0
    )
    return header + rows.tobytes()


def bitmap_uri(image: NDArray[np.uint8]) -> str:
    """Return a bitmap as an address that needs no file.

    Args:
        image: (height, width, 1 or 3) uint8, grey or RGB.
    """
    return "data:image/bmp;base64," + base64.b64encode(bitmap(image)).decode("ascii")
