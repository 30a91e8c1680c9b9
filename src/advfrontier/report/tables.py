"""Tables for the terminal: drawn by rich where someone looks, plain aligned text where it is piped or pasted."""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO


@dataclass(frozen=True)
class Column:
    """A heading, the side its cells stand on, and whether they may be folded where it is narrow: names, not figures."""

    heading: str
    right: bool = True
    folds: bool = False


Cell = str | tuple[str, ...]  # one line, or several


def text_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns side by side, two spaces apart, headings underlined."""
    lines = [[_lines(cell) for cell in row] for row in rows]
    headings = [_lines(column.heading) for column in columns]
    widths = [max(width(line) for row in (headings, *lines) for line in (row[i] or ("",))) for i in range(len(columns))]
    drawn = [*_block(headings, widths, columns), "  ".join("-" * width for width in widths)]
    for row in lines:
        drawn += _block(row, widths, columns)
    return "\n".join(line.rstrip() for line in drawn)


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table:
    """The same for a terminal. Cells are text, never markup: names may hold square brackets."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.heading), justify=side, no_wrap=not column.folds, overflow="fold")
    for row in rows:
        table.add_row(*(Text("\n".join(_lines(cell))) for cell in row))
    return table


def fits(table: Table, console: Console) -> bool:
    """Whether a table can be drawn without cutting a figure short."""
    return console.measure(table, options=console.options.update(max_width=10_000)).minimum <= console.width


def console_for(stream: TextIO | None) -> Console | None:
    """A console if the stream is a terminal."""
    stream = stream or sys.stdout
    return Console(file=stream, highlight=False, markup=False) if stream.isatty() else None


def width(text: str) -> int:
    """Columns a text takes on a terminal; letters of East Asian scripts take two."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def printable(text: str) -> str:
    """Names without the control characters that could steer a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _lines(cell: Cell) -> tuple[str, ...]:
    found = (cell,) if isinstance(cell, str) else cell
    return tuple(printable(line) for part in found for line in part.split("\n"))


def _block(cells: Sequence[tuple[str, ...]], widths: Sequence[int], columns: Sequence[Column]) -> list[str]:
    height = max(len(cell) for cell in cells)
    return [
        "  ".join(
            _padded(cell[k] if k < len(cell) else "", wide, right=column.right)
            for cell, wide, column in zip(cells, widths, columns, strict=True)
        )
        for k in range(height)
    ]


def _padded(text: str, wide: int, *, right: bool) -> str:
    space = " " * (wide - width(text))
    return space + text if right else text + space
