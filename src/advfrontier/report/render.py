"""Draw a `Table`: on a terminal, as plain text, Markdown, JSON, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from advfrontier.frontier.baseline import BaselineAOI
from advfrontier.frontier.confidence import Interval
from advfrontier.jsonable import jsonable
from advfrontier.report import numbers
from advfrontier.report.numbers import NONE
from advfrontier.table import Doubted, Share, Spread, Strong
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TextIO

    from advfrontier.table import Column, Format, Table

    Lines = tuple[str, ...]
    Rows = Sequence[Sequence[Lines]]
    Layout = tuple[Sequence[Lines], Rows]  # headings and rows

_PAGE = 100  # columns of plain text; where a table is wider, intervals go below their figures
_SHORT = 8  # letters of a heading that is not broken
_FOLDED = 12  # columns that a name needs at least
_FORMATTERS: dict[Format, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "norm": lambda value: SYMBOLS[value],
    "integer": lambda value: f"{value:.0f}",
    "count": numbers.whole,
    "number": lambda value: f"{value:g}",
    "percent": numbers.percent,
    "fine": lambda value: f"{100 * value:.2f}",
    "points": lambda value: f"{100 * value:+.1f}",
    "gain": lambda value: f"{100 * value:+.2f}",
    "size": numbers.size,
    "sizes": numbers.size,
    "score": numbers.score,
    "duration": numbers.duration,
    "bytes": numbers.memory,
}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "∞": r"$\infty$",
          "ℓ": r"$\ell$", "ε": r"$\varepsilon$", "±": r"$\pm$", "–": "--"}  # fmt: skip
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Print tables: drawn by rich where someone looks, plain text where it is piped or pasted."""
    target = stream or sys.stdout
    if not target.isatty():
        print("\n\n".join(map(as_text, tables)), file=target)
        return
    console = Console(file=target, highlight=False, markup=False)
    for table in tables:
        console.print(printable(table.title), style="bold")
        fitting = next((layout for layout in _layouts(table) if _least_width(table, layout) <= console.width), None)
        console.print(_listing(table) if fitting is None else _rich(table, fitting))
        console.print()
        for note in table.notes:
            console.print(printable(note), style="yellow" if note.startswith("flag") else None)


def as_text(table: Table) -> str:
    """Columns side by side, two spaces apart, headings underlined: for a pipe or a log."""
    *wider, narrowest = (_plain(table, layout) for layout in _layouts(table))
    drawn = next((text for text in wider if max(map(width, text.split("\n"))) <= _PAGE), narrowest)
    parts = [printable(table.title), drawn if table.rows else "", "\n".join(map(printable, table.notes))]
    return "\n\n".join(part for part in parts if part)


