"""Tables on a terminal, as plain text, Markdown, CSV or LaTeX, and cleaned text for all of them.

Names of models, classes and files come from users: nothing here, and nothing on a page, prints
them before `clean` has removed what could steer a terminal or reverse the order of letters.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from advfrontier.errors import FrontierError, printable
from advfrontier.frontier.confidence import Interval
from advfrontier.report import numbers
from advfrontier.report.numbers import NONE
from advfrontier.table import Column, Doubted, Format, Table

Row = Sequence[str]  # one text per column, which may have several lines


class Layout(NamedTuple):
    """Headings and rows as text, ready to be drawn.

    Args:
        headings: One text per column.
        rows: One text per column for each row.
    """

    headings: Row
    rows: Sequence[Row]


_PAGE = 100  # columns of plain text; in wider tables intervals go below their figures
_SHORT = 8  # letters of a heading that is not broken
_FOLDED = 12  # columns that a name needs at least
_FORMATTERS: dict[Format, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "norm": str,
    "integer": lambda value: f"{value:.0f}",
    "count": numbers.whole,
    "number": lambda value: f"{value:g}",
    "percent": numbers.percent,
    "fine": lambda value: f"{100 * value:.2f}",
    "size": numbers.size,
    "sizes": numbers.size,
    "score": numbers.score,
    "duration": numbers.duration,
    "bytes": numbers.memory,
}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "∞": r"$\infty$",
    "ℓ": r"$\ell$",
    "ε": r"$\varepsilon$",
    "±": r"$\pm$",
    "–": "--",
}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
_LATEX |= {low: f"$_{high}$" for high, low in enumerate("₀₁₂₃₄₅₆₇₈₉")}


def clean(text: str) -> str:
    """Return a text of several lines without characters that steer a terminal or turn letters.

    Args:
        text: Text that may come from a file or a user. Line breaks are kept.
    """
    return "\n".join(map(printable, text.split("\n")))


def as_cells(table: Table, *, between: str = " ") -> list[Row]:
    """Return every cell of a table as it is printed.

    Args:
        table: Table whose values are formatted.
        between: Text between a figure and its interval.
    """
    shows = []
    for index, column in enumerate(table.columns):
        shows.append(_formatter(column, [row[index] for row in table.rows]))
    rows: list[Row] = []
    for row in table.rows:
        rows.append([between.join(_cell(*pair)) for pair in zip(row, shows, strict=True)])
    return rows


def _formatter(column: Column, cells: Sequence[Any]) -> Callable[[Any], str]:
    """Return how figures of a column are printed; text among figures is cleaned."""
    show = _FORMATTERS[column.format]
    if column.format == "sizes":
        figures = []
        for cell in cells:
            figure = _figure(cell)
            if isinstance(figure, (int, float)):
                figures.append(figure)
        show = partial(numbers.size, decimals=numbers.column_decimals(figures))

    def shown(value: Any) -> str:
        if not isinstance(value, str):
            return show(value)
        return printable(_norm(value) if column.format == "norm" else value)

    return shown


def _norm(text: str) -> str:
    """Return the symbol of a norm; other text in a column of norms is printed as it is."""
    try:
        return numbers.norm_text(text)
    except FrontierError:
        return text


def _cell(cell: Any, show: Callable[[Any], str]) -> tuple[str, ...]:
    """Return the figure of a cell and, if there is one, its interval."""
    figure = _figure(cell)
    if figure is None or (isinstance(figure, float) and not numbers.known(figure)):
        return (NONE,)
    text = show(figure)
    if isinstance(cell, Doubted):
        return (f"({text})",)
    if isinstance(cell, Interval) and numbers.ends(cell, show):
        return (text, f"({numbers.ends(cell, show)})")
    return (text,)


def _figure(cell: Any) -> Any:
    """Return the figure of a cell, without its interval or its doubt."""
    value = cell.value if isinstance(cell, Doubted) else cell
    return value.estimate if isinstance(value, Interval) else value


# Terminals and plain text


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Print tables: drawn on a terminal, as plain text where output is piped.

    Args:
        tables: The tables, from top to bottom.
        stream: Stream to print to; by default standard output.
    """
    target = stream or sys.stdout
    if not target.isatty():
        print("\n\n".join(map(as_text, tables)), file=target)
        return
    console = Console(file=target, highlight=False, markup=False)
    for table in tables:
        console.print(printable(table.title), style="bold")
        console.print(_for_width(table, console.width))
        console.print()
        for note in table.notes:
            console.print(printable(note), style="yellow" if note.startswith("flag") else None)


