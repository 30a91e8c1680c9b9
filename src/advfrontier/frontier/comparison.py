"""Models on the same samples, curve against curve.

Two of them: does one curve lie below the other, where do they cross, what to run next. Many: how
their order changes with the ε at which robust accuracy is read.

Distances only fall as queries are spent, so a curve only goes down, and so does the area under it.
A model whose curve lies below another's everywhere is rejected if it has spent at most as many
queries as the other: running both equally far can only confirm it. If it has spent more, the other
may still fall below it, and is to be extended first. With as many samples on both sides, "below
everywhere" is the same as: the sorted distances are smaller one by one. Where the curves cross, an
area that is smaller by more than the choice of samples explains decides by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from advfrontier.errors import FrontierError
from advfrontier.flags import doubts
from advfrontier.frontier.confidence import Interval, aurec_difference_interval
from advfrontier.frontier.curve import aurec, check_limit, never_broken
from advfrontier.frontier.measure import (
    Evaluated,
    as_pair,
    as_table,
    check_epsilon,
    check_same_samples,
    unbroken_flag,
)
from advfrontier.pool import TIERS, tier_label

_BOTH = ("distances of the first", "of the second")


@dataclass(frozen=True)
class Comparison:
    """Comparison of two models, and the queries that would decide it.

    Args:
        names: Names of both models.
        E: Common end of the areas, in units of the norm.
        aurec: Area under each curve.
        difference: Area of the first less the second, with its interval.
        lower: Name of the model whose curve lies below, if one does.
        rejected: Name of the rejected model, if one is.
        crossings: Each ε at which the order of the curves changes.
        run_next: Model to the queries to extend it to.
        verdict: The result in one sentence.
        flags: Warnings, as sentences.
    """

    names: tuple[str, str]
    E: float
    aurec: tuple[
        float, float
    ]  # of the first and the second, both up to E; NaN where no run broke any sample
    difference: Interval  # first less second
    lower: str | None  # the model whose curve lies below the other's everywhere
    rejected: str | None  # by its whole curve, or where the curves cross by its area
    crossings: tuple[float, ...]  # every ε where the lead passes from one to the other
    run_next: dict[
        str, int
    ]  # model → queries to extend it to; empty if it is decided or nothing is left to run
    verdict: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RankStability:
    """Ranks of the models at every ε, and how far each model moves.

    Args:
        models: Names of the models.
        epsilons: Radii, (radii,).
        accuracies: Robust accuracies, (models, radii).
        ranks: Ranks from 1 (most robust), (models, radii); equal accuracies share the better one.
        moved: Model to the places between its best and worst rank, as far as ties leave no doubt.
    """

    models: tuple[str, ...]
    epsilons: NDArray[np.float64]
    accuracies: NDArray[np.float64]
    ranks: NDArray[np.int64]
    moved: dict[str, int]


@dataclass(frozen=True)
class Reversal:
    """Pair whose order at the reference ε is reversed beyond it.

    Args:
        leader: Model that is ahead at the reference radius.
        overtaken_by: Model that is ahead beyond.
        epsilon: Radius from which on it is ahead.
        lead: Largest lead of that model beyond, a share of the samples.
    """

    leader: str
    overtaken_by: str
    epsilon: float
    lead: float


@dataclass(frozen=True)
class _Order:
    """Order of two models, and the reason."""

    below: Evaluated
    above: Evaluated
    reason: str  # such as "curve lies below that of A at 12k queries everywhere"

    @property
    def sound(self) -> bool:
        """Return whether the upper model had as many queries; otherwise it may still fall."""
        return self.below.queries <= self.above.queries

    @property
    def verdict(self) -> str:
        """Name the model to reject, or to extend first."""
        below, above = self.below, self.above
        saved = max(below.tiers, default=0) - below.queries
        if not self.sound:
            return (
                f"extend {above.model} to {_spent(below)}: {below.model} at {_spent(below)} "
                f"stands lower (its {self.reason}), but {above.model} has had "
                f"{tier_label(above.queries)} only and may still fall"
            )
        return (
            f"reject {below.model}: its {self.reason}, and more queries on {below.model} (now "
            f"{tier_label(below.queries)}) can only lower it"
            f"{f'; {tier_label(saved)} queries per sample saved' if saved > 0 else ''}"
        )


def compare(first: Evaluated, second: Evaluated, *, E: float | None = None) -> Comparison:
    """Compare two models on the same samples, areas up to one common E.

    Args:
        first: One model.
        second: Another one, on the same samples.
        E: Common end of the areas; by default the largest finite distance.
    """
    if first.norm != second.norm:
        raise FrontierError(
            f"{first.model} was evaluated in {first.norm}, {second.model} in {second.norm}: "
            "expected the same norm"
        )
    check_same_samples(first.samples, second.samples, names=(first.model, second.model))
    a, b = first.distances, second.distances
    both = np.concatenate((a, b))
    limit = (
        float(np.max(both, initial=0.0, where=np.isfinite(both))) if E is None else check_limit(E)
    )
    crossed = crossings(a, b)
    difference = aurec_difference_interval(a, b, E=limit)
    order, why = _order(first, second, crossed, difference)
    run_next = _next(first, second, order)
    todo = " and ".join(
        f"{name} to {tier_label(queries)} queries" for name, queries in run_next.items()
    )
    todo = f"extend {todo}" if run_next else "no further tier is left to run"
    return Comparison(
        names=(first.model, second.model),
        E=limit,
        aurec=(aurec(a, E=limit).value, aurec(b, E=limit).value),
        difference=difference,
        lower=first.model if lies_below(a, b) else second.model if lies_below(b, a) else None,
        rejected=order.below.model if order and order.sound else None,
        crossings=crossed,
        run_next=run_next,
        verdict=order.verdict if order else f"undecided: {why}; {todo}",
        flags=_flags(first, second, order),
    )


def lies_below(first: ArrayLike, second: ArrayLike) -> bool:
    """Return whether the first curve is nowhere above the second and somewhere below.

    Args:
        first: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never broken.
        second: Distances of another model, (n,).
    """
    a, b = np.sort(as_pair(first, second, what=_BOTH))
    return bool((a <= b).all() and (a < b).any())


def crossings(first: ArrayLike, second: ArrayLike) -> tuple[float, ...]:
    """Every ε at which the curve that was strictly lower before becomes the strictly higher one.

    Args:
        first: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never broken.
        second: Distances of another model, (n,).
    """
    a, b = np.sort(as_pair(first, second, what=_BOTH))
    steps = np.unique(np.concatenate((a, b)))
    steps = steps[np.isfinite(steps)]
    lead = np.sign(
        np.searchsorted(b, steps, side="right") - np.searchsorted(a, steps, side="right")
    )
    steps, lead = steps[lead != 0], lead[lead != 0]
    return tuple(steps[1:][lead[1:] != lead[:-1]].tolist())


def _order(
    first: Evaluated, second: Evaluated, crossed: tuple[float, ...], difference: Interval
) -> tuple[_Order | None, str]:
    """Return the order of the curves, or of areas where curves cross; else None and the reason."""
    if unknown := [model.model for model in (first, second) if never_broken(model.distances)]:
        return None, f"no run broke any sample of {' or of '.join(unknown)}"
    for low, high in ((first, second), (second, first)):
        if lies_below(low.distances, high.distances):
            return _Order(
                low, high, f"curve lies below that of {high.model} at {_spent(high)} everywhere"
            ), ""
    if not crossed:
        return None, "the two curves are the same"
    times = f"{len(crossed)} times, first " if len(crossed) > 1 else ""
    cross, gap = (
        f"the curves cross ({times}at ε = {crossed[0]:.4g})",
        f"{abs(difference.estimate):.4g}",
    )
    if not difference.known or not difference.estimate:
        return (
            None,
            (
                f"{cross}, and "
                f"{'the areas are equal' if difference.known else 'there is no area to compare'}"
            ),
        )
    small, large = (second, first) if difference.estimate > 0 else (first, second)
    if difference.low <= 0 <= difference.high:
        return None, (
            f"{cross}; the area of {large.model} is larger than that of {small.model} by {gap}, "
            "within what other samples might change"
        )
    by = sorted(abs(end) for end in (difference.low, difference.high))
    reason = (
        f"area is smaller than that of {large.model} at {_spent(large)} by {gap} "
        f"({by[0]:.4g} to {by[1]:.4g} on other samples), although {cross}"
    )
    return _Order(small, large, reason), ""


def _next(first: Evaluated, second: Evaluated, order: _Order | None) -> dict[str, int]:
    """Return the queries to extend to, per model that may still fall or has fewer queries."""
    if order is not None:
        return {} if order.sound else {order.above.model: order.below.queries}
    least = min(first.queries, second.queries)
    behind = [model for model in (first, second) if model.queries == least]
    for tier in TIERS:
        if tier > least and all(tier in model.tiers for model in behind):
            return {model.model: tier for model in behind}
    return {}


def _spent(model: Evaluated) -> str:
    return f"{tier_label(model.queries)} queries"


def _flags(first: Evaluated, second: Evaluated, order: _Order | None) -> tuple[str, ...]:
    """Return what puts either model in doubt, and whether the model that is kept may fall too."""
    flags = []
    for model in (first, second):
        for flag in (*doubts(model.flags), *unbroken_flag(model.distances)):
            flags.append(f"{model.model}: {flag}")
    if (
        order is not None
        and order.sound
        and (higher := max(order.above.tiers, default=0)) > order.above.queries
    ):
        kept = order.above
        flags.append(
            f"{kept.model} was evaluated with {_spent(kept)} only; with {tier_label(higher)} its "
            "curve may be lower too"
        )
    return tuple(flags)


def rank_stability(
    distances: Mapping[str, ArrayLike], *, epsilons: ArrayLike | None = None
) -> RankStability:
    """Rank the models at these ε, or at every ε where any curve drops, which misses nothing.

    Where curves are equal (all are 0 in the end) models share a rank. A move counts only if it does
    not depend on how such ties are broken: from the last place a model may hold at one ε to the
    first it may hold at another. Far out a rank is decided by single samples: the paper reads ranks
    at ten radii, which `baseline_radii` gives for the defence frontier.

    Args:
        distances: Model to its distance per sample, (n,).
        epsilons: Radii, (radii,); by default each at which a curve drops.
    """
    names, table = as_table(distances)
    grid = np.unique(
        np.append(table[np.isfinite(table)], 0.0) if epsilons is None else check_epsilon(epsilons)
    )
    if grid.size == 0 or not np.isfinite(grid).all():
        raise FrontierError(
            "radii must be finite: expected at least one, such as [2 / 255, 4 / 255, 8 / 255]"
        )
    robust = _robust(table, grid) / table.shape[1]
    return rank_accuracies(dict(zip(names, robust, strict=True)), epsilons=grid)


def rank_accuracies(accuracies: Mapping[str, ArrayLike], *, epsilons: ArrayLike) -> RankStability:
    """Rank models by robust accuracies at rising radii, as AutoAttack gives them.

    Args:
        accuracies: Model to its robust accuracy at every radius, (radii,).
        epsilons: Rising radii, (radii,).
    """
    grid = check_epsilon(epsilons)
    rows = [np.asarray(row, dtype=np.float64) for row in accuracies.values()]
    if (
        not rows
        or grid.ndim != 1
        or (np.diff(grid) <= 0).any()
        or any(row.shape != grid.shape for row in rows)
    ):
        raise FrontierError(
            f"{len(rows)} models at radii of shape {grid.shape}: expected at least one, each with "
            "an accuracy at every radius, in rising order"
        )
    names, table = tuple(accuracies), np.stack(rows)
    score = -np.round(table, 12)  # equal accuracies that were rounded differently stay equal
    first, last = (rankdata(score, method=tie, axis=0).astype(np.int64) for tie in ("min", "max"))
    moved = np.maximum(first.max(axis=1) - last.min(axis=1), 0)
    return RankStability(names, grid, table, first, dict(zip(names, moved.tolist(), strict=True)))


def reversals(distances: Mapping[str, ArrayLike], *, reference: float) -> tuple[Reversal, ...]:
    """Return the pairs whose curves cross beyond the reference ε, largest reversal first.

    A lead of one or two samples is chance: look for one that the curve's band does not cover.

    Args:
        distances: Model to its distance per sample, (n,).
        reference: Reference radius, in units of the norm.
    """
    names, table = as_table(distances)
    steps = np.unique(np.append(table[np.isfinite(table)], check_epsilon(reference)))
    later = steps[steps >= reference]
    robust = _robust(table, later)
    found = []
    for i, j in combinations(range(len(names)), 2):
        ahead, behind = (i, j) if robust[i, 0] > robust[j, 0] else (j, i)
        gap = (robust[behind] - robust[ahead]) / table.shape[1]
        if gap[0] < 0 and gap.max() > 0:
            found.append(
                Reversal(
                    names[ahead],
                    names[behind],
                    float(later[int(np.argmax(gap > 0))]),
                    float(gap.max()),
                )
            )
    return tuple(
        sorted(found, key=lambda reversal: (-reversal.lead, reversal.leader, reversal.overtaken_by))
    )


def _robust(table: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the samples of each model that are robust at each ε; integers keep ties exact."""
    return np.stack([row.size - np.searchsorted(np.sort(row), grid, side="right") for row in table])
