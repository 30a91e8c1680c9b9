"""The figures of a benchmark, by matplotlib, as PDF and PNG. A model has one colour in all panels of a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.bench.attack_tables import mean_aoi, mean_growth
from advfrontier.bench.baseline_tables import extreme_cases
from advfrontier.bench.model_tables import rankings, rejection
from advfrontier.bench.results import NormResults, Results
from advfrontier.bench.subject import RACE, ModelGroup, Subject, by_split, shown_tiers
from advfrontier.frontier.comparison import RankStability
from advfrontier.frontier.curve import Curve
from advfrontier.pool import tier_label
from advfrontier.report import figures
from advfrontier.report.numbers import size
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE = 2.5  # inches of one panel
_SPLITS = {"train": "training models", "held-out": "held-out models"}
_OTHERS, _REFERENCE = "other models", "reference radius"
_MOVING = 6  # models in colour where ranks are drawn
_NAMED = 12  # models that a legend names


def draw_results(
    results: Results, folder: Path, *, formats: Sequence[str], dpi: int
) -> dict[str, list[Path]]:
    """Draw every figure that has something to show; returns the files by name, the PNG last."""
    written = {}
    with figures.styled():
        for name, figure in _figures(results):
            figures.common_legend(
                figure, columns=min(8, 2 * len(figure.axes)), last=(_OTHERS, _REFERENCE)
            )
            # The folder is the benchmark's own: whatever is there was drawn before.
            paths = figures.save(figure, str(folder / name), formats=formats, dpi=dpi, mark=b"")
            written[name] = list(map(Path, paths))
    return written


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    groups = list(results.groups())
    yield from _drawn(
        "growth", [(SYMBOLS[norm], part) for norm, part in results.norms.items()], _draw_growth
    )
    cases = extreme_cases(results.subjects)
    yield from _drawn(
        "cases",
        [
            (f"{case}: {s.model} in {SYMBOLS[n]} ({100 * g:+.2f} points)", (n, s))
            for case, n, s, g in cases
        ],
        _draw_case,
    )
    yield from _crossings(groups)
    yield from _instability(groups)
    yield from _curves(results, groups)
    yield from _rejections(groups)


def _drawn(
    name: str, entries: Sequence[tuple[str, Any]], draw: Callable[[Axes, Any], None]
) -> Iterator[tuple[str, Figure]]:
    """One figure with a panel for each entry: its title, and what is drawn in it."""
    if entries:
        figure = figures.panels(len(entries), wide=_WIDE)
        for axes, (title, content) in zip(figure.axes, entries, strict=True):
            axes.set_title(title)
            draw(axes, content)
        yield name, figure


def _draw_growth(axes: Axes, part: NormResults) -> None:
    growth = mean_growth(part.subjects)
    budgets = list(part.subjects[0].tiers)
    for colour, (split, series) in zip(figures.COLOURS, growth.items(), strict=False):
        shares = [100 * value for value in series.values()]
        axes.plot(list(series), shares, color=colour, label=_SPLITS[split])
        axes.plot(
            budgets,
            [100 * series[budget] for budget in budgets],
            color=colour,
            linestyle="",
            marker="o",
            ms=3,
        )
        group = by_split(part.subjects)[split]
        tiers = [tier for family, tier in shown_tiers(part.subjects).values() if family == RACE]
        reached = [100 * mean_aoi(group, RACE, tier) for tier in tiers]
        axes.plot(
            tiers,
            reached,
            color=colour,
            linestyle="",
            marker="x",
            ms=4,
            label=f"race, {_SPLITS[split]}",
        )
    low = 100 * min(series[budgets[0]] for series in growth.values())
    margin = max(100 - low, 0.2)
    axes.set_ylim(low - margin, 100 + 0.1 * margin)
    axes.set_xlim(0, 1.02 * max(budgets))
    axes.set_xticks(budgets, [tier_label(budget) for budget in budgets])
    axes.set_xlabel("queries per sample")
    axes.set_ylabel("mean AOI (%)")


def _draw_case(axes: Axes, content: tuple[str, Subject]) -> None:
    norm, subject = content
    curves = {
        tier_label(budget): Curve.of(distances) for budget, distances in subject.tiers.items()
    }
    frontier = Curve.of(subject.frontier)
    for colour, (label, curve) in zip(figures.COLOURS, curves.items(), strict=False):
        figures.draw_steps(axes, curve, color=colour, label=label)
    figures.draw_steps(
        axes,
        frontier,
        color=figures.INK,
        linewidth=0.7,
        linestyle="--",
        label="frontier of the pool",
    )
    if subject.known is not None:
        axes.plot(
            subject.known.radii,
            subject.known.accuracies,
            "x",
            color=figures.RED,
            ms=4,
            label="AutoAttack",
            zorder=5,
        )
    figures.curve_axes(axes, norm, [frontier, *curves.values()])


def _crossings(groups: Sequence[tuple[str, ModelGroup]]) -> Iterator[tuple[str, Figure]]:
    """The pair that changes places most beyond the reference radius."""
    crossed = [(title, group) for title, group in groups if group.reversals]
    widest = [group.reversals[0] for _, group in crossed]
    lines = figures.lines_of(model for pair in widest for model in (pair.leader, pair.overtaken_by))

    def draw(axes: Axes, group: ModelGroup) -> None:
        pair, reference = group.reversals[0], group.reference or 0.0
        curves = {
            model: Curve.of(group.distances[model]) for model in (pair.leader, pair.overtaken_by)
        }
        for model, curve in curves.items():
            figures.draw_steps(axes, curve, color=lines[model]["color"], label=model)
        axes.axvline(reference, color=figures.INK, linewidth=0.7, linestyle="--", label=_REFERENCE)
        figures.curve_axes(axes, group.norm, curves.values(), least=1.3 * reference)

    yield from _drawn("crossings", crossed, draw)


def _instability(groups: Sequence[tuple[str, ModelGroup]]) -> Iterator[tuple[str, Figure]]:
    """Ranks by the largest tier, then by AutoAttack; those that move most in any panel in colour."""
    every = [
        (by, title, group, ranking)
        for title, group in groups
        for by, ranking in rankings(group).items()
    ]
    drawn = sorted(
        (entry for entry in every if " where " not in entry[0]),
        key=lambda entry: entry[0] == "AutoAttack",
    )
    most: dict[str, int] = {}
    for _, _, _, ranking in drawn:
        most |= {model: max(moved, most.get(model, 0)) for model, moved in ranking.moved.items()}
    lines = figures.lines_of(sorted(most, key=lambda model: -most[model])[:_MOVING])

    def draw(axes: Axes, content: tuple[ModelGroup, RankStability]) -> None:
        group, ranking = content
        positions = list(range(ranking.epsilons.size))
        for model, ranks in zip(ranking.models, ranking.ranks.tolist(), strict=True):
            if model in lines:
                axes.plot(
                    positions,
                    ranks,
                    color=lines[model]["color"],
                    marker="o",
                    ms=2,
                    label=model,
                    zorder=3,
                )
            else:
                axes.plot(positions, ranks, color=figures.GREY, linewidth=0.7, label=_OTHERS)
        if group.reference is not None:
            for at in np.flatnonzero(
                np.isclose(ranking.epsilons, group.reference, rtol=1e-9, atol=0)
            ):
                axes.axvline(
                    float(at), color=figures.INK, linewidth=0.7, linestyle="--", label=_REFERENCE
                )
        axes.set_xticks(
            positions,
            [size(ε) if ε == int(ε) else f"{ε:.3g}" for ε in ranking.epsilons],
            rotation=60,
        )
        axes.set_ylim(len(ranking.models) + 0.5, 0.5)
        axes.set_yticks(range(1, len(ranking.models) + 1, 1 + len(ranking.models) // 10))
        axes.set_xlabel(f"ε in {SYMBOLS[group.norm]}")
        axes.set_ylabel("rank")

    several = len({by for by, *_ in drawn}) > 1
    entries = [
        (f"{title}, {by}" if several else title, (group, ranking))
        for by, title, group, ranking in drawn
    ]
    yield from _drawn("instability", entries, draw)


def _curves(
    results: Results, groups: Sequence[tuple[str, ModelGroup]]
) -> Iterator[tuple[str, Figure]]:
    """All curves, coloured by mean DOI over the norms, with the defence frontier."""
    from matplotlib import colormaps  # noqa: PLC0415 - an optional extra
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415
    from matplotlib.colors import ListedColormap, Normalize  # noqa: PLC0415

    scores = {model: 100 * doi for model, doi in results.mean_dois().items()}
    scale = Normalize(min(scores.values(), default=0.0), max(scores.values(), default=100.0))
    colours = ListedColormap(
        colormaps["viridis"](np.linspace(0.88, 0, 256))
    )  # without yellow, pale on white
    named = len(scores) <= _NAMED

    def draw(axes: Axes, group: ModelGroup) -> None:
        trusted = [model for model in scores if model in group.distances]
        for model in trusted:
            line = {"color": colours(scale(scores[model])), "label": model if named else None}
            figures.draw_steps(axes, Curve.of(group.distances[model]), linewidth=0.9, **line)
        for subject in (each for each in group.subjects if each.model not in trusted):
            line = {
                "color": figures.GREY,
                "label": f"{subject.model} (in doubt)" if named else "in doubt",
            }
            figures.draw_steps(axes, Curve.of(subject.last), linewidth=0.9, linestyle=":", **line)
        frontier = Curve.of(group.frontier)
        figures.draw_steps(
            axes, frontier, color=figures.RED, linestyle="--", label="defence frontier"
        )
        figures.curve_axes(axes, group.norm, [frontier])

    for name, figure in _drawn("curves", groups, draw):
        if scores:
            bar = figure.colorbar(
                ScalarMappable(scale, colours), ax=figure.axes, shrink=0.8, aspect=25
            )
            bar.set_label("mean DOI (%)")
        yield name, figure


def _rejections(groups: Sequence[tuple[str, ModelGroup]]) -> Iterator[tuple[str, Figure]]:
    """A model that the smallest tier rejects, and the one it is rejected against."""
    decisions = {title: pair for title, group in groups if (pair := rejection(group))}
    lines = figures.lines_of(
        model for reference, rejected in decisions.values() for model in (reference, rejected[0])
    )

    def draw(axes: Axes, content: tuple[ModelGroup, str, str]) -> None:
        group, reference, candidate = content
        first, last = min(group.tiers), max(group.tiers)
        curves = Curve.of(group.distances[reference]), Curve.of(group.early[candidate])
        for curve, model, tier, dash in zip(
            curves, (reference, candidate), (last, first), ("-", "--"), strict=True
        ):
            label = f"{model} at {tier_label(tier)}"
            figures.draw_steps(
                axes, curve, color=lines[model]["color"], linestyle=dash, label=label
            )
        figures.curve_axes(axes, group.norm, curves)

    entries = [
        (title, (g, decisions[title][0], decisions[title][1][0]))
        for title, g in groups
        if title in decisions
    ]
    yield from _drawn("early-rejection", entries, draw)
