"""How figures look: one set of colours and lines, one way to draw and to save; `figures.mplstyle` has the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import Curve
from advfrontier.record import below, write_file
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("pdf", "png")
COLOURS = (
    "#0b5cad", "#a8480f", "#2d6e4e", "#6d3fa0", "#7a5c00", "#0f7c8a", "#b02a6b", "#4b6a00", "#8a3b3b", "#3d4f7d",
)  # fmt: skip
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2)))
PAGE_DASHES = ("", "7 3", "2 3", "8 3 2 3", "14 4")  # the same for pages, as SVG has it
GREY, INK, MUTED, RED = "#b4bbc2", "#1b1f24", "#57606a", "#b3261e"
_HIGH = 2.4  # inches of a panel
_MARK = b"advfrontier"  # by which a figure is known as our own; without a date, so that it is written again bit by bit
_METADATA = {"pdf": {"Creator": "advfrontier", "CreationDate": None}, "png": {"Software": "advfrontier"}}


def drawable() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def need_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    if not drawable():
        raise FrontierError('figures need matplotlib, which is not installed; type pip install "advfrontier[figures]"')


def styled() -> Any:
    """A context in which figures are drawn and saved."""
    from matplotlib import style  # noqa: PLC0415 - an optional extra

    return style.context("advfrontier.report.figures")


def line_number(k: int) -> tuple[int, int]:
    """Colour and dashes of the k-th model: with many models a colour comes again, dashed anew."""
    return k % len(COLOURS), (k + k // len(COLOURS)) % len(DASHES)


def lines_of(models: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Model → colour and dashes, which it keeps in every panel."""
    numbers = {model: line_number(k) for k, model in enumerate(dict.fromkeys(models))}
    return {model: {"color": COLOURS[colour], "linestyle": DASHES[dash]} for model, (colour, dash) in numbers.items()}


def panels(count: int, *, wide: float, columns: int = 4) -> Figure:
    """A figure of so many panels, each so many inches wide, in rows of so many."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    across = min(count, columns)
    rows = -(-count // across)
    figure = Figure(figsize=(wide * across, _HIGH * rows), layout="constrained")
    for axes in figure.subplots(rows, across, squeeze=False).flat[count:]:
        axes.remove()
    return figure


def draw_steps(axes: Axes, curve: Curve, **line: Any) -> None:
    """A curve, which goes on at its last accuracy."""
    axes.plot([*curve.epsilons, 1e9], [*curve.accuracies, curve.accuracies[-1]], drawstyle="steps-post", **line)


def curve_axes(axes: Axes, norm: str, curves: Iterable[Curve], *, least: float = 0.0) -> None:
    """Robust accuracy against ε, up to where all of these curves have fallen to 1 %, and at least so far."""
    axes.set_xlim(0, max(least, *(curve.falls_to(0.01) for curve in curves)) or 1.0)
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"ε in {SYMBOLS[norm]}")
    axes.set_ylabel("robust accuracy")


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


def save(
    figure: Figure,
    folder: str | PathLike[str],
    name: str,
    *,
    formats: Sequence[str] = FORMATS,
    dpi: int = 300,
    mark: bytes = _MARK,
) -> list[str]:
    """Write a figure in every format; returns the files. One that is there already must hold the mark."""
    written = []
    for kind in formats:
        content = BytesIO()
        figure.savefig(content, format=kind, dpi=dpi, metadata=_METADATA.get(kind))
        written.append(write_file(below(folder, f"{name}.{kind}"), content.getvalue(), mark=mark))
    return written
