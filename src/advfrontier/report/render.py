"""Draw a `Table`: on a terminal, as plain text, Markdown, JSON, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from typing import TYPE_CHECKING, Any

from rich.text import Text

from advfrontier.evaluation.plain import plain
from advfrontier.frontier.baseline import BaselineAOI
from advfrontier.frontier.confidence import Interval
from advfrontier.report import numbers
from advfrontier.report.tables import Column as Drawn
from advfrontier.report.tables import console_for, fits, printable, rich_table, text_table
from advfrontier.table import Doubted, Share, Spread, Strong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from advfrontier.table import Format, Table

NONE = "–"
_FORMATTERS: dict[Format, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "norm": lambda value: numbers.SYMBOLS[value],
    "integer": lambda value: f"{value:.0f}",
    "count": numbers.whole,
    "number": lambda value: f"{value:g}",
    "percent": numbers.percent,
    "fine": lambda value: f"{100 * value:.2f}",
    "points": lambda value: f"{100 * value:+.1f}",
    "gain": lambda value: f"{100 * value:+.2f}",
    "size": numbers.size,
    "score": numbers.score,
    "duration": numbers.duration,
    "bytes": numbers.memory,
}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "∞": r"$\infty$",
          "ℓ": r"$\ell$", "ε": r"$\varepsilon$", "±": r"$\pm$", "–": "--"}  # fmt: skip
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def cell_text(value: Any, how: Format) -> str:
    """One cell as it is printed; a dash where nothing is known."""
    value, show = _bare(value), _FORMATTERS[how]
    middle = value.estimate if isinstance(value, Interval) else value
    if middle is None or (isinstance(middle, float) and math.isnan(middle)):
        text = NONE
    elif isinstance(value, Interval):
        text = show(middle) + ("" if math.isnan(value.low) else f" ({show(value.low)}–{show(value.high)})")
    elif isinstance(value, BaselineAOI):
        text = f"{show(value.value)} [{show(value.low)}–{show(value.high)}]"
    elif isinstance(value, Spread):
        text = f"{show(value.mean)} ± {show(value.deviation).lstrip('+')}"
    elif isinstance(value, Share):
        text = f"{value.count}/{value.of}"
    elif isinstance(value, Doubted):
        text = f"({show(value.value)})"
    elif isinstance(value, tuple):
        text = numbers.ranks(value)
    else:
        text = value if isinstance(value, str) and how != "norm" else show(value)
    return text


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Drawn with lines where someone looks and they fit, plain text elsewhere."""
    console = console_for(stream)
    for k, table in enumerate(tables):
        drawn = rich_table(_drawn(table), _texts(table)) if console else None
        if console is None or drawn is None or not fits(drawn, console):
            print("\n" * bool(k) + as_text(table), file=stream or sys.stdout)
            continue
        title, notes = [Text(printable(table.title), style="bold")], [Text(printable(note)) for note in table.notes]
        for part in ([Text()] if k else []) + (title if table.title else []) + [drawn, *notes]:
            console.print(part)


def as_text(table: Table) -> str:
    """Columns side by side, for a pipe or a log."""
    drawn = text_table(_drawn(table), _texts(table)) if table.rows else ""
    parts = [printable(table.title), drawn, *map(printable, table.notes)]
    return "\n".join(part for part in parts if part)


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
    return {"title": table.title, "rows": plain(table.records()), "notes": list(table.notes)}


def _drawn(table: Table) -> list[Drawn]:
    return [Drawn(column.name, right=not column.left, folds=column.folds) for column in table.columns]


def _texts(table: Table) -> list[list[str]]:
    return [
        [cell_text(cell, column.format) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows
    ]


def _bold(cell: Any, how: Format) -> str:
    text = cell_text(cell, how)
    if how == "code" and text != NONE:
        text = f"`{text}`"
    return f"**{text}**" if isinstance(cell, Strong) else text


def _bare(cell: Any) -> Any:
    return cell.value if isinstance(cell, Strong) else cell


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Interval):
            flat |= {name: value.estimate, f"{name} low": value.low, f"{name} high": value.high}
        elif isinstance(value, BaselineAOI):
            flat |= {name: value.value, f"{name} low": value.low, f"{name} high": value.high}
        elif isinstance(value, Spread):
            flat |= {name: value.mean, f"{name} deviation": value.deviation}
        elif isinstance(value, Share):
            flat |= {name: value.count, f"{name} of": value.of}
        elif isinstance(value, Doubted):
            flat |= {name: value.value, f"{name} in doubt": 1}
        elif isinstance(value, tuple):
            flat |= {f"{name} low": value[0], f"{name} high": value[1]}
        else:
            flat[name] = value
    return flat


def _escape(text: str) -> str:
    return re.sub(".", lambda letter: _LATEX.get(letter.group(), letter.group()), text)
