"""Figures for print, drawn by matplotlib: robustness curves, and AUREC against queries.

`figures.mplstyle` has the rest of how they look. Charts for the screen are drawn by `plots`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.errors import FrontierError, printable
from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.curve import Curve
from advfrontier.pool import tier_label
from advfrontier.record import below, write_file
from advfrontier.report.numbers import size
from advfrontier.report.summary import in_order
from advfrontier.report.words import models_of
from advfrontier.threat.names import norm_symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = Mapping[str, Any]  # colour and dashes of a model, as matplotlib has them

FORMATS = ("pdf", "png")
COLOURS = (
    "#0b5cad",
    "#a8480f",
    "#2d6e4e",
    "#6d3fa0",
    "#7a5c00",
    "#0f7c8a",
    "#b02a6b",
    "#4b6a00",
    "#8a3b3b",
    "#3d4f7d",
)
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2)))
COLUMN, PAGE = 3.25, 5.5  # inches: 234 pt, a column of a paper; 397 pt, a page with one column
WIDTHS = (COLUMN, PAGE, 6.75)  # inches; the last one spans two columns
_SANS = ("Helvetica", "Arial", "Nimbus Sans", "Liberation Sans", "TeX Gyre Heros", "DejaVu Sans")
FONTS = ("serif", "sans")
_GREY, _INK, _MUTED = "#b4bbc2", "#1b1f24", "#57606a"
_FAR = 1e9  # where a curve ends, beyond every axis
_HEIGHT, _LOW_HEIGHT = 2.3, 1.75  # inches of a figure with one panel; of one with several
_DPI = 300
_MARK = b"advfrontier"  # by which an own figure is known; without dates it is the same every time
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"Creator": "advfrontier", "CreationDate": None},
    "png": {"Software": "advfrontier"},
    "svg": {"Creator": "advfrontier", "Date": None},
}


def write_figures(
    folder: str | PathLike[str],
    summaries: Sequence[NormSummary],
    *,
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """Write `curve-NORM` and `queries-NORM` per norm, and `curves` with all norms side by side.

    Args:
        folder: Output folder: a path or an address.
        summaries: Evaluations of one model or several.
        formats: Kinds of files, such as `pdf`, `png` and `svg`.

    Returns:
        The paths or addresses of the files.
    """
    need_matplotlib()
    if not summaries:
        raise FrontierError(
            "nothing to draw: expected at least one summary, such as summarise(evaluation, …)"
        )
    groups: dict[str, list[NormSummary]] = {}
    for summary in in_order(summaries):
        groups.setdefault(summary.norm, []).append(summary)
    lines = lines_of(models_of(summaries))
    written = []
    with styled():
        for norm, group in groups.items():
            figure = _panels(1, width=COLUMN, height=_HEIGHT)
            draw_curves(figure.axes[0], group, lines)
            written += _save(figure, below(folder, f"curve-{norm}"), formats, columns=2)
            if any(summary.by_queries.queries for summary in group):
                figure = _panels(1, width=COLUMN, height=_HEIGHT)
                draw_queries(figure.axes[0], group, lines)
                written += _save(figure, below(folder, f"queries-{norm}"), formats, columns=2)
        if len(groups) > 1:
            figure = _panels(len(groups), width=PAGE, height=_LOW_HEIGHT)
            for axes, group in zip(figure.axes, groups.values(), strict=True):
                draw_curves(axes, group, lines)
                axes.label_outer()
            written += _save(figure, below(folder, "curves"), formats, columns=5)
    return written


def write_paper_figures(
    folder: str | PathLike[str],
    summaries: Sequence[NormSummary],
    baselines: Mapping[tuple[str, str], KnownPoints],
    *,
    font: str = "serif",
    formats: Sequence[str] = ("pdf",),
) -> list[str]:
    """Write `curve-NORM-3.25in` per norm, and `curves-5.5in` and `curves-6.75in` with all norms.

    Every figure is exactly as wide as its name says.

    Args:
        folder: Output folder: a path or an address.
        summaries: Evaluations of one model or several.
        baselines: AutoAttack's points, by model and norm, which are drawn as crosses.
        font: `serif`, as in Times, or `sans`, as in Helvetica.
        formats: Kinds of files.

    Returns:
        The paths or addresses of the files.
    """
    groups: dict[str, list[NormSummary]] = {}
    for summary in in_order(summaries):
        groups.setdefault(summary.norm, []).append(summary)
    lines = lines_of(models_of(summaries))
    layouts: list[tuple[str, float, list[list[NormSummary]]]] = []
    for norm, group in groups.items():
        layouts.append((f"curve-{norm}", WIDTHS[0], [group]))
    for width in WIDTHS[1:]:
        layouts.append(("curves", width, list(groups.values())))
    written = []
    with styled(font):
        for name, width, panels in layouts:
            height = _HEIGHT if len(panels) < 3 else _LOW_HEIGHT
            figure = _panels(len(panels), width=width, height=height)
            for axes, group in zip(figure.axes, panels, strict=True):
                draw_curves(axes, group, lines)
                for summary in group:
                    points = baselines.get((summary.model, summary.norm))
                    if points is not None:
                        draw_points(axes, points, lines[summary.model])
                if len(panels) > 1:
                    axes.label_outer()
            path = below(folder, f"{name}-{width:g}in")
            written += _save(figure, path, formats, columns=2 if width == COLUMN else 4)
    return written


def draw_points(axes: Axes, points: KnownPoints, line: Line) -> None:
    """Draw AutoAttack's robust accuracy as crosses in the model's colour.

    Args:
        axes: Axes to draw into.
        points: Robust accuracy of AutoAttack at every radius.
        line: Colour, dashes and label of the model.
    """
    cross: dict[str, Any] = {
        "linestyle": "none",
        "marker": "x",
        "markersize": 4,
        "markeredgewidth": 1.1,
    }
    axes.plot(
        points.radii, points.accuracies, color=line["color"], label="AutoAttack", zorder=4, **cross
    )


def draw_intervals(axes: Axes, summaries: Sequence[NormSummary], lines: Mapping[str, Line]) -> None:
    """Draw the 95 % intervals of several models as bars beside each other, at the radii marked.

    Args:
        axes: Axes to draw into, whose limits are set.
        summaries: Models in one norm.
        lines: Model to colour and dashes.
    """
    apart = 0.008 * axes.get_xlim()[1]
    for place, summary in enumerate(summaries):
        shift = apart * (place - (len(summaries) - 1) / 2)
        for at in summary.robust:
            bar = {"color": lines[summary.model]["color"], "linewidth": 0.9, "alpha": 0.9}
            axes.vlines(at.epsilon + shift, at.accuracy.low, at.accuracy.high, zorder=3, **bar)


def draw_curves(axes: Axes, summaries: Sequence[NormSummary], lines: Mapping[str, Line]) -> None:
    """Draw robust accuracy against ε.

    One model has its 95 % band. Of several models the bands would run together, so that their
    intervals are bars at the radii marked.

    Args:
        axes: Axes to draw into.
        summaries: Models in one norm; those it is ranked among are drawn in grey.
        lines: Model to colour and dashes.
    """
    first = summaries[0]
    if first.standing is not None:
        table = first.standing.table
        label: str | None = "reference models"
        for row in table.rows:
            if not row.given:
                grey = {"color": _GREY, "linewidth": 0.5}
                draw_steps(axes, table.curves[row.model], label=label, **grey)
                label = None  # one entry of the legend for all of them
        dashed = {"color": _INK, "linewidth": 0.8, "linestyle": "--"}
        draw_steps(axes, table.frontier, label="defence frontier", **dashed)
    for summary in summaries:
        line = lines[summary.model]
        name = printable(summary.model)
        if len(summaries) == 1:
            draw_band(axes, summary.curve, summary.margin, line)
        draw_steps(axes, summary.curve, label=name, **line)
        if summary.certified is not None:
            dotted = {"color": line["color"], "linestyle": ":", "linewidth": 0.8}
            draw_steps(axes, summary.certified.curve, label=f"{name}, certified", **dotted)
    marks = [(at.epsilon, at.label) for at in first.robust]
    curve_axes(axes, first.norm, [summary.curve for summary in summaries], marks)
    if len(summaries) > 1:
        draw_intervals(axes, summaries, lines)
    draw_marks(axes, marks)


def draw_band(axes: Axes, curve: Curve, margin: float, line: Line) -> None:
    """Draw the 95 % band around a curve.

    Args:
        axes: Axes to draw into.
        curve: Robust accuracy against the radius.
        margin: Half the height of the band, a share from 0 to 1.
        line: Colour of the band, as of the model's curve.
    """
    epsilons, accuracies = _endless(curve)
    low = [max(0.0, accuracy - margin) for accuracy in accuracies]
    high = [min(1.0, accuracy + margin) for accuracy in accuracies]
    axes.fill_between(
        epsilons, low, high, step="post", color=line["color"], alpha=0.13, linewidth=0
    )


def draw_steps(axes: Axes, curve: Curve, **line: Any) -> None:
    """Draw a curve, which continues at its last accuracy.

    Args:
        axes: Axes to draw into.
        curve: Robust accuracy against the radius.
        line: Label, colour, dashes and width of the line.
    """
    axes.plot(*_endless(curve), drawstyle="steps-post", **line)


def _endless(curve: Curve) -> tuple[list[float], list[float]]:
    """Return the steps of a curve and one more, beyond every axis."""
    return [*curve.epsilons, _FAR], [*curve.accuracies, curve.accuracies[-1]]


def far_end(curves: Iterable[Curve], marks: Iterable[tuple[float, str]] = ()) -> float:
    """Return the ε where a chart ends: all curves have fallen to 1 %, and all marks are inside.

    Args:
        curves: Curves that the axis must show.
        marks: Radii and labels that it must show.
    """
    far = 0.0
    for curve in curves:
        far = max(far, curve.falls_to(0.01))
    for epsilon, _ in marks:
        far = max(far, 1.2 * epsilon)
    return far or 1.0


def curve_axes(
    axes: Axes, norm: str, curves: Iterable[Curve], marks: Sequence[tuple[float, str]]
) -> None:
    """Set limits and titles of axes with robustness curves.

    Args:
        axes: Axes to set up.
        norm: Name of the norm, for the label.
        curves: Curves that will be drawn in them.
        marks: Places and labels of the marks.
    """
    axes.set_xlim(0, far_end(curves, marks))
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"$\\varepsilon$ in {norm_formula(norm)}", parse_math=True)
    axes.set_ylabel("robust accuracy")


def draw_queries(axes: Axes, summaries: Sequence[NormSummary], lines: Mapping[str, Line]) -> None:
    """Draw AUREC against queries, with a mark at each usual budget.

    Args:
        axes: Axes to draw into.
        summaries: Models in one norm; those that have no AUREC are left out.
        lines: Model to colour and dashes.
    """
    drawn = [summary for summary in summaries if summary.by_queries.queries]
    for summary in drawn:
        track, line = summary.by_queries, lines[summary.model]
        label = f"{printable(summary.model)}, E = {size(summary.E)}"
        axes.plot(track.queries, track.aurec, label=label, **line)
        dots = {"color": line["color"], "linestyle": "none", "marker": "o", "markersize": 3}
        axes.plot(track.tiers, track.at_tiers(), **dots)
    tracks = [summary.by_queries for summary in drawn]
    longest = max(tracks, key=lambda track: track.queries[-1])
    least, most = min(track.queries[0] for track in tracks), 1.3 * longest.queries[-1]
    powers = [10**k for k in range(1, 1 + math.floor(math.log10(most))) if 10**k >= least]
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.set_xticks(powers, [tier_label(power) for power in powers])
    axes.set_ylim(0, 1.05 * max(max(track.aurec) for track in tracks))
    axes.set_xlabel("queries per sample")
    axes.set_ylabel(f"AUREC in {norm_formula(drawn[0].norm)}", parse_math=True)
    draw_marks(axes, [(tier, tier_label(tier)) for tier in longest.tiers])


def draw_marks(axes: Axes, items: Sequence[tuple[float, str]]) -> None:
    """Draw dotted lines with labels on top; a label that would hide the one before is raised.

    Args:
        axes: Axes to draw into, whose limits are set.
        items: Places and labels, from left to right.
    """
    width = 72 * axes.get_window_extent().width / axes.figure.dpi  # points of the axes
    to_axes = axes.transData + axes.transAxes.inverted()
    end, raised = -width, False
    for value, label in items:
        place = to_axes.transform((value, 0))[0] * width
        half = 1.9 * len(label) + 1
        raised = place - half < end and not raised
        end = place + half
        axes.axvline(value, color=_MUTED, linewidth=0.6, linestyle=":")
        axes.annotate(
            label,
            (value, 1.0),
            xytext=(0, 8 if raised else 1),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=6,
            color=_MUTED,
        )


def need_matplotlib() -> None:
    """Raise if matplotlib is not installed, saying what to install."""
    if find_spec("matplotlib") is None:
        raise FrontierError(
            "figures need matplotlib, which is not installed; type pip install "
            '"advfrontier[figures]"'
        )


def styled(font: str = "serif") -> Any:
    """Return a context in which figures are drawn and saved.

    Args:
        font: `serif` or `sans`.
    """
    from matplotlib import style  # noqa: PLC0415 - an optional extra
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    if font == "serif":
        return style.context("advfrontier.report.figures")
    installed = {entry.name for entry in fontManager.ttflist}
    sans = next(name for name in _SANS if name in installed)
    other = {"font.family": sans, "mathtext.fontset": "stixsans", "font.size": 7.5}
    return style.context(["advfrontier.report.figures", other])


def norm_formula(norm: str) -> str:
    r"""Return the symbol of a norm as a formula, such as $\ell_{\infty}$.

    Args:
        norm: Name of the norm. Symbols that are not ℓ with a number stay as they are.
    """
    symbol = norm_symbol(norm)
    index = symbol.removeprefix("ℓ").replace("∞", r"\infty")
    if symbol.startswith("ℓ") and (index.isdigit() or index == r"\infty"):
        return rf"$\ell_{{{index}}}$"
    return symbol


def line_number(number: int) -> tuple[int, int]:
    """Return the indices of colour and dashes of a model; colours recur with other dashes.

    Args:
        number: Index of the model among those drawn together, from 0.
    """
    return number % len(COLOURS), (number + number // len(COLOURS)) % len(DASHES)


def line_of(number: int) -> dict[str, Any]:
    """Return colour and dashes of a model, as matplotlib has them.

    Args:
        number: Index of the model among those drawn together, from 0.
    """
    colour, dashes = line_number(number)
    return {"color": COLOURS[colour], "linestyle": DASHES[dashes]}


def lines_of(models: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return model to colour and dashes, the same ones for every panel.

    Args:
        models: Names of the models, in the order of their colours.
    """
    return {model: line_of(number) for number, model in enumerate(dict.fromkeys(models))}


def _panels(count: int, *, width: float, height: float) -> Figure:
    """Return a figure with panels side by side; sizes are in inches, without the legend."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(1, count)
    return figure


def _save(figure: Figure, path: str, formats: Sequence[str], *, columns: int) -> list[str]:
    """Add one legend for all panels and write the figure in every format; return the files."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, line)
    across = min(columns, len(named))
    rows = -(-len(named) // across)
    figure.set_figheight(figure.get_figheight() + 0.15 * rows)
    figure.legend(named.values(), list(named), loc="outside lower center", ncols=across)
    written = []
    for kind in formats:
        content = BytesIO()
        figure.savefig(content, format=kind, dpi=_DPI, metadata=_METADATA.get(kind))
        written.append(write_file(f"{path}.{kind}", content.getvalue(), mark=_MARK))
    return written
