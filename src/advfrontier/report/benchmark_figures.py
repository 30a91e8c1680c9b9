"""Figures of a benchmark's page, drawn by matplotlib as PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.bench import tables
from advfrontier.bench.benchmark import HELD_OUT, TRAIN
from advfrontier.bench.frame import DEFAULT, FAMILIES
from advfrontier.frontier.comparison import RankStability
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.defence import defence_frontier
from advfrontier.pool import tier_label
from advfrontier.record.folder import write_file
from advfrontier.threat.names import norm_symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from advfrontier.report.benchmark import View

_WIDE, _HIGH, _DPI = 2.5, 2.4, 100  # inches of a panel; dots per inch
_MOVING = 6  # models in colour where ranks are drawn
_COLOURS = ("#0b5cad", "#a8480f", "#2d6e4e", "#6d3fa0", "#7a5c00", "#0f7c8a", "#b02a6b", "#4b6a00")
_GREY, _INK, _RED = "#b4bbc2", "#1b1f24", "#b3261e"
_DASHES = {DEFAULT: "-", "greedy": "--", "paper": ":"}
_FAR = 1e9  # where a curve that has no further step ends, beyond every axis

Panel = tuple[str, Callable[["Axes"], None]]  # title, and what draws it


def draw_figures(view: View, folder: Path) -> dict[str, Path]:
    """Draw every figure that has something to show.

    Args:
        view: Benchmark with its tables.
        folder: Output folder of the PNG files.

    Returns:
        Name to file; nothing where matplotlib is not installed.
    """
    try:
        from matplotlib import style  # noqa: PLC0415  # an extra
    except ImportError:
        return {}
    figures = {
        "growth": _growth(view),
        "curves": _curves(view),
        "cases": _cases(view),
        "crossings": _crossings(view),
        "ranks": _ranks(view),
        "rejection": _rejections(view),
    }
    apart = {"crossings", "rejection"}  # every panel shows other models
    written = {}
    with style.context("advfrontier.report.figures"):
        for name, drawn in figures.items():
            if drawn:
                written[name] = folder / f"{name}.png"
                write_file(written[name], _png(_figure(drawn, common=name not in apart)))
    return written


def _figure(drawn: Sequence[Panel], *, common: bool) -> Figure:
    """Return a figure with panels in rows of two, and one legend below or one in every panel."""
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    across = min(len(drawn), 2)
    rows = -(-len(drawn) // across)
    layout = ConstrainedLayoutEngine(h_pad=0.08)  # inches: room above the highest titles
    figure = Figure(figsize=(_WIDE * across, _HIGH * rows), layout=layout)
    panels = figure.subplots(rows, across, squeeze=False).flatten()
    named: dict[str, Any] = {}
    for axes, (title, draw) in zip(panels, drawn, strict=False):
        axes.set_title(title)
        draw(axes)
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, line)
        if not common:
            axes.legend()
    for axes in panels[len(drawn) :]:
        axes.remove()
    if common and named:
        lines, names = list(named.values()), list(named)
        figure.legend(lines, names, loc="outside lower center", ncols=min(4, len(named)))
    return figure


def _png(figure: Figure) -> bytes:
    """Return a figure as PNG, the same bytes for the same figure."""
    target = BytesIO()
    figure.savefig(target, format="png", dpi=_DPI, metadata={"Software": "advfrontier"})
    return target.getvalue()


def _growth(view: View) -> list[Panel]:
    """Return mean AOI against queries, one panel per norm."""
    means = tables.aoi_by_split(view.scores)
    panels: list[Panel] = []
    for norm in view.norms:
        own = means[means["norm"] == norm]

        def draw(axes: Axes, own: Any = own) -> None:
            for family in FAMILIES:
                for colour, split in zip(_COLOURS, (TRAIN, HELD_OUT), strict=False):
                    rows = own[(own["ensemble"] == family) & (own["split"] == split)]
                    rows = rows.sort_values("budget")
                    if len(rows):
                        axes.plot(
                            rows["budget"],
                            100 * rows["aoi"],
                            color=colour,
                            linestyle=_DASHES[family],
                            marker="o",
                            ms=2,
                            label=f"{family}, {split}",
                        )
            axes.set_xticks(view.budgets, [tier_label(budget) for budget in view.budgets])
            axes.set_xlabel("queries per sample")
            axes.set_ylabel("mean AOI (%)")

        panels.append((norm_symbol(norm), draw))
    return panels


def _curves(view: View) -> list[Panel]:
    """Return all curves in every norm, coloured by mean DOI, with the defence frontier."""
    last = max(view.budgets)
    scores = view.doi[(view.doi["budget"] == last) & view.doi["sure"]]
    means = scores.groupby("model")["doi"].mean()
    panels: list[Panel] = []
    for norm, data, found in tables.groups(view.results.distances, view.family, [last]):
        sure = tables.trusted(found[last], tables.in_doubt(view.results.flags, norm))

        def draw(axes: Axes, norm: str = norm, found: Any = found[last], sure: Any = sure) -> None:
            from matplotlib import colormaps  # noqa: PLC0415

            for model, distances in found.items():
                if model in sure:
                    place = (means[model] - means.min()) / max(float(np.ptp(means)), 1e-9)
                    line = {"color": colormaps["viridis"](0.88 * (1 - place))}
                else:
                    line = {"color": _GREY, "linestyle": ":", "label": "in doubt"}
                _steps(axes, Curve.of(distances), linewidth=0.9, **line)
            drawn = [Curve.of(distances) for distances in found.values()]
            if sure:
                frontier = Curve.of(defence_frontier(sure))
                drawn = [frontier]
                _steps(axes, frontier, color=_RED, linestyle="--", label="defence frontier")
            _curve_axes(axes, norm, drawn)

        panels.append((view.title(norm, data), draw))
    return panels


def _cases(view: View) -> list[Panel]:
    """Return the best and the worst case against AutoAttack."""
    panels: list[Panel] = []
    every = tables.with_frontier(view.results.distances)
    for case, row in zip(("best", "worst"), view.cases.itertuples(), strict=False):
        rows = every[(every["norm"] == row.norm) & (every["model"] == row.model)]
        points = view.results.points
        points = points[(points["norm"] == row.norm) & (points["model"] == row.model)]

        def draw(axes: Axes, row: Any = row, rows: Any = rows, points: Any = points) -> None:
            drawn = []
            for colour, budget in zip(_COLOURS, view.budgets, strict=False):
                own = rows[(rows["ensemble"] == view.family) & (rows["budget"] == budget)]
                if len(own):
                    drawn.append(Curve.of(own["distance"]))
                    label = view.label(view.family, budget)
                    _steps(axes, drawn[-1], color=colour, label=label)
            nearest = rows.drop_duplicates("sample")["frontier"]
            line = {"color": _INK, "linewidth": 0.7, "linestyle": "--", "label": "best known"}
            _steps(axes, Curve.of(nearest), **line)
            label = tables.AUTOATTACK
            axes.plot(points["radius"], points["accuracy"], "x", color=_RED, ms=4, label=label)
            _curve_axes(axes, row.norm, drawn)

        panels.append((f"{case}: {row.model} in {norm_symbol(row.norm)}", draw))
    return panels


def _crossings(view: View) -> list[Panel]:
    """Return the pair that changes places most beyond the reference radius, in every norm."""
    panels: list[Panel] = []
    found = _largest(view)
    for (norm, data), pairs in view.crossings.groupby(["norm", "data"], sort=False):
        pair = pairs.iloc[0]

        def draw(axes: Axes, pair: Any = pair, found: Any = found[norm, data]) -> None:
            names = (pair["leader"], pair["overtaken_by"])
            drawn = [Curve.of(found[name]) for name in names]
            for curve, name, colour in zip(drawn, names, _COLOURS, strict=False):
                _steps(axes, curve, color=colour, label=name)
            _reference(axes, pair["radius"])
            _curve_axes(axes, pair["norm"], drawn, least=1.3 * pair["radius"])

        panels.append((view.title(norm, data), draw))
    return panels


def _ranks(view: View) -> list[Panel]:
    """Return ranks against the radius; the models that move most are in colour."""
    most: dict[str, int] = {}
    for ranks in view.ranks.values():
        for model, moved in ranks.moved.items():
            most[model] = max(moved, most.get(model, 0))
    chosen = sorted(most, key=lambda model: -most[model])[:_MOVING]
    colours = dict(zip(chosen, _COLOURS, strict=False))
    panels: list[Panel] = []
    for (norm, data, by), ranks in view.ranks.items():
        reference = view.radii.get(data, {}).get(norm)

        def draw(
            axes: Axes, ranks: RankStability = ranks, norm: str = norm, reference: Any = reference
        ) -> None:
            positions = np.arange(ranks.epsilons.size)
            for model, row in zip(ranks.models, ranks.ranks, strict=True):
                if model in colours:
                    axes.plot(positions, row, color=colours[model], marker="o", ms=2, label=model)
                else:
                    label = "other models"
                    axes.plot(positions, row, color=_GREY, linewidth=0.7, zorder=1, label=label)
            if reference is not None:
                for place in np.flatnonzero(np.isclose(ranks.epsilons, reference, rtol=1e-9)):
                    _reference(axes, float(place))
            axes.set_xticks(positions, [f"{radius:.3g}" for radius in ranks.epsilons], rotation=60)
            last = len(ranks.models)
            axes.set_yticks(range(1, last + 1, 1 + last // 10))
            axes.set_ylim(last + 0.5, 0.5)
            axes.set_xlabel(f"ε in {norm_symbol(norm)}")
            axes.set_ylabel("rank")

        who = by if by == tables.AUTOATTACK else view.label(by, max(view.budgets))
        panels.append((f"{view.title(norm, data)}, {who}", draw))
    return panels


def _rejections(view: View) -> list[Panel]:
    """Return the pair that the smallest budget decides by the widest gap, in every norm."""
    first, last = min(view.budgets), max(view.budgets)
    groups = tables.groups(view.results.distances, view.family, [first, last])
    found = {(norm, data): own for norm, data, own in groups}
    panels: list[Panel] = []
    for (norm, data), pairs in view.rejections.groupby(["norm", "data"], sort=False):
        pair = pairs.assign(gap=pairs["other"] - pairs["aurec"]).sort_values("gap").iloc[-1]

        def draw(axes: Axes, pair: Any = pair, own: Any = found[norm, data]) -> None:
            late, early = (
                Curve.of(own[last][pair["against"]]),
                Curve.of(own[first][pair["rejected"]]),
            )
            label = f"{pair['against']} at {tier_label(last)}"
            _steps(axes, late, color=_COLOURS[0], label=label)
            label = f"{pair['rejected']} at {tier_label(first)}"
            _steps(axes, early, color=_COLOURS[1], linestyle="--", label=label)
            _curve_axes(axes, pair["norm"], [late, early])

        panels.append((view.title(norm, data), draw))
    return panels


def _largest(view: View) -> dict[tuple[str, str], tables.ByModel]:
    """Return (norm, data) to the distances at the largest budget."""
    last = max(view.budgets)
    groups = tables.groups(view.results.distances, view.family, [last])
    return {(norm, data): found[last] for norm, data, found in groups}


def _steps(axes: Axes, curve: Curve, **line: Any) -> None:
    radii = np.append(curve.epsilons, _FAR)
    shares = np.append(curve.accuracies, curve.accuracies[-1])
    axes.plot(radii, shares, drawstyle="steps-post", **line)


def _reference(axes: Axes, place: float) -> None:
    label = "reference radius"
    axes.axvline(place, color=_INK, linewidth=0.7, linestyle="--", label=label)


def _curve_axes(axes: Axes, norm: str, curves: Sequence[Curve], *, least: float = 0.0) -> None:
    """Set the axes of robust accuracy against ε, up to where all curves have fallen to 1 %."""
    ends = [curve.falls_to(0.01) for curve in curves]
    axes.set_xlim(0, max(least, *ends) or 1.0)
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"ε in {norm_symbol(norm)}")
    axes.set_ylabel("robust accuracy")
