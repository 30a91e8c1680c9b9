"""Pages about models from templates: the report of one in every norm, two side by side, and many ranked.

HTML is one file each, with everything inside and nothing fetched; its pictures are PNG made with nothing but zlib.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from os import PathLike
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.evaluation.samples import GalleryItem
from advfrontier.evaluation.summary import NormSummary, most_wins
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.ranking import Ranking, RankTable, mean_rows
from advfrontier.pool import tier_label
from advfrontier.record.folder import write_file
from advfrontier.report import charts, numbers, words
from advfrontier.report.numbers import score, size
from advfrontier.report.render import as_cells, as_markdown, printable
from advfrontier.report.summary import NO_RADII, in_order, row_flags
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

MARK = b'<meta name="generator" content="advfrontier">'  # by which pages of our own are known
PNG_MARK = b"Software\0advfrontier"  # and pictures
_GREY, _RGB = 0, 2
_SHOWN_WINS = 8
_SHOWN_CROSSINGS = 6  # there may be hundreds where two curves run together


def write_report(path: str | PathLike[str], summaries: Sequence[NormSummary]) -> str:
    """Write one file that opens offline: the first model in all of its norms, the other models drawn beside it."""
    if not summaries:
        raise FrontierError(
            "nothing to report: expected at least one summary, such as summarise(evaluation, …)"
        )
    model = summaries[0].model
    own = in_order(s for s in summaries if s.model == model)
    beside = in_order(s for s in summaries if s.model != model)
    named = [(summary.model, summary.norm) for summary in own + beside]
    if twice := [" in ".join(pair) for pair in named if named.count(pair) > 1]:
        raise FrontierError(
            f"two summaries of {twice[0]}: expected one per model and norm; leave one out"
        )
    names = list(dict.fromkeys(s.model for s in beside))
    norms = [charts.norm_data(s, [o for o in beside if o.norm == s.norm], names=names) for s in own]
    return write_page(
        path,
        "report.html.j2",
        title=f"Robustness of {model}",
        model=model,
        first=own[0],
        own=own,
        rows=in_order([*own, *beside]),
        beside=names,
        standings=_standings(own),
        radii=any(s.robust for s in (*own, *beside)),
        no_radii=NO_RADII,
        certified=any(s.certified for s in (*own, *beside)),
        wins={s.norm: most_wins(s, _SHOWN_WINS) for s in own},
        purposes=list(dict.fromkeys(purpose for s in own for purpose in s.counts)),
        gallery=_gallery(own),
        commands=list(dict.fromkeys(command for s in own for command in s.commands)),
        data=script_json({"model": model, "norms": norms}),
    )


def _standings(own: Sequence[NormSummary]) -> dict[str, Any] | None:
    """The rank tables of all norms side by side: a row per model."""
    standing = [s.standing for s in own if s.standing]
    tables = [each.table for each in standing]
    if not tables:
        return None
    cells = {table.norm: {row.model: row for row in table.rows} for table in tables}
    return {
        "norms": list(cells),
        "rows": [(row, {norm: rows[row.model] for norm, rows in cells.items() if row.model in rows})
                 for row in mean_rows(tables)],
        "dataset": tables[0].data,
        "queries": sorted({table.queries for table in tables}),
        "referenced": any(each.referenced for each in standing),
    }  # fmt: skip


def _gallery(own: Sequence[NormSummary]) -> list[dict[str, GalleryItem]]:
    """Sample by sample what each norm did to it."""
    samples: dict[str, dict[str, GalleryItem]] = {}
    for norm, item in ((summary.norm, item) for summary in own for item in summary.gallery):
        samples.setdefault(item.sample, {})[norm] = item
    return list(samples.values())


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
        for name, summary, area in zip(
            comparison.names, (first, second), comparison.aurec, strict=True
        )
    ]
    rows.append(("difference", "", comparison.difference, *("" for _ in labels)))
    return Table(
        f"{first.norm}: {comparison.verdict}",
        columns,
        tuple(rows),
        tuple(comparison_notes(comparison)),
    )


def write_comparison(
    path: str | PathLike[str], compared: Sequence[tuple[Comparison, NormSummary, NormSummary]]
) -> str:
    """Write a page with both curves in every norm, their bands, and by how much one leads where.

    Each entry is a comparison with the summaries of its two models, in its order; one entry per norm.
    """
    if not compared:
        raise FrontierError(
            "nothing to compare: expected at least one comparison with the summaries of its two models"
        )
    entries = [(comparison, *_named(comparison, *summaries)) for comparison, *summaries in compared]
    norms = [
        {**charts.norm_data(first, [second]), "difference": _difference(first, second)}
        for _, first, second in entries
    ]
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


def _named(
    comparison: Comparison, first: NormSummary, second: NormSummary
) -> tuple[NormSummary, NormSummary]:
    """The summaries under the comparison's names, which tell two records of one model apart; without their pools."""
    if first.norm != second.norm:
        raise FrontierError(
            f"{first.model} in {first.norm}, {second.model} in {second.norm}: expected the same norm"
        )
    both = zip((first, second), comparison.names, strict=True)
    one, other = (replace(summary, model=name, standing=None) for summary, name in both)
    return one, other


