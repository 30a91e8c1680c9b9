"""Tables as data: what they show, before anything decides how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

# How the figures of a column are printed; `report.render` has a formatter for each. `size` gives
# every figure four digits, `sizes` gives all figures of a column the same decimals.
Format = Literal[
    "text",
    "code",
    "norm",
    "integer",
    "count",
    "number",
    "percent",
    "fine",
    "size",
    "sizes",
    "score",
    "duration",
    "bytes",
]


@dataclass(frozen=True)
class Column:
    """Column of a table.

    Args:
        name: Heading.
        format: How its figures are printed. Text among figures is printed as it is.
        folds: Whether long text in it may be broken into lines.
        key: Name of the column in JSON and CSV, where the heading holds a unit or a symbol.
    """

    name: str
    format: Format = "text"
    folds: bool = False
    key: str = ""

    @property
    def label(self) -> str:
        """Return the name of the column in JSON and CSV."""
        return self.key or self.name

    @property
    def left(self) -> bool:
        """Tell whether the column is aligned on the left, as text is."""
        return self.format in ("text", "code", "norm")


@dataclass(frozen=True)
class Doubted:
    """Figure that cannot be trusted: printed in brackets, without its interval.

    Args:
        value: A number or an `Interval`.
        in_doubt: Whether brackets are printed; False prints the figure as usual.
    """

    value: Any
    in_doubt: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of raw values under typed columns.

    Args:
        title: One line above the table.
        columns: Columns, from left to right.
        rows: Per row a cell for each column: text, a number, None (nothing is known: printed as a
            dash), an `Interval`, or a `Doubted` number or interval.
        notes: Sentences below the table.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"{self.title}: a row of {len(row)} cells under {len(self.columns)} columns"
                )

    def records(self) -> list[dict[str, Any]]:
        """Return a dict per row: raw values by the names of the columns."""
        names = [column.label for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def head(self, rows: int) -> Table:
        """Return the first rows, with a note of how many more there are.

        Args:
            rows: Number of rows that are kept.
        """
        if len(self.rows) <= rows:
            return self
        note = f"and {len(self.rows) - rows} more"
        return replace(self, rows=self.rows[:rows], notes=(*self.notes, note))
