"""How results show themselves: `summary()` as text, in notebooks as HTML, and evaluations as figures and pages too.

The methods stand here, beside the rooms, and the drawing in `report.views`, which no earlier room may import: it is
found by its name when something is to be shown, as the package finds its public names.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame  # type: ignore[import-untyped]


class Text(str):
    """Text that an interactive session shows as it is, and not as a quoted string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Shown:
    """A result with a table of its own."""

    def summary(self) -> str:
        """Its table as plain text."""
        return Text(_drawn("text", self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return str(_drawn("html", self))


class ShownEvaluation(Shown):
    """An evaluation as people look at it."""

    def summary(self, *, radii: str | None = None) -> str:
        """The table that the command line prints; `radii` such as `4/255,8/255` instead of those usually quoted."""
        return Text(_drawn("text", self, radii=radii))

    def plot(self, ax: Axes | None = None, *, radii: str | None = None) -> Axes:
        """Draw the curve with its 95 % band and the radii, into axes or a new figure; returns the axes.

        Called again with the same axes, another evaluation is drawn beside it in another colour.
        """
        axes: Axes = _drawn("plot", self, ax=ax, radii=radii)
        return axes

    def to_dataframe(self) -> DataFrame:
        """One row per sample as a pandas DataFrame: its id, label, distance, the run that found it, and so on."""
        return _drawn("dataframe", self)

    def report(
        self,
        path: str | PathLike[str],
        *,
        others: Sequence[ShownEvaluation] = (),
        radii: str | None = None,
    ) -> str:
        """Write the HTML report to a path or an address, and return which.

        Args:
            path: The file, such as `report.html`.
            others: Evaluations of other models, or of this one in other norms.
            radii: Where robust accuracy is read, such as `4/255,8/255`, instead of the radii usually quoted.
        """
        return str(_drawn("report", [self, *others], path, radii=radii))


def _drawn(name: str, *content: Any, **options: Any) -> Any:
    """What a function of `report.views` makes of it."""
    return getattr(import_module("advfrontier.report.views"), name)(*content, **options)
