"""How every figure looks: colours, lines, letters."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from advfrontier.evaluation.plain import CurveData
    from advfrontier.frontier.curve import Curve

FORMATS = ("pdf", "png")
COLOURS = (
    "#0b5cad", "#a8480f", "#2d6e4e", "#6d3fa0", "#7a5c00", "#0f7c8a", "#b02a6b", "#4b6a00", "#8a3b3b", "#3d4f7d",
)  # fmt: skip
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2)))
GREY, INK, RED = "#b4bbc2", "#1b1f24", "#b3261e"
STYLE = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": 8,
    "grid.color": "#e6e8ea",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "pdf.fonttype": 42,  # letters stay letters: publishers ask for it
    "text.parse_math": False,  # a dollar in a model's name is a dollar
    "savefig.dpi": 300,
}


def drawable() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def styled() -> Any:
    """A `with` block in which figures look like this."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional extra

    return mpl.rc_context(STYLE)  # type: ignore[arg-type]


def panels(count: int, *, wide: float, high: float, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, each so many inches wide and high, in rows of so many."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    across = min(count, columns)
    rows = -(-count // across)
    figure = Figure(figsize=(wide * across, high * rows), layout="constrained")
    every_axes = list(figure.subplots(rows, across, squeeze=False).flat)
    for axes in every_axes[count:]:
        axes.remove()
    return figure, every_axes[:count]


def draw_steps(axes: Axes, curve: Curve | CurveData, **line: Any) -> None:
    """A robustness curve, which goes on at its last accuracy."""
    ε: Sequence[float] | NDArray[np.float64] = [*curve.epsilons, 1e9]
    axes.plot(ε, [*curve.accuracies, curve.accuracies[-1]], drawstyle="steps-post", **line)


def common_legend(figure: Figure, *, columns: int, last: Collection[str] = ()) -> None:
    """One legend below all panels, with every name once, some of them last."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, line)
    names = sorted(named, key=lambda name: name in last)
    if names:
        lines = [named[name] for name in names]
        figure.legend(lines, names, loc="outside lower center", ncols=min(columns, len(names)))