def as_markdown(table: Table) -> str:
    """A Markdown table, its title not included; notes as a list below."""
    lines = [
        [column.name for column in table.columns],
        [":--" if column.left else "--:" for column in table.columns],
        *([_bold(cell, column.format) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows),
    ]
    drawn = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    return drawn + ("\n\n" + "\n".join(f"- {note}" for note in table.notes) if table.notes else "")


def as_csv(table: Table) -> str:
    """Raw values, one line a row; an interval gives its estimate and both ends in columns of their own."""
    flat = [_flat(record) for record in table.records()]
    names = list(dict.fromkeys(name for row in flat for name in row)) or [column.label for column in table.columns]
    target = io.StringIO()
    writer = csv.DictWriter(target, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return target.getvalue()


def as_latex(table: Table) -> str:
    """A `tabular` with booktabs' rules."""
    sides = "".join("l" if column.left else "r" for column in table.columns)
    lines = [[_escape(column.name) for column in table.columns]]
    for row in table.rows:
        cells = []
        for cell, column in zip(row, table.columns, strict=True):
            text = _escape(cell_text(cell, column.format))
            cells.append(f"\\textbf{{{text}}}" if isinstance(cell, Strong) else text)
        lines.append(cells)
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    return "\n".join([f"\\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
                      r"\end{tabular}", *(f"% {note}" for note in table.notes)])  # fmt: skip


def as_json(table: Table) -> dict[str, Any]:
    """Title, rows by column name, notes: plain values, with null where nothing is known and "inf" for ∞."""
    return {"title": table.title, "rows": jsonable(table.records()), "notes": list(table.notes)}


def cell_text(value: Any, how: Format) -> str:
    """One cell as it is printed; a dash where nothing is known."""
    return " ".join(_cell(value, _FORMATTERS[how], named=how == "norm"))


def width(text: str) -> int:
    """Columns a text takes on a terminal; letters of East Asian scripts take two."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def printable(text: str) -> str:
    """Names without the control characters that could steer a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _cell(value: Any, show: Callable[[Any], str], *, named: bool = False) -> Lines:
    """One cell: its figure, and below or after it the interval, if there is one; `named`: its text means something."""
    bare = _bare(value)
    middle = _middle(bare)
    if middle is None or (isinstance(middle, float) and math.isnan(middle)):
        return (NONE,)
    if isinstance(bare, Spread):
        text = f"{show(bare.mean)} ± {show(bare.deviation).lstrip('+')}"
    elif isinstance(bare, Share):
        text = f"{bare.count}/{bare.of}"
    elif isinstance(bare, tuple):
        text = numbers.ranks(bare)
    else:
        text = middle if isinstance(middle, str) and not named else show(middle)
    if isinstance(value, Doubted):
        return (f"({text})",)
    if isinstance(bare, BaselineAOI):
        return (text, f"[{show(bare.low)}–{show(bare.high)}]")
    ends = numbers.ends(bare, show) if isinstance(bare, Interval) else ""
    return (text, f"({ends})") if ends else (text,)


def _middle(bare: Any) -> Any:
    """The figure of a cell that also has an interval or a bracket."""
    if isinstance(bare, Interval):
        return bare.estimate
    return bare.value if isinstance(bare, BaselineAOI) else bare


def _cells(table: Table, *, stacked: bool) -> list[list[Lines]]:
    """Every cell as lines to be printed: an interval after its figure, or below it."""
    columns = []
    for k, column in enumerate(table.columns):
        formatter = _formatter(column, [row[k] for row in table.rows])
        lines = [_cell(row[k], formatter, named=column.format == "norm") for row in table.rows]
        columns.append([tuple(map(printable, cell if stacked else (" ".join(cell),))) for cell in lines])
    return [list(row) for row in zip(*columns, strict=True)]


def _formatter(column: Column, cells: Sequence[Any]) -> Callable[[Any], str]:
    if column.format != "sizes":
        return _FORMATTERS[column.format]
    figures = [_middle(_bare(cell)) for cell in cells]
    decimals = numbers.column_decimals(figure for figure in figures if isinstance(figure, (int, float)))
    return lambda value: numbers.size(value, decimals)


def _layouts(table: Table) -> Iterator[Layout]:
    """Headings and rows, ever narrower: on one line each, headings on two, intervals below their figures as well."""
    rows = _cells(table, stacked=False)
    yield [(printable(column.name),) for column in table.columns], rows
    yield _folded(table, rows), rows
    stacked = _cells(table, stacked=True)
    yield _folded(table, stacked), stacked


def _folded(table: Table, rows: Rows) -> list[Lines]:
    """The headings, on two lines where they are wider than what stands below."""
    headings: list[Lines] = []
    for k, column in enumerate(table.columns):
        name = printable(column.name)
        widest = max((width(line) for row in rows for line in row[k]), default=0)
        spaces = [place for place, letter in enumerate(name) if letter == " "]
        if len(name) <= max(widest, _SHORT) or not spaces:
            headings.append((name,))
            continue
        split = min(spaces, key=lambda place: abs(len(name) - 1 - 2 * place))  # as even as can be
        headings.append((name[:split], name[split + 1 :]))
    return headings


def _plain(table: Table, layout: Layout) -> str:
    headings, rows = layout
    widths = _widths(layout)
    drawn = [*_block(headings, widths, table.columns), "  ".join("-" * wide for wide in widths)]
    for row in rows:
        drawn += _block(row, widths, table.columns)
    return "\n".join(line.rstrip() for line in drawn)


def _block(cells: Sequence[Lines], widths: Sequence[int], columns: Sequence[Column]) -> list[str]:
    """One row, as many lines high as its highest cell."""
    lines = []
    for k in range(max(len(cell) for cell in cells)):
        texts = [cell[k] if k < len(cell) else "" for cell in cells]
        spaces = [" " * (wide - width(text)) for text, wide in zip(texts, widths, strict=True)]
        sides = zip(texts, spaces, columns, strict=True)
        lines.append("  ".join(text + space if column.left else space + text for text, space, column in sides))
    return lines


def _rich(table: Table, layout: Layout) -> RichTable:
    """The same for a terminal. Cells are text, never markup: names may hold square brackets."""
    headings, rows = layout
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, heading in zip(table.columns, headings, strict=True):
        side: Literal["left", "right"] = "left" if column.left else "right"
        drawn.add_column(Text("\n".join(heading)), justify=side, no_wrap=not column.folds, overflow="fold")
    for cells, row in zip(table.rows, rows, strict=True):
        bold = ["bold" if isinstance(cell, Strong) else "" for cell in cells]
        drawn.add_row(*(Text("\n".join(lines), style=style) for lines, style in zip(row, bold, strict=True)))
    return drawn


def _least_width(table: Table, layout: Layout) -> int:
    """The columns of a terminal below which a figure would be cut short; names may be folded."""
    widths = _widths(layout)
    least = (min(wide, _FOLDED) if column.folds else wide for wide, column in zip(widths, table.columns, strict=True))
    return sum(least) + 2 * (len(widths) - 1)


def _widths(layout: Layout) -> list[int]:
    headings, rows = layout
    return [max(width(line) for row in (headings, *rows) for line in row[k]) for k in range(len(headings))]


def _listing(table: Table) -> Text:
    """One figure a line, for narrow terminals, below the name of its row; a row without one goes on with the last."""
    names = [printable(column.name) for column in table.columns]
    title = next((k for k, column in enumerate(table.columns) if column.folds), 0)
    longest = max(map(width, names))
    lines = []
    for row in _cells(table, stacked=False):
        lines += ["", *row[title]] if row[title][0] else []
        told = [(name, cell[0]) for k, (name, cell) in enumerate(zip(names, row, strict=True)) if k != title]
        lines += [f"  {name}{' ' * (longest - width(name))}  {text}" for name, text in told if text]
    return Text("\n".join(lines))


def _bold(cell: Any, how: Format) -> str:
    text = cell_text(cell, how)
    if how == "code" and text != NONE:
        text = f"`{text}`"
    return f"**{text}**" if isinstance(cell, Strong) else text


def _bare(cell: Any) -> Any:
    return cell.value if isinstance(cell, (Strong, Doubted)) else cell


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, cell in record.items():
        value = _bare(cell)
        if isinstance(value, (Interval, BaselineAOI)):
            flat |= {name: _middle(value), f"{name} low": value.low, f"{name} high": value.high}
        elif isinstance(value, Spread):
            flat |= {name: value.mean, f"{name} deviation": value.deviation}
        elif isinstance(value, Share):
            flat |= {name: value.count, f"{name} of": value.of}
        elif isinstance(value, tuple):
            flat |= {f"{name} low": value[0], f"{name} high": value[1]}
        else:
            flat[name] = value
        if isinstance(cell, Doubted):
            flat[f"{name} in doubt"] = 1
    return flat


def _escape(text: str) -> str:
    return re.sub(".", lambda letter: _LATEX.get(letter.group(), letter.group()), text)
