"""Figures for papers, as PDF and PNG, by matplotlib."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.evaluation.plain import CurveData
from advfrontier.evaluation.ranking import same_model, select_samples
from advfrontier.report.comparison import named
from advfrontier.report.numbers import SYMBOLS, size, tier
from advfrontier.report.style import (
    COLOURS,
    DASHES,
    FORMATS,
    GREY,
    INK,
    common_legend,
    draw_steps,
    drawable,
    panels,
    styled,
)
from advfrontier.store.folder import below, write_file
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from advfrontier.evaluation.summary import NormSummary
    from advfrontier.frontier.comparison import Comparison
    from advfrontier.frontier.defence import ReferencePool

_WIDE, _HIGH = 3.25, 2.4  # inches: one column of a two-column paper


def write_figures(
    folder: str | PathLike[str],
    summaries: Sequence[NormSummary],
    *,
    others: Sequence[NormSummary] = (),
    references: Mapping[str, ReferencePool] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """Write `curve-NORM` and `queries-NORM` for every norm and `curves` with all of them; returns the files."""
    _need_matplotlib()
    ordered = sorted(summaries, key=lambda summary: NORMS.index(summary.norm))
    by_norm: dict[str, list[NormSummary]] = {}
    for summary in (*ordered, *others):
        by_norm.setdefault(summary.norm, []).append(summary)
    by_norm = {norm: group for norm, group in by_norm.items() if any(s.norm == norm for s in summaries)}
    if not by_norm:
        raise FrontierError("nothing to draw: expected at least one summary, such as summarise(evaluation, …)")
    pools = references or {}
    written = []
    with styled():
        for norm, group in by_norm.items():
            figure, (axes,) = _panels(1)
            draw_curves(axes, group, pools.get(norm))
            written += _save(figure, folder, f"curve-{norm}", formats)
            figure, (axes,) = _panels(1)
            draw_queries(axes, group)
            written += _save(figure, folder, f"queries-{norm}", formats)
        if len(by_norm) > 1:
            figure, found = _panels(len(by_norm))
            for axes, (norm, group) in zip(found, by_norm.items(), strict=True):
                draw_curves(axes, group, pools.get(norm))
                axes.label_outer()
            written += _save(figure, folder, "curves", formats)
    return written


def write_comparison_figure(
    folder: str | PathLike[str],
    comparison: Comparison,
    first: NormSummary,
    second: NormSummary,
    *,
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """Write `comparison-NORM`: both curves with their bands, and ticks where they cross."""
    _need_matplotlib()
    first, second = named(comparison, first, second)
    with styled():
        figure, (axes,) = _panels(1)
        draw_curves(axes, [first, second], None)
        for ε in comparison.crossings:
            axes.plot([ε], [first.curve.at(ε)], marker="|", markersize=5, color=INK, markeredgewidth=0.7)
        return _save(figure, folder, f"comparison-{first.norm}", formats)


def draw_curves(axes: Axes, summaries: Sequence[NormSummary], reference: ReferencePool | None) -> None:
    """Robust accuracy against ε: models with bands, reference models in grey, their frontier dashed."""
    first = summaries[0]
    pool = _on_samples(reference, first)
    if pool is not None:
        others = [d for model, d in pool.distances.items() if not same_model(model, first.model)]
        for k, distances in enumerate(others):
            curve = CurveData.of(distances)
            draw_steps(axes, curve, color=GREY, linewidth=0.5, label="reference models" if k == 0 else None)
        frontier = CurveData.of(pool.frontier())
        draw_steps(axes, frontier, color=INK, linewidth=0.8, linestyle="--", label="defence frontier")
    for k, summary in enumerate(summaries):
        colour = COLOURS[k % len(COLOURS)]
        ε = [*summary.curve.epsilons, 1e9]
        ρ = [*summary.curve.accuracies, summary.curve.accuracies[-1]]
        low = [max(0.0, share - summary.margin) for share in ρ]
        high = [min(1.0, share + summary.margin) for share in ρ]
        axes.fill_between(ε, low, high, step="post", color=colour, alpha=0.13, linewidth=0)
        dash = DASHES[k % len(DASHES)]
        draw_steps(axes, summary.curve, color=colour, linewidth=1.2, linestyle=dash, label=summary.model)
    far = max(
        [next((ε for ε, ρ in _pairs(s.curve) if ρ <= 0.01), s.curve.epsilons[-1]) for s in summaries]
        + [1.2 * at.epsilon for at in first.robust]
    )
    _marks(axes, [(at.epsilon, at.label) for at in first.robust], far)
    axes.set_xlim(0, far or 1.0)
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"ε in {SYMBOLS[first.norm]}")
    axes.set_ylabel("robust accuracy")


def draw_queries(axes: Axes, summaries: Sequence[NormSummary]) -> None:
    """AUREC against queries, tiers marked."""
    for k, summary in enumerate(summaries):
        found = summary.convergence
        colour = COLOURS[k % len(COLOURS)]
        label = f"{summary.model}, E = {size(summary.E)}"
        axes.plot(found.queries, found.aurec, color=colour, linestyle=DASHES[k % len(DASHES)], label=label)
        at = [found.aurec[found.queries.index(queries)] for queries in found.tiers]
        axes.plot(found.tiers, at, color=colour, linestyle="none", marker="o", markersize=3)
    longest = max(summaries, key=lambda summary: summary.convergence.queries[-1]).convergence
    _marks(axes, [(queries, tier(queries)) for queries in longest.tiers], longest.queries[-1])
    lasts = [s.convergence.aurec[-1] for s in summaries]
    early = [next(a for q, a in _early(s) if q >= s.convergence.queries[-1] / 20) for s in summaries]
    if max(lasts) > 0:
        axes.set_ylim(0.94 * min(lasts), max(1.2 * max(lasts), min(max(early), 2 * max(lasts))))
    axes.set_xlim(0, 1.03 * longest.queries[-1])
    axes.set_xlabel("queries per sample")
    axes.set_ylabel(f"AUREC in {SYMBOLS[summaries[0].norm]}")


def _marks(axes: Axes, items: Sequence[tuple[float, str]], far: float) -> None:
    """Dotted lines with their labels above; a label that would run into the one before stands a line higher."""
    wide = 100.0  # points across a panel, at least
    end, raised = -wide, False
    for x, label in items:
        half = 1.9 * len(label) + 1
        raised = bool(far) and x / far * wide - half < end and not raised
        end = x / far * wide + half if far else end
        axes.axvline(x, color="#57606a", linewidth=0.6, linestyle=":")
        axes.annotate(
            label, (x, 1.0), xytext=(0, 8 if raised else 1), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=6, color="#57606a",
        )  # fmt: skip


def _pairs(curve: CurveData) -> list[tuple[float, float]]:
    return list(zip(curve.epsilons, curve.accuracies, strict=True))


def _early(summary: NormSummary) -> list[tuple[int, float]]:
    return list(zip(summary.convergence.queries, summary.convergence.aurec, strict=True))


def _on_samples(reference: ReferencePool | None, summary: NormSummary) -> ReferencePool | None:
    if reference is None:
        return None
    try:
        return select_samples(reference, summary.samples)
    except FrontierError:
        return None  # evaluated on other samples: not comparable, as the summary says


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    return panels(count, wide=_WIDE if count == 1 else 2.05, high=_HIGH, columns=count)


def _save(figure: Figure, folder: str | PathLike[str], name: str, formats: Sequence[str]) -> list[str]:
    common_legend(figure, columns=2 if len(figure.axes) == 1 else 6)
    written = []
    for kind in formats:
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
        written.append(write_file(below(folder, f"{name}.{kind}"), content.getvalue()))
    return written


def _need_matplotlib() -> None:
    if not drawable():
        raise FrontierError('figures need matplotlib, which is not installed; type pip install "advfrontier[figures]"')
