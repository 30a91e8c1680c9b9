"""A table as data: what it shows, before anybody decides how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# How the figures of a column are printed; `advfrontier.report.render` has a formatter for each. `size` gives every
# figure four digits, `sizes` gives all of a column the same decimals.
Format = Literal["text", "integer", "count", "percent", "fine", "points", "size", "sizes", "score", "duration"]


@dataclass(frozen=True)
class Column:
    """A heading, how its figures are printed, and whether long text in it may be broken into lines."""

    name: str
    format: Format = "text"
    folds: bool = False

    @property
    def left(self) -> bool:
        """Text stands on the left of its column, figures on the right."""
        return self.format == "text"


@dataclass(frozen=True)
class Strong:
    """A cell that stands out: printed bold where there is bold."""

    value: Any


@dataclass(frozen=True)
class Bracketed:
    """A cell of a model in doubt: printed in brackets, and of an interval the estimate alone."""

    value: Any


@dataclass(frozen=True)
class Spread:
    """A cell with the mean and the standard deviation of several figures: printed as `mean ± deviation`."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Table:
    """Rows of raw values under typed columns, with what a reader must know below.

    A cell is text, a number, None (printed as a dash), an `Interval` (estimate with its two ends), a `Spread`, a pair
    of integers (a range of ranks), or `Strong` or `Bracketed` around any of these.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row of {len(row)} cells under {len(self.columns)} columns")
