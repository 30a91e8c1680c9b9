"""Draw a `Table`: on a terminal, as plain text, Markdown, JSON, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from advfrontier.frontier.confidence import Interval
from advfrontier.frontier.optimality import BaselineAOI
from advfrontier.jsonable import jsonable
from advfrontier.report import numbers
from advfrontier.report.numbers import NONE
from advfrontier.table import Column, Doubted, Format, Share, Spread, Strong, Table
from advfrontier.threat.names import SYMBOLS

Row = Sequence[str]  # one text per column, which may have several lines
Layout = tuple[Row, Sequence[Row]]  # headings and rows

_PAGE = 100  # columns of plain text; where a table is wider, intervals go below their figures
_SHORT = 8  # letters of a heading that is not broken
_FOLDED = 12  # columns that a name needs at least
_FORMATTERS: dict[Format, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "norm": lambda value: SYMBOLS.get(value, value),
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
        layout = next(
            (
                each
                for each in _layouts(table)
                if _width(table, each, folded=_FOLDED) <= console.width
            ),
            None,
        )
        console.print(_listing(table) if layout is None else _drawn(table, layout, rule="─"))
        console.print()
        for note in table.notes:
            console.print(printable(note), style="yellow" if note.startswith("flag") else None)


def as_text(table: Table) -> str:
    """Columns side by side, two spaces apart, headings underlined: for a pipe or a log."""
    *wider, narrowest = _layouts(table)
    layout = next((layout for layout in wider if _width(table, layout) <= _PAGE), narrowest)
    target = io.StringIO()
    Console(file=target, width=_width(table, layout), color_system=None).print(
        _drawn(table, layout, rule="-")
    )
    drawn = (
        "\n".join(line.rstrip() for line in target.getvalue().splitlines()) if table.rows else ""
    )
    parts = [printable(table.title), drawn, "\n".join(map(printable, table.notes))]
    return "\n\n".join(part for part in parts if part)


def as_markdown(table: Table) -> str:
    """A Markdown table, its title not included; notes as a list below."""
    lines = [
        [column.name for column in table.columns],
        [":--" if column.left else "--:" for column in table.columns],
        *_marked(table, "**{}**", code="`{}`"),
    ]
    drawn = "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines
    )
    return drawn + ("\n\n" + "\n".join(f"- {note}" for note in table.notes) if table.notes else "")


def as_csv(table: Table) -> str:
    """Raw values, one line a row; an interval gives its estimate and both ends in columns of their own."""
    flat = [_flat(record) for record in table.records()]
    names = list(dict.fromkeys(name for row in flat for name in row)) or [
        column.label for column in table.columns
    ]
    target = io.StringIO()
    writer = csv.DictWriter(target, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return target.getvalue()


def as_latex(table: Table) -> str:
    """A `tabular` with booktabs' rules."""
    sides = "".join("l" if column.left else "r" for column in table.columns)
    escapes = str.maketrans(_LATEX)
    lines = [
        [column.name.translate(escapes) for column in table.columns],
        *_marked(table, r"\textbf{{{}}}", escapes),
    ]
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    drawn = "\n".join([f"\\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
                       r"\end{tabular}", *(f"% {printable(note)}" for note in table.notes)])  # fmt: skip
    return re.sub(
        r"\$\\ell\$(?:(\d)|\$(\\infty)\$)", lambda norm: rf"$\ell_{{{norm[1] or norm[2]}}}$", drawn
    )


def as_json(table: Table) -> dict[str, Any]:
    """Title, rows by column name, notes: plain values, with null where nothing is known and "inf" for ∞."""
    return {"title": table.title, "rows": jsonable(table.records()), "notes": list(table.notes)}


