"""The figures of the paper's experiments, by matplotlib, as PDF and PNG."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.frontier.curve import Curve
from advfrontier.report.experiment.cells import named_cases, title_of
from advfrontier.report.numbers import SYMBOLS, size, tier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from advfrontier.evaluation.experiment import Case, Defences, Experiment, Instability, NormExperiment

FORMATS = ("pdf", "png")
_WIDE, _HIGH = 2.5, 2.2  # inches of one panel
_COLUMNS = 4  # panels side by side
_COLOURS = ("#0b5cad", "#a8480f", "#2d6e4e", "#6d3fa0", "#7a5c00")
_GREY, _INK, _RED = "#b4bbc2", "#1b1f24", "#b3261e"
_STYLE = {
    "font.size": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 7,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "legend.fontsize": 6,
    "pdf.fonttype": 42,  # letters stay letters: publishers ask for it
    "text.parse_math": False,  # a dollar in a model's name is a dollar
    "savefig.dpi": 200,
}
_MODELS = {"train": "training models", "held-out": "held-out models"}
_MOST_MOVED = 5  # models in colour where ranks are drawn


def drawable() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(experiment: Experiment, folder: Path) -> dict[str, list[Path]]:
    """Draw every figure that has something to show; returns the files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    with _styled():
        for name, figure in _figures(experiment):
            paths = [folder / f"{name}.{kind}" for kind in FORMATS]
            for path in paths:
                figure.savefig(path, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
            written[name] = paths
    return written


def _figures(experiment: Experiment) -> Iterator[tuple[str, Figure]]:
    groups = [
        (title_of(norm, data, part), norm, group)
        for norm, part in experiment.norms.items()
        for data, group in part.defences.items()
    ]
    if experiment.norms:
        figure, panels = _panels(len(experiment.norms))
        for k, (axes, part) in enumerate(zip(panels, experiment.norms.values(), strict=True)):
            _draw_growth(axes, part, experiment.budgets, legend=k == 0)
        yield "growth", figure
    if experiment.cases is not None:
        named = named_cases(experiment.cases)
        figure, panels = _panels(len(named))
        for axes, (word, case) in zip(panels, named, strict=True):
            _draw_case(axes, experiment.norms[case.norm], case, word)
        yield "cases", figure
    crossed = [(title, norm, g) for title, norm, g in groups if g.tables.crossings and g.tables.crossings.reversals]
    yield from _one("crossings", crossed, _draw_crossing)
    ranked = list(_rankings(groups, tier(max(experiment.budgets))))
    if ranked:
        figure, panels = _panels(len(ranked))
        for axes, (title, norm, found) in zip(panels, ranked, strict=True):
            axes.set_title(title)
            _draw_instability(axes, norm, found)
        yield "instability", figure
    yield from _one("curves", groups, _draw_defences)
    yield from _one("early-rejection", [entry for entry in groups if entry[2].tables.early_rejection], _draw_early)


def _one(name: str, groups: Sequence[tuple[str, str, Defences]], drawn: Any) -> Iterator[tuple[str, Figure]]:
    """One figure with a panel for each data set in each norm."""
    if groups:
        figure, panels = _panels(len(groups))
        for axes, (title, norm, group) in zip(panels, groups, strict=True):
            axes.set_title(title)
            drawn(axes, norm, group)
        yield name, figure


def _draw_growth(axes: Axes, part: NormExperiment, budgets: Sequence[int], *, legend: bool) -> None:
    found = part.attacks.growth
    for colour, (split, values) in zip(_COLOURS, found.splits.items(), strict=False):
        axes.plot(
            found.queries,
            [100 * value for value in values],
            color=colour,
            label=f"{'training' if split == 'train' else split} models",
        )
        at = dict(zip(found.queries, values, strict=True))
        axes.plot(budgets, [100 * at[budget] for budget in budgets], color=colour, linestyle="none", marker="o", ms=3)
    low = min(dict(zip(found.queries, values, strict=True))[budgets[0]] for values in found.splits.values())
    margin = max(1 - low, 0.002)
    axes.set_ylim(100 * (low - margin), 100 * (1 + 0.1 * margin))
    axes.set_xlim(0, 1.02 * max(budgets))
    axes.set_xticks(budgets, [tier(budget) for budget in budgets])
    axes.set_title(SYMBOLS[part.norm])
    axes.set_xlabel("queries per sample")
    axes.set_ylabel("mean AOI (%)")
    if legend:
        axes.legend(loc="lower right")


def _draw_case(axes: Axes, part: NormExperiment, case: Case, word: str) -> None:
    subject = part.subject(case.model)
    for colour, (budget, distances) in zip(_COLOURS, subject.tiers.items(), strict=False):
        _steps(axes, distances, color=colour, label=tier(budget))
    _steps(axes, subject.frontier, color=_INK, linewidth=0.7, linestyle="--", label="frontier of the pool")
    if subject.known is not None:
        axes.plot(subject.known.radii, subject.known.accuracies, "x", color=_RED, ms=4, label="AutoAttack", zorder=5)
    axes.set_title(f"{word}: {case.model} in {SYMBOLS[case.norm]} ({100 * case.gain:+.2f} points of AOI)")
    _curve_axes(axes, part.norm, _reach([subject.frontier, *subject.tiers.values()]))
    axes.legend()


def _draw_crossing(axes: Axes, norm: str, group: Defences) -> None:
    found = group.tables.crossings
    if found is None:
        return
    pair = found.reversals[0]
    distances = _last(group)
    for colour, model in zip(_COLOURS, (pair.leader, pair.overtaken_by), strict=False):
        _steps(axes, distances[model], color=colour, label=model)
    axes.axvline(found.reference, color=_INK, linewidth=0.7, linestyle="--")
    far = max(_reach([distances[pair.leader], distances[pair.overtaken_by]]), 1.3 * found.reference)
    _curve_axes(axes, norm, far)
    axes.legend()


def _rankings(groups: Sequence[tuple[str, str, Defences]], last: str) -> Iterator[tuple[str, str, Instability]]:
    """What the largest tier makes of every data set in every norm, then what AutoAttack does."""
    beside = any(group.tables.baseline_instability for _, _, group in groups)
    for title, norm, group in groups:
        if group.tables.instability:
            yield f"{title}, {last}" if beside else title, norm, group.tables.instability
    for title, norm, group in groups:
        if group.tables.baseline_instability:
            yield f"{title}, AutoAttack", norm, group.tables.baseline_instability.baseline


def _draw_instability(axes: Axes, norm: str, found: Instability) -> None:
    places = range(len(found.epsilons))
    most = sorted(found.moved, key=lambda model: -found.moved[model])[:_MOST_MOVED]
    for model, ranks in found.ranks.items():
        if model not in most:
            axes.plot(places, ranks, color=_GREY, linewidth=0.7)
    for colour, model in zip(_COLOURS, most, strict=False):
        axes.plot(places, found.ranks[model], color=colour, marker="o", ms=2, label=model)
    if found.reference is not None:
        at = next(k for k, ε in enumerate(found.epsilons) if np.isclose(ε, found.reference, rtol=1e-9, atol=0))
        axes.axvline(at, color=_INK, linewidth=0.7, linestyle="--")
    axes.set_xticks(list(places), [_short(ε) for ε in found.epsilons], rotation=60)
    axes.set_ylim(len(found.ranks) + 0.5, 0.5)
    axes.set_yticks(range(1, len(found.ranks) + 1, 1 + len(found.ranks) // 10))
    axes.set_xlabel(f"ε in {SYMBOLS[norm]}")
    axes.set_ylabel("rank")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1)


def _draw_defences(axes: Axes, norm: str, group: Defences) -> None:
    from matplotlib import colormaps  # noqa: PLC0415 - an optional extra
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415
    from matplotlib.colors import Normalize  # noqa: PLC0415

    distances = _last(group)
    last = max(group.subjects[0].tiers)
    rows = group.tables.doi.rows if group.tables.doi else ()
    scores = {row.model: row.dois[last] for row in rows if not row.bracketed(last)}
    scale = Normalize(100 * min(scores.values(), default=0.0), 100 * max(scores.values(), default=1.0))
    colours = colormaps["viridis"]
    for model, found in distances.items():
        if model in scores:
            _steps(axes, found, color=colours(scale(100 * scores[model])), linewidth=0.8)
        else:
            _steps(axes, found, color=_GREY, linewidth=0.8, linestyle=":", label=f"{model} (in doubt)")
    _steps(axes, group.frontier, color=_RED, linewidth=1.0, linestyle="--", label="defence frontier")
    _curve_axes(axes, norm, _reach([group.frontier]))
    axes.legend(loc="upper right")
    if scores and axes.figure is not None:
        bar = axes.figure.colorbar(ScalarMappable(scale, colours), ax=axes, shrink=0.8, aspect=25)
        bar.set_label("DOI (%)")


def _draw_early(axes: Axes, norm: str, group: Defences) -> None:
    found = group.tables.early_rejection
    if found is None:
        return
    by_name = {subject.model: subject for subject in group.subjects}
    above, below = by_name[found.reference].tiers[found.largest], by_name[found.candidate].tiers[found.tier]
    _steps(axes, above, color=_COLOURS[0], label=f"{found.reference} at {tier(found.largest)}")
    _steps(axes, below, color=_COLOURS[1], label=f"{found.candidate} at {tier(found.tier)}")
    _curve_axes(axes, norm, _reach([above, below]))
    axes.legend()


def _last(group: Defences) -> dict[str, NDArray[np.float64]]:
    """Distances by the largest tier."""
    return {subject.model: subject.tiers[max(subject.tiers)] for subject in group.subjects}


def _steps(axes: Axes, distances: NDArray[np.float64], **line: Any) -> None:
    curve = Curve.of(distances)
    ε = [*curve.epsilons, 1e9]  # a curve goes on at its last accuracy
    axes.plot(ε, [*curve.accuracies, curve.accuracies[-1]], drawstyle="steps-post", **line)


def _reach(rows: Sequence[NDArray[np.float64]]) -> float:
    """Where the last of these curves has fallen to a hundredth: the rest is a long tail of single samples."""
    finite = [row[np.isfinite(row)] for row in rows]
    return float(max((np.quantile(row, 0.99) for row in finite if row.size), default=1.0)) or 1.0


def _curve_axes(axes: Axes, norm: str, far: float) -> None:
    axes.set_xlim(0, far)
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"ε in {SYMBOLS[norm]}")
    axes.set_ylabel("robust accuracy")


def _short(ε: float) -> str:
    return size(ε) if ε == int(ε) else f"{ε:.3g}"


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(_WIDE * columns, _HIGH * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib as mpl  # noqa: PLC0415 - an optional extra

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield
