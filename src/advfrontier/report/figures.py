"""Figures of evaluations for papers, as PDF and PNG, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import NormSummary
from advfrontier.frontier.curve import Curve
from advfrontier.pool import tier_label
from advfrontier.report import style
from advfrontier.report.numbers import size
from advfrontier.report.summary import in_order
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = Mapping[str, dict[str, Any]]

_ALONE, _BESIDE = 3.25, 2.05  # inches: one column of a two-column paper; one panel of several


def write_figures(
    folder: str | PathLike[str], summaries: Sequence[NormSummary], *, formats: Sequence[str] = style.FORMATS
) -> list[str]:
    """Write `curve-NORM` and `queries-NORM` for every norm and `curves` with all of them; returns the files."""
    style.need_matplotlib()
    if not summaries:
        raise FrontierError("nothing to draw: expected at least one summary, such as summarise(evaluation, …)")
    by_norm = {s.norm: [one for one in summaries if one.norm == s.norm] for s in in_order(summaries)}
    lines = style.lines_of(summary.model for summary in summaries)
    written = []
    with style.styled():
        for norm, group in by_norm.items():
            drawings = {"curve": draw_curves}
            if any(summary.convergence.queries for summary in group):
                drawings["queries"] = draw_queries
            for name, draw in drawings.items():
                figure = style.panels(1, wide=_ALONE)
                draw(figure.axes[0], group, lines)
                style.common_legend(figure, columns=2)
                written += style.save(figure, folder, f"{name}-{norm}", formats=formats)
        if len(by_norm) > 1:
            figure = style.panels(len(by_norm), wide=_BESIDE)
            for axes, group in zip(figure.axes, by_norm.values(), strict=True):
                draw_curves(axes, group, lines)
                axes.label_outer()
            style.common_legend(figure, columns=6)
            written += style.save(figure, folder, "curves", formats=formats)
    return written


def draw_curves(axes: Axes, summaries: Sequence[NormSummary], lines: Lines) -> None:
    """Robust accuracy against ε: models with bands, reference models in grey, their frontier dashed."""
    first = summaries[0]
    if first.standing is not None:
        table = first.standing.table
        for k, row in enumerate(row for row in table.rows if not row.given):
            label = None if k else "reference models"
            style.draw_steps(axes, table.curves[row.model], color=style.GREY, linewidth=0.5, label=label)
        style.draw_steps(axes, table.frontier, color=style.INK, linewidth=0.8, linestyle="--", label="defence frontier")
    for summary in summaries:
        line = lines[summary.model]
        draw_model(axes, summary.model, summary.curve, summary.margin, line)
        if summary.certified is not None:
            label = f"{summary.model}, certified"
            style.draw_steps(
                axes, summary.certified.curve, color=line["color"], linestyle=":", linewidth=0.8, label=label
            )
    beyond = 1.2 * max((at.epsilon for at in first.robust), default=0.0)
    style.curve_axes(axes, first.norm, [summary.curve for summary in summaries], least=beyond)
    draw_marks(axes, [(at.epsilon, at.label) for at in first.robust], axes.get_xlim()[1])


def draw_model(axes: Axes, name: str, curve: Curve, margin: float, line: Mapping[str, Any]) -> None:
    """A curve in its band."""
    ε, ρ = [*curve.epsilons, 1e9], [*curve.accuracies, curve.accuracies[-1]]
    low, high = [max(0.0, share - margin) for share in ρ], [min(1.0, share + margin) for share in ρ]
    axes.fill_between(ε, low, high, step="post", color=line["color"], alpha=0.13, linewidth=0)
    style.draw_steps(axes, curve, label=name, **line)


def draw_queries(axes: Axes, summaries: Sequence[NormSummary], lines: Lines) -> None:
    """AUREC against queries, tiers marked; models that have no AUREC are left out."""
    drawn = [summary for summary in summaries if summary.convergence.queries]
    for summary in drawn:
        found, line = summary.convergence, lines[summary.model]
        axes.plot(found.queries, found.aurec, label=f"{summary.model}, E = {size(summary.E)}", **line)
        axes.plot(found.tiers, found.at_tiers(), color=line["color"], linestyle="none", marker="o", markersize=3)
    longest = max((summary.convergence for summary in drawn), key=lambda found: found.queries[-1])
    draw_marks(axes, [(queries, tier_label(queries)) for queries in longest.tiers], longest.queries[-1])
    # The first queries fall from far above; what matters is whether the end is level.
    lasts = [s.convergence.aurec[-1] for s in drawn]
    early = [
        next(a for q, a in zip(s.convergence.queries, s.convergence.aurec, strict=True) if q >= s.tier / 20)
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
        axes.axvline(x, color=style.MUTED, linewidth=0.6, linestyle=":")
        axes.annotate(
            label, (x, 1.0), xytext=(0, 8 if raised else 1), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=6, color=style.MUTED,
        )  # fmt: skip
