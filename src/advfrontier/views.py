"""Methods by which results show themselves: as text, in notebooks, as figures and pages.

The drawing is in `report.views`, which no earlier room may import: it is found by its name when a
result is shown.
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
    """Text that an interactive session shows as it is, not as a quoted string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Shown:
    """Result with a table of its own."""

    def summary(self) -> str:
        """Return the table of the result as plain text."""
        return Text(_call("text", self))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return str(_call("html", self))


class ShownEvaluation(Shown):
    """Methods that print, plot and report an evaluation."""

    def summary(self, *, radii: str | None = None) -> str:
        """Return the table that the command line prints.

        Args:
            radii: Radii at which robust accuracy is read, such as `4/255,8/255`, instead of the
                usual ones.
        """
        return Text(_call("text", self, radii=radii))

    def plot(self, ax: Axes | None = None, *, radii: str | None = None) -> Axes:
        """Draw the curve with its 95 % band by matplotlib and return the axes.

        Args:
            ax: Axes to draw into; by default a new figure. In axes that hold other evaluations,
                this one gets another colour.
            radii: Radii at which lines are drawn, such as `4/255,8/255`, instead of the usual ones.
        """
        axes: Axes = _call("plot", self, ax=ax, radii=radii)
        return axes

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one row per sample: id, label, distance, run."""
        return _call("dataframe", self)

    def report(
        self,
        path: str | PathLike[str],
        *,
        others: Sequence[ShownEvaluation] = (),
        radii: str | None = None,
    ) -> str:
        """Write the HTML report and return its path or address.

        Args:
            path: Output file, such as `report.html`: a path or an address.
            others: Evaluations of other models, or of this one in other norms.
            radii: Radii at which robust accuracy is read, such as `4/255,8/255`, instead of the
                usual ones.
        """
        return str(_call("report", [self, *others], path, radii=radii))


class ShownTraces(Shown):
    """Methods that plot and report traces."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean distance of every run against queries by matplotlib and return the axes.

        Args:
            ax: Axes to draw into; by default a new figure.
        """
        axes: Axes = _call("plot_traces", self, ax=ax)
        return axes

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with columns run, queries, sample and distance."""
        return _call("traces_dataframe", self)

    def report(self, path: str | PathLike[str]) -> str:
        """Write an HTML page with the table and the curves and return its path or address.

        Args:
            path: Output file, such as `traces.html`: a path or an address.
        """
        return str(_call("traces_report", self, path))


def _call(name: str, *content: Any, **options: Any) -> Any:
    """Call a function of `report.views`."""
    return getattr(import_module("advfrontier.report.views"), name)(*content, **options)