def _difference(first: NormSummary, second: NormSummary) -> dict[str, Any]:
    """The first curve less the second, as steps."""
    steps, gaps = first.curve.less(second.curve)
    names = {"first": first.model, "second": second.model}
    return {
        "x": [charts.short(ε) for ε in steps.tolist()],
        "y": [round(gap, 6) for gap in gaps.tolist()],
        **names,
    }


def comparison_notes(comparison: Comparison) -> list[str]:
    """What to know beside the verdict, which says what to run next: where the curves cross, and flags."""
    notes = []
    if comparison.crossings:
        shown = ", ".join(size(ε) for ε in comparison.crossings[:_SHOWN_CROSSINGS])
        more = len(comparison.crossings) - _SHOWN_CROSSINGS
        notes.append(f"the curves cross at ε = {shown}{f' and {more} more' if more > 0 else ''}")
    return notes + [f"flag: {flag}" for flag in comparison.flags]


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
        highlight = (
            {row.model for row in rows if row.given} if not all(row.given for row in rows) else ()
        )
    if unknown := [model for model in highlight if model not in names]:
        raise FrontierError(
            f"no model {unknown[0]} to highlight: expected some of {', '.join(names)}"
        )

    def chart_of(table: RankTable) -> dict[str, Any]:
        doubted = {row.model for row in table.rows if row.bracketed}
        curves = {row.model: table.curves[row.model] for row in table.rows}
        return charts.svg_chart(
            table.norm, curves, frontier=table.frontier, doubted=doubted, names=names
        )

    return write_page(
        path,
        "leaderboard.html.j2",
        title=title,
        ranking=ranking,
        verdict=_verdict(ranking),
        told=row_flags,
        chart_of=chart_of,
        highlight=highlight,
        decimals=numbers.column_decimals,  # of the areas and of the medians, so that their columns line up
    )


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


def write_page(path: str | PathLike[str], template: str, **content: Any) -> str:
    """Fill a template and write it to a path or an address; folders on the way are made."""
    return write_file(
        path, environment().get_template(template).render(**content).encode(), mark=MARK
    )


def as_html(table: Table) -> Markup:
    """A table element with its title and notes, for a notebook."""
    drawn = environment().get_template("table.html.j2").render(table=table, rows=as_cells(table))
    return Markup(drawn)  # noqa: S704 - the template escapes


def script_json(content: Any) -> Markup:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704 - escaped just above, for where it stands


def asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is."""
    text = files("advfrontier.report").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file


@cache
def plotly() -> Markup:
    """plotly.js as the Python package carries it."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # noqa: PLC0415 - only reports need it

    return Markup(get_plotlyjs())  # noqa: S704 - a library made to stand in a script element


@cache
def environment() -> Environment:
    """The templates, and what they may call."""
    found = Environment(
        loader=PackageLoader("advfrontier.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(asset=asset, plotly=plotly, symbols=SYMBOLS, words=words, line=charts.line)
    found.filters |= {
        show.__name__: show for show in (numbers.whole, numbers.ranks, numbers.duration)
    }
    for show in (numbers.percent, numbers.size, numbers.score):
        found.filters[show.__name__] = show
        found.filters[f"{show.__name__}_interval"] = partial(numbers.ends, show=show)
    found.filters |= {
        "tier": tier_label,
        "picture": data_uri,
        "markdown": as_markdown,
        "printable": printable,
        "key": lambda value: value if numbers.known(value) else -1,  # what is not known sorts last
    }
    return found


def png(image: NDArray[np.uint8]) -> bytes:
    """An array (height, width, 1 or 3) of uint8 as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if channels == 1 else _RGB, 0, 0, 0)
    rows = np.ascontiguousarray(image).reshape(height, width * channels)
    unfiltered = np.pad(
        rows, ((0, 0), (1, 0))
    ).tobytes()  # each row begins with its filter: 0, none
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"tEXt", PNG_MARK)
        + _chunk(b"IDAT", zlib.compress(unfiltered, 9))
        + _chunk(b"IEND", b"")
    )


def data_uri(image: NDArray[np.uint8]) -> str:
    """The PNG as an address that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
