"""A table as data: what it shows, before anybody decides how it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

# How the figures of a column are printed; `advfrontier.report.render` has a formatter for each. `size` gives every
# figure four digits, `sizes` gives all of a column the same decimals.
Format = Literal[
    "text", "code", "norm", "integer", "count", "number", "percent", "fine", "points", "gain", "size", "sizes",
    "score", "duration", "bytes",
]  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A heading, how its figures are printed, and whether long text in it may be broken into lines.

    `key` is its name for programs, in JSON and CSV, where the heading is none: it may hold a unit or a symbol.
    """

    name: str
    format: Format = "text"
    folds: bool = False
    key: str = ""

    @property
    def label(self) -> str:
        """What programs call it."""
        return self.key or self.name

    @property
    def left(self) -> bool:
        """Text stands on the left of its column, figures on the right."""
        return self.format in ("text", "code", "norm")


@dataclass(frozen=True)
class Strong:
    """A cell that stands out: printed bold where there is bold."""

    value: Any


@dataclass(frozen=True)
class Spread:
    """A cell with the mean and the standard deviation of several figures: printed as `mean ± deviation`."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Share:
    """A cell that counts some of several: printed as `3/13`."""

    count: int
    of: int

    @classmethod
    def of_all(cls, conditions: Iterable[bool]) -> Share:
        """How many of these hold."""
        held = [bool(condition) for condition in conditions]
        return cls(sum(held), len(held))


@dataclass(frozen=True)
class Doubted:
    """A figure that cannot be trusted: printed in brackets, and of an interval the estimate alone."""

    value: Any
    in_doubt: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of raw values under typed columns, with what a reader must know below.

    A cell is text, a number, None (printed as a dash), an `Interval` (estimate with its two ends), a `BaselineAOI`
    (value with the two ends that are proven), a `Spread`, a `Share`, a `Doubted` figure, a pair of integers (a range of
    ranks) or `Strong` around any of these.
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
        """Its rows for programs: raw values by the names of the columns."""
        names = [column.label for column in self.columns]
        bare = [
            [cell.value if isinstance(cell, Strong) else cell for cell in row] for row in self.rows
        ]
        return [dict(zip(names, row, strict=True)) for row in bare]

    def head(self, rows: int | None) -> Table:
        """Its first rows, with a note of how many more there are."""
        if rows is None or len(self.rows) <= rows:
            return self
        return replace(
            self, rows=self.rows[:rows], notes=(*self.notes, f"and {len(self.rows) - rows} more")
        )


def stacked(title: str, first: Column, tables: Mapping[str, Table]) -> Table:
    """The rows of several tables with the same columns as one table; the first column says which each is from."""
    return Table(
        title,
        (first, *(column for table in list(tables.values())[:1] for column in table.columns)),
        tuple((name, *row) for name, table in tables.items() for row in table.rows),
        tuple(f"{name}: {note}" for name, table in tables.items() for note in table.notes),
    )