def _for_width(table: Table, width: int) -> RichTable | Text:
    """Return the widest layout that fits, or a list of figures where none does."""
    for layout in _layouts(table):
        if _width(table, layout, folded=_FOLDED) <= width:
            return _drawn(table, layout, rule="─")
    return _listing(table)


def as_text(table: Table) -> str:
    """Return a table as text for a pipe or a log: columns side by side, headings underlined.

    Args:
        table: Table to print.
    """
    parts = [printable(table.title)]
    if table.rows:
        layouts = list(_layouts(table))
        layout = layouts[-1]
        for wider in layouts[:-1]:
            if _width(table, wider) <= _PAGE:
                layout = wider
                break
        target = io.StringIO()
        console = Console(file=target, width=_width(table, layout), color_system=None)
        console.print(_drawn(table, layout, rule="-"))
        parts.append("\n".join(line.rstrip() for line in target.getvalue().splitlines()))
    parts.append("\n".join(map(printable, table.notes)))
    return "\n\n".join(filter(None, parts))


def _layouts(table: Table) -> Iterator[Layout]:
    """Yield ever narrower layouts.

    Headings on one line; headings on two lines; intervals below their figures as well.
    """
    rows = as_cells(table)
    yield Layout(_headings(table), rows)
    yield Layout(_folded(table, rows), rows)
    stacked = as_cells(table, between="\n")
    yield Layout(_folded(table, stacked), stacked)


def _headings(table: Table) -> list[str]:
    """Return the names of the columns as they are printed."""
    return [printable(column.name) for column in table.columns]


def _folded(table: Table, rows: Sequence[Row]) -> Row:
    """Return the headings, on two lines where they are wider than the cells below them."""
    headings = []
    for index, name in enumerate(_headings(table)):
        widest = max([_wide(row[index]) for row in rows], default=0)
        spaces = [place for place, letter in enumerate(name) if letter == " "]
        if spaces and len(name) > max(_SHORT, widest):
            middle = (len(name) - 1) / 2
            split = min(spaces, key=lambda place: abs(place - middle))
            headings.append(f"{name[:split]}\n{name[split + 1 :]}")
        else:
            headings.append(name)
    return headings


def _wide(text: str) -> int:
    """Return the columns that the widest line of a cell takes."""
    return max(map(cell_len, text.split("\n")))


def _width(table: Table, layout: Layout, *, folded: int | None = None) -> int:
    """Return the columns that a table takes."""
    total = 0
    for index, column in enumerate(table.columns):
        texts = [layout.headings[index], *(row[index] for row in layout.rows)]
        widest = max(1, *map(_wide, texts))  # a rule takes one at least
        if folded is not None and column.folds:
            widest = min(widest, folded)
        total += widest
    return total + 2 * (len(table.columns) - 1)


def _drawn(table: Table, layout: Layout, *, rule: str) -> RichTable:
    """Return a drawing of a table. Cells are text, never markup: names may hold brackets."""
    drawn = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns:
        drawn.add_column(
            justify="left" if column.left else "right",
            no_wrap=not column.folds,
            overflow="fold",
            vertical="top",
        )
    drawn.add_row(*map(Text, layout.headings), style="bold")
    drawn.add_row(*[Rule(characters=rule, style="")] * len(layout.headings))
    for row in layout.rows:
        drawn.add_row(*map(Text, row))
    return drawn


