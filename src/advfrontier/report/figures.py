"""Figures by matplotlib: one set of colours and lines, one way to draw and to save, and those of evaluations.

`figures.mplstyle` has the rest of how they look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.curve import Curve
from advfrontier.pool import tier_label
from advfrontier.record import below, write_file
from advfrontier.report.numbers import size
from advfrontier.report.summary import in_order
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Mapping[str, dict[str, Any]]  # model → colour and dashes

FORMATS = ("pdf", "png")
COLOURS = (
    "#0b5cad", "#a8480f", "#2d6e4e", "#6d3fa0", "#7a5c00", "#0f7c8a", "#b02a6b", "#4b6a00", "#8a3b3b", "#3d4f7d",
)  # fmt: skip
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2)))
PAGE_DASHES = ("", "7 3", "2 3", "8 3 2 3", "14 4")  # the same for pages, as SVG has it
GREY, INK, MUTED, RED = "#b4bbc2", "#1b1f24", "#57606a", "#b3261e"
_HIGH = 2.4  # inches of a panel
_MARK = b"advfrontier"  # by which a figure is known as our own; without a date, so that it is written again bit by bit
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"Creator": "advfrontier", "CreationDate": None},
    "png": {"Software": "advfrontier"},
    "svg": {"Creator": "advfrontier", "Date": None},
}
_ALONE, _BESIDE = 3.25, 2.05  # inches: one column of a two-column paper; one panel of several


def write_figures(
    folder: str | PathLike[str],
    summaries: Sequence[NormSummary],
    *,
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """Write `curve-NORM` and `queries-NORM` for every norm and `curves` with all of them; returns the files."""
    need_matplotlib()
    if not summaries:
        raise FrontierError(
            "nothing to draw: expected at least one summary, such as summarise(evaluation, …)"
        )
    by_norm = {
        s.norm: [one for one in summaries if one.norm == s.norm] for s in in_order(summaries)
    }
    lines = lines_of(summary.model for summary in summaries)
    written = []
    with styled():
        for norm, group in by_norm.items():
            drawings = {"curve": draw_curves}
            if any(summary.convergence.queries for summary in group):
                drawings["queries"] = draw_queries
            for name, draw in drawings.items():
                figure = panels(1, wide=_ALONE)
                draw(figure.axes[0], group, lines)
                common_legend(figure, columns=2)
                written += save(figure, below(folder, f"{name}-{norm}"), formats=formats)
        if len(by_norm) > 1:
            figure = panels(len(by_norm), wide=_BESIDE)
            for axes, group in zip(figure.axes, by_norm.values(), strict=True):
                draw_curves(axes, group, lines)
                axes.label_outer()
            common_legend(figure, columns=6)
            written += save(figure, below(folder, "curves"), formats=formats)
    return written


def draw_curves(axes: Axes, summaries: Sequence[NormSummary], lines: Lines) -> None:
    """Robust accuracy against ε: models with bands, reference models in grey, their frontier dashed."""
    first = summaries[0]
    if first.standing is not None:
        table = first.standing.table
        for k, row in enumerate(row for row in table.rows if not row.given):
            label = None if k else "reference models"
            draw_steps(axes, table.curves[row.model], color=GREY, linewidth=0.5, label=label)
        draw_steps(
            axes, table.frontier, color=INK, linewidth=0.8, linestyle="--", label="defence frontier"
        )
    for summary in summaries:
        line = lines[summary.model]
        draw_model(axes, summary.model, summary.curve, summary.margin, line)
        if summary.certified is not None:
            label = f"{summary.model}, certified"
            draw_steps(
                axes,
                summary.certified.curve,
                color=line["color"],
                linestyle=":",
                linewidth=0.8,
                label=label,
            )
    beyond = 1.2 * max((at.epsilon for at in first.robust), default=0.0)
    curve_axes(axes, first.norm, [summary.curve for summary in summaries], least=beyond)
    draw_marks(axes, [(at.epsilon, at.label) for at in first.robust], axes.get_xlim()[1])


def draw_model(axes: Axes, name: str, curve: Curve, margin: float, line: Mapping[str, Any]) -> None:
    """A curve in its band."""
    ε, ρ = [*curve.epsilons, 1e9], [*curve.accuracies, curve.accuracies[-1]]
    low, high = [max(0.0, share - margin) for share in ρ], [min(1.0, share + margin) for share in ρ]
    axes.fill_between(ε, low, high, step="post", color=line["color"], alpha=0.13, linewidth=0)
    draw_steps(axes, curve, label=name, **line)


def draw_queries(axes: Axes, summaries: Sequence[NormSummary], lines: Lines) -> None:
    """AUREC against queries, tiers marked; models that have no AUREC are left out."""
    drawn = [summary for summary in summaries if summary.convergence.queries]
    for summary in drawn:
        found, line = summary.convergence, lines[summary.model]
        axes.plot(
            found.queries, found.aurec, label=f"{summary.model}, E = {size(summary.E)}", **line
        )
        axes.plot(
            found.tiers,
            found.at_tiers(),
            color=line["color"],
            linestyle="none",
            marker="o",
            markersize=3,
        )
    longest = max((summary.convergence for summary in drawn), key=lambda found: found.queries[-1])
    draw_marks(
        axes, [(queries, tier_label(queries)) for queries in longest.tiers], longest.queries[-1]
    )
    # The first queries fall from far above; what matters is whether the end is level.
    lasts = [s.convergence.aurec[-1] for s in drawn]
    early = [
        next(
            a
            for q, a in zip(s.convergence.queries, s.convergence.aurec, strict=True)
            if q >= s.tier / 20
        )
        for s in drawn
    ]
    axes.set_ylim(0.94 * min(lasts), max(1.2 * max(lasts), min(max(early), 2 * max(lasts))))
    axes.set_xlim(0, 1.03 * longest.queries[-1])
    axes.set_xlabel("queries per sample")
    axes.set_ylabel(f"AUREC in {SYMBOLS[summaries[0].norm]}")


def draw_marks(axes: Axes, items: Sequence[tuple[float, str]], far: float) -> None:
    """Dotted lines with their labels above; a label that would run into the one before stands a line higher."""
    wide = 100.0  # points across a panel, at least
    end, raised = -wide, False
    for x, label in items:
        half = 1.9 * len(label) + 1
        raised = x / far * wide - half < end and not raised
        end = x / far * wide + half
        axes.axvline(x, color=MUTED, linewidth=0.6, linestyle=":")
        axes.annotate(
            label, (x, 1.0), xytext=(0, 8 if raised else 1), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=6, color=MUTED,
        )  # fmt: skip


def drawable() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def need_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    if not drawable():
        raise FrontierError(
            'figures need matplotlib, which is not installed; type pip install "advfrontier[figures]"'
        )


def styled() -> Any:
    """A context in which figures are drawn and saved."""
    from matplotlib import style  # noqa: PLC0415 - an optional extra

    return style.context("advfrontier.report.figures")


def line_number(k: int) -> tuple[int, int]:
    """Colour and dashes of the k-th model: with many models a colour comes again, dashed anew."""
    return k % len(COLOURS), (k + k // len(COLOURS)) % len(DASHES)


def line_of(k: int) -> dict[str, Any]:
    """The same as matplotlib has it."""
    colour, dash = line_number(k)
    return {"color": COLOURS[colour], "linestyle": DASHES[dash]}


def lines_of(models: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Model → colour and dashes, which it keeps in every panel."""
    return {model: line_of(k) for k, model in enumerate(dict.fromkeys(models))}


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
    axes.plot(
        [*curve.epsilons, 1e9],
        [*curve.accuracies, curve.accuracies[-1]],
        drawstyle="steps-post",
        **line,
    )


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
    figure: Figure, path: str, *, formats: Sequence[str], dpi: int = 300, mark: bytes = _MARK
) -> list[str]:
    """Write a figure in every format; returns the files. One that is there already must hold the mark."""
    written = []
    for kind in formats:
        content = BytesIO()
        figure.savefig(content, format=kind, dpi=dpi, metadata=_METADATA.get(kind))
        written.append(write_file(f"{path}.{kind}", content.getvalue(), mark=mark))
    return written