def printable(text: str) -> str:
    """Names without the control characters that could steer a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _marked(
    table: Table, bold: str, escapes: Mapping[int, str] | None = None, *, code: str = "{}"
) -> Iterator[Row]:
    """Every row as it is printed, in the signs of a language: what stands out is bold, and code is code."""
    for row, texts in zip(table.rows, as_cells(table), strict=True):
        cells = [text.translate(escapes or {}) for text in texts]
        coded = [
            code.format(text) if column.format == "code" and text != NONE else text
            for text, column in zip(cells, table.columns, strict=True)
        ]
        yield [
            bold.format(t) if isinstance(cell, Strong) else t
            for t, cell in zip(coded, row, strict=True)
        ]


def _cell(value: Any, show: Callable[[Any], str]) -> tuple[str, ...]:
    """The figure of a cell, and its interval if there is one; a dash where nothing is known."""
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
        text = show(middle)
    if isinstance(value, Doubted):
        return (f"({text})",)
    if isinstance(bare, BaselineAOI):
        return (text, f"[{show(bare.low)}–{show(bare.high)}]")
    ends = numbers.ends(bare, show) if isinstance(bare, Interval) else ""
    return (text, f"({ends})") if ends else (text,)


def _bare(cell: Any) -> Any:
    return cell.value if isinstance(cell, (Strong, Doubted)) else cell


def _middle(bare: Any) -> Any:
    """The figure of a cell that also has an interval or a bracket."""
    if isinstance(bare, Interval):
        return bare.estimate
    return bare.value if isinstance(bare, BaselineAOI) else bare


def as_cells(table: Table, *, between: str = " ") -> list[Row]:
    """Every cell as it is printed, with this between a figure and its interval."""
    columns = []
    for k, column in enumerate(table.columns):
        cells = [row[k] for row in table.rows]
        show = _formatter(column, cells)
        columns.append([between.join(map(printable, _cell(cell, show))) for cell in cells])
    return list(zip(*columns, strict=True))


def _formatter(column: Column, cells: Sequence[Any]) -> Callable[[Any], str]:
    """How the cells of a column are printed; a text among figures stands as it is."""
    show = _FORMATTERS[column.format]
    if column.format == "sizes":
        figures = [
            figure for cell in cells if isinstance(figure := _middle(_bare(cell)), (int, float))
        ]
        show = partial(numbers.size, decimals=numbers.column_decimals(figures))
    return lambda value: (
        value if isinstance(value, str) and column.format != "norm" else show(value)
    )


def _layouts(table: Table) -> Iterator[Layout]:
    """Headings and rows, ever narrower: on one line each, headings on two, intervals below their figures as well."""
    rows = as_cells(table)
    yield [printable(column.name) for column in table.columns], rows
    yield _folded(table, rows), rows
    stacked = as_cells(table, between="\n")
    yield _folded(table, stacked), stacked


def _folded(table: Table, rows: Sequence[Row]) -> Row:
    """The headings, on two lines where they are wider than what stands below."""
    headings = []
    for k, name in enumerate(printable(column.name) for column in table.columns):
        spaces = [place for place, letter in enumerate(name) if letter == " "]
        if spaces and len(name) > max(_SHORT, *(_wide(row[k]) for row in rows), 0):
            split = min(spaces, key=lambda place: abs(len(name) - 1 - 2 * place))
            headings.append(f"{name[:split]}\n{name[split + 1 :]}")  # as even as can be
        else:
            headings.append(name)
    return headings


def _wide(text: str) -> int:
    """Columns that the widest line of a cell takes."""
    return max(map(cell_len, text.split("\n")))


def _width(table: Table, layout: Layout, *, folded: int | None = None) -> int:
    """Columns that a table takes, or the least it takes where names that may fold have only so many."""
    headings, rows = layout
    widths = [
        max(1, *map(_wide, cells)) for cells in zip(headings, *rows, strict=True)
    ]  # a rule takes one at least
    if folded is not None:
        widths = [
            min(w, folded) if column.folds else w
            for w, column in zip(widths, table.columns, strict=True)
        ]
    return sum(widths) + 2 * (len(widths) - 1)


def _drawn(table: Table, layout: Layout, *, rule: str) -> RichTable:
    """Headings, a rule and the rows. Cells are text, never markup: names may hold square brackets."""
    headings, rows = layout
    drawn = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns:
        drawn.add_column(
            justify="left" if column.left else "right",
            no_wrap=not column.folds,
            overflow="fold",
            vertical="top",
        )
    drawn.add_row(*(Text(heading, style="bold") for heading in headings))
    drawn.add_row(*(Rule(characters=rule, style="") for _ in headings))
    for cells, row in zip(table.rows, rows, strict=True):
        bold = ["bold" if isinstance(cell, Strong) else "" for cell in cells]
        drawn.add_row(*(Text(text, style=style) for text, style in zip(row, bold, strict=True)))
    return drawn


def _listing(table: Table) -> Text:
    """One figure a line, for narrow terminals, below the name of its row; a row without one goes on with the last."""
    names = [printable(column.name) for column in table.columns]
    title = next((k for k, column in enumerate(table.columns) if column.folds), 0)
    longest = max(map(cell_len, names))
    lines = []
    for row in as_cells(table):
        lines += ["", row[title]] if row[title] else []
        told = [
            (name, text)
            for k, (name, text) in enumerate(zip(names, row, strict=True))
            if text and k != title
        ]
        lines += [f"  {name}{' ' * (longest - cell_len(name))}  {text}" for name, text in told]
    return Text("\n".join(lines))


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every part of a cell in a column of its own: the figure under the cell's name, the others behind it."""
    flat: dict[str, Any] = {}
    for name, cell in record.items():
        value = _bare(cell)
        if isinstance(value, tuple):
            flat |= {f"{name} low": value[0], f"{name} high": value[1]}
        elif is_dataclass(value):
            figure, *others = (
                field.name for field in fields(value) if field.name not in ("level", "flags")
            )
            flat |= {
                name: getattr(value, figure),
                **{f"{name} {part}": getattr(value, part) for part in others},
            }
        else:
            flat[name] = value
        if isinstance(cell, Doubted):
            flat[f"{name} in doubt"] = 1
    return flat