def _listing(table: Table) -> Text:
    """Return one figure a line, below the name of its row, for narrow terminals.

    A row without a name belongs to the row above it.
    """
    names = _headings(table)
    title = 0
    for index, column in enumerate(table.columns):
        if column.folds:
            title = index
            break
    longest = max(map(cell_len, names))
    lines = []
    for row in as_cells(table):
        if row[title]:
            lines += ["", row[title]]
        for index, (name, text) in enumerate(zip(names, row, strict=True)):
            if text and index != title:
                lines.append(f"  {name}{' ' * (longest - cell_len(name))}  {text}")
    return Text("\n".join(lines))


# Files


def as_markdown(table: Table) -> str:
    """Return a Markdown table without its title; notes are a list below it.

    Args:
        table: Table to print.
    """
    rules = [":--" if column.left else "--:" for column in table.columns]
    lines = [_markdown_row(_headings(table)), _markdown_row(rules)]
    for row in as_cells(table):
        cells = []
        for column, text in zip(table.columns, row, strict=True):
            code = column.format == "code" and text != NONE
            cells.append(f"`{text}`" if code else text)
        lines.append(_markdown_row(cells))
    if table.notes:
        lines.append("")
    for note in table.notes:
        lines.append(f"- {printable(note)}")
    return "\n".join(lines)


def _markdown_row(texts: Row) -> str:
    """Return a line of a Markdown table; bars in its texts would end a cell."""
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


def as_csv(table: Table) -> str:
    """Return raw values, one line a row; both ends of an interval have columns of their own.

    Args:
        table: Table to write.
    """
    flat = [*map(_flat, table.records())]
    names: dict[str, None] = {}
    for row in flat:
        names |= dict.fromkeys(row)
    target = io.StringIO()
    header = list(names) or [column.label for column in table.columns]
    writer = csv.DictWriter(target, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return target.getvalue()


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with every part of a cell in a column of its own."""
    flat: dict[str, Any] = {}
    for name, cell in record.items():
        value = cell.value if isinstance(cell, Doubted) else cell
        figure = _figure(cell)
        flat[name] = printable(figure) if isinstance(figure, str) else figure
        if isinstance(value, Interval):
            flat |= {f"{name} low": value.low, f"{name} high": value.high}
        if isinstance(cell, Doubted):
            flat[f"{name} in doubt"] = 1
    return flat


def latex_text(text: str) -> str:
    """Return a text with its special characters as LaTeX has them.

    Args:
        text: Any text. Characters that a font of LaTeX may lack become question marks.
    """
    letters = []
    for letter in printable(text):
        if letter in _LATEX:
            letters.append(_LATEX[letter])
        elif letter in "“”…" or ord(letter) < 0x250:
            letters.append(letter)
        else:
            letters.append("?")
    return _joined_symbols("".join(letters))


def _joined_symbols(text: str) -> str:
    """Return LaTeX in which the symbol of a norm is one formula instead of two."""
    drawn = re.sub(r"\$\\ell\$\$_(\d)\$", r"$\\ell_{\1}$", text)
    return drawn.replace(r"$\ell$$\infty$", r"$\ell_{\infty}$")


def as_latex(table: Table) -> str:
    """Return a `tabular` with the rules of booktabs; notes are comments below it.

    Args:
        table: Table to write; symbols of norms become formulas.
    """
    sides = "".join("l" if column.left else "r" for column in table.columns)
    escapes = str.maketrans(_LATEX)

    def line(texts: Row) -> str:
        return " & ".join(text.translate(escapes) for text in texts) + r" \\"

    parts = [
        f"\\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        line(_headings(table)),
        r"\midrule",
        *map(line, as_cells(table)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    for note in table.notes:
        parts.append(f"% {printable(note)}")
    return _joined_symbols("\n".join(parts))
