"""Draw a `Table`: on a terminal, as plain text, Markdown, JSON, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from advfrontier.frontier.confidence import Interval
from advfrontier.report import numbers
from advfrontier.report.tables import Column as Drawn
from advfrontier.report.tables import printable, text_table
from advfrontier.table import Spread, Strong

if TYPE_CHECKING:
    from collections.abc import Callable

    from advfrontier.table import Format, Table

NONE = "–"
_FORMATTERS: dict[Format, Callable[[Any], str]] = {
    "text": str,
    "integer": lambda value: f"{value:.0f}",
    "count": numbers.whole,
    "percent": numbers.percent,
    "fine": lambda value: f"{100 * value:.2f}",
    "points": lambda value: f"{100 * value:+.1f}",
    "size": numbers.size,
    "score": numbers.score,
    "duration": numbers.duration,
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
    elif isinstance(value, Spread):
        text = f"{show(value.mean)} ± {show(value.deviation).lstrip('+')}"
    elif isinstance(value, tuple):
        text = numbers.ranks(value)
    else:
        text = value if isinstance(value, str) else show(value)
    return text


def as_text(table: Table) -> str:
    """Columns side by side, for a pipe or a log."""
    columns = [Drawn(column.name, right=not column.left, folds=column.folds) for column in table.columns]
    parts = [table.title, text_table(columns, _texts(table)), *map(printable, table.notes)]
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
    flat = [_flat(table, row) for row in table.rows]
    names = list(dict.fromkeys(name for row in flat for name in row)) or [column.name for column in table.columns]
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
    from advfrontier.evaluation.plain import plain  # noqa: PLC0415

    names = [column.name for column in table.columns]
    rows = [dict(zip(names, (_bare(cell) for cell in row), strict=True)) for row in table.rows]
    return {"title": table.title, "rows": plain(rows), "notes": list(table.notes)}


def _texts(table: Table) -> list[list[str]]:
    return [
        [cell_text(cell, column.format) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows
    ]


def _bold(cell: Any, how: Format) -> str:
    text = cell_text(cell, how)
    return f"**{text}**" if isinstance(cell, Strong) else text


def _bare(cell: Any) -> Any:
    return cell.value if isinstance(cell, Strong) else cell


def _flat(table: Table, row: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cell, column in zip(row, table.columns, strict=True):
        value = _bare(cell)
        if isinstance(value, Interval):
            found |= {column.name: value.estimate, f"{column.name} low": value.low, f"{column.name} high": value.high}
        elif isinstance(value, Spread):
            found |= {column.name: value.mean, f"{column.name} deviation": value.deviation}
        elif isinstance(value, tuple) and not is_dataclass(value):
            found |= {f"{column.name} low": value[0], f"{column.name} high": value[1]}
        else:
            found[column.name] = value
    return found


def _escape(text: str) -> str:
    return re.sub(".", lambda letter: _LATEX.get(letter.group(), letter.group()), text)
