"""Attack frontier and Attack Optimality Index (AOI): how close an attack is to its pool's best.

With K the samples classified correctly, d* the frontier and E = ε_min its largest finite distance,
the paper's ratio of areas is a ratio of sums, because both areas are clipped means (see `curve`):

    AOI(a) = (ρ(0)·E − AUREC_a) / (ρ(0)·E − AUREC_a*) = Σ_K (E − d)⁺ / Σ_K (E − d*)⁺

0 for an attack that always fails, 1 for one that is on the frontier everywhere. The AOI belongs to
its pool: another run moves d* and E, so values of different pools are not comparable. E is set by
the single most robust sample, which pushes all AOIs towards 1; the winsorised variant ends at the
95th percentile of d* instead.

Of an attack such as AutoAttack, which tells no distances, the curve is known at a few radii only.
The paper draws straight lines between these points, which over-estimates the area under a convex
curve and so under-estimates the AOI: the frontier itself, read off such lines, does not score
exactly 1. All that the points prove is that a curve never rises: between two radii it lies between
the two accuracies. Those two step functions bracket the area, and the AOI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import Curve, check_limit, distance_quantile, epsilon_min
from advfrontier.frontier.measure import (
    Measure,
    as_distances,
    as_pair,
    as_table,
    check_epsilon,
    unbroken_flag,
)

_WORST = 10.0  # times the frontier


def attack_frontier(distances: Sequence[ArrayLike] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return d*: the least distance any attack found, per sample. One row per attack.

    Args:
        distances: One row per attack, (attacks, n).
    """
    _, table = as_table({f"attack {i}": row for i, row in enumerate(distances)})
    return np.asarray(table.min(axis=0), dtype=np.float64)


def aoi(distances: ArrayLike, frontier: ArrayLike, *, E: float | None = None) -> Measure:
    """Return the AOI of one attack on one model, against the frontier of its pool.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        frontier: Distance per sample of the frontier, (n,).
        E: End of the area; by default ε_min of the frontier.
    """
    d, best = as_pair(distances, frontier)
    limit = epsilon_min(best).value if E is None else check_limit(E)
    correct = best > 0
    flags = unbroken_flag(best)
    if beaten := int((d < best).sum()):
        text = (
            f"the attack is below the frontier on {beaten} samples, because it is not in the "
            "frontier's pool: the AOI may exceed 1"
        )
        flags += (text,)
    reach = float(np.maximum(limit - best[correct], 0).sum())
    if reach == 0:
        return Measure(1.0, (*flags, degenerate(best, limit)))
    return Measure(float(np.maximum(limit - d[correct], 0).sum()) / reach, flags)


def excess(distances: ArrayLike, frontier: ArrayLike) -> float:
    """Return the mean distance over the mean frontier less 1, on attacked and broken samples.

    What is further than ten times the frontier, or was not found, counts as ten times. 0 where no
    sample counts.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        frontier: Distance per sample of the frontier, (n,).
    """
    d, best = as_pair(distances, frontier)
    counted = (best > 0) & (best < np.inf)
    return (
        float(np.minimum(d[counted] / best[counted], _WORST).mean()) - 1 if counted.any() else 0.0
    )


def degenerate(frontier: NDArray[np.float64], limit: float) -> str:
    """Return the reason why attacks cannot be distinguished below E.

    Args:
        frontier: Distance per sample of the frontier, (n,).
        limit: End of the area, in units of the norm.
    """
    if not (frontier > 0).any():
        return "no sample is classified correctly, so every attack is on the frontier: AOI set to 1"
    return (
        f"the frontier breaks no sample below E = {limit:g}, so every attack is on the "
        "frontier: AOI set to 1"
    )


def global_aoi(values: Mapping[str, Measure]) -> Measure:
    """Return the global AOI: the mean over models, each of equal weight whatever its samples.

    Args:
        values: Model to its AOI.
    """
    if not values:
        raise FrontierError('no model given: expected {"model": aoi(…), …} with at least one')
    figures, flags = [], []
    for model, measure in values.items():
        figures.append(measure.value)
        for flag in measure.flags:
            flags.append(f"{model}: {flag}")
    return Measure(float(np.mean(figures)), tuple(flags))


def winsorised_aoi(distances: ArrayLike, frontier: ArrayLike) -> Measure:
    """Return the AOI up to the 95th percentile of d*: an E that one outlier cannot set.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        frontier: Distance per sample of the frontier, (n,).
    """
    best = as_distances(frontier, what="frontier distances")
    broken = best[(best > 0) & np.isfinite(best)]
    return aoi(distances, best, E=distance_quantile(broken, 0.95) if broken.size else 0.0)


@dataclass(frozen=True)
class Contribution:
    """Contribution of one run, over the samples that are classified correctly and were broken.

    Args:
        run: Name of the run.
        wins: Samples on which it found the least distance, alone or with others.
        alone: Samples on which no other run comes as close.
        loss: Fall of the frontier's AOI, 1 by definition, without the run.
    """

    run: str
    wins: int
    alone: int
    loss: float


def contributions(
    distances: Mapping[str, ArrayLike], *, E: float | None = None
) -> tuple[Contribution, ...]:
    """Return leave-one-out losses and winner counts of every run, in the order given.

    Args:
        distances: Run to its distance per sample, (n,).
        E: End of the area; by default ε_min of the frontier.
    """
    names, table = as_table(distances)
    frontier = table.min(axis=0)
    limit = epsilon_min(frontier).value if E is None else check_limit(E)
    counted = (frontier > 0) & np.isfinite(frontier)
    d, best = table[:, counted], frontier[counted]
    second = np.partition(d, 1, axis=0)[1] if len(names) > 1 else np.full(best.size, np.inf)
    on_frontier = d == best
    sole = on_frontier & (second > best)
    reach = np.maximum(limit - best, 0).sum()
    lost = np.maximum(limit - best, 0) - np.maximum(limit - second, 0)
    return tuple(
        Contribution(
            name,
            int(on_frontier[i].sum()),
            int(sole[i].sum()),
            float(lost[sole[i]].sum() / reach) if reach else 0.0,
        )
        for i, name in enumerate(names)
    )


@dataclass(frozen=True)
class BaselineAOI:
    """AOI by straight lines, as in the paper, and the bracket that the known points prove.

    Args:
        value: AOI read off straight lines.
        low: Least AOI that the points allow.
        high: Largest AOI that the points allow.
        flags: Warnings, as sentences.
    """

    value: float
    low: float
    high: float
    flags: tuple[str, ...] = ()


def baseline_radii(frontier: ArrayLike, *, reference: float | None = None) -> NDArray[np.float64]:
    """Return the radii of the paper's baseline: nine percentiles of d* (10 … 90) and the reference.

    Each lies half-way between the distances of two samples. At a distance itself, an attack that
    finds the sample's point a hair farther away than the frontier would count as not breaking it.

    Args:
        frontier: Distance per sample of the frontier, (n,).
        reference: Reference radius to add, in units of the norm.
    """
    best = as_distances(frontier, what="frontier distances")
    broken = best[(best > 0) & np.isfinite(best)]
    if not broken.size:
        raise FrontierError(
            "no sample is both classified correctly and broken: there is no radius to run a "
            "baseline at"
        )
    inside = np.sort(broken)
    after = np.minimum(
        np.arange(1, 10) * inside.size // 10, inside.size - 1
    )  # the first that is not broken there
    radii = (np.append(0.0, inside)[after] + inside[after]) / 2
    return np.unique(radii if reference is None else [*radii, float(check_epsilon(reference))])


def baseline_aoi(epsilons: ArrayLike, accuracies: ArrayLike, frontier: ArrayLike) -> BaselineAOI:
    """AOI of an attack whose robust accuracy is known at these radii.

    The curve starts at (0, clean accuracy). Unless a radius beyond is known, the straight lines end
    with the frontier at (ε_min, 0); the bracket assumes nothing beyond the last known radius.

    Args:
        epsilons: Rising radii, (radii,).
        accuracies: Robust accuracy at every radius, (radii,).
        frontier: Distance per sample of the frontier, (n,).
    """
    best = as_distances(frontier, what="frontier distances")
    limit = epsilon_min(best).value
    ε, ρ, flags = _known_points(epsilons, accuracies, clean=float((best > 0).mean()))
    flags = unbroken_flag(best) + flags
    frontier_curve = Curve.of(best)
    if below := int((ρ < frontier_curve.at(ε) - 1e-9).sum()):
        text = (
            f"the attack is below the frontier at {below} radii, because it is not in the "
            "frontier's pool: the AOI may exceed 1"
        )
        flags += (text,)
    reach = float(np.maximum(limit - best[best > 0], 0).sum()) / best.size
    if reach == 0:
        return BaselineAOI(1.0, 1.0, 1.0, (*flags, degenerate(best, limit)))

    def score(area: float) -> float:
        return float((ρ[0] * limit - area) / reach)

    inside = ε < limit
    ε_in, ρ_in = np.append(ε[inside], limit), ρ[inside]
    if inside.all():
        at_limit, least = min(float(frontier_curve.at(limit)), ρ_in[-1]), 0.0
    else:
        at_limit, least = (
            float(np.interp(limit, ε, ρ)),
            ρ[~inside][0],
        )  # no lower than at the next known radius
    widths = np.diff(ε_in)
    straight = np.append(ρ_in, at_limit)
    return BaselineAOI(
        value=score(float(np.dot(widths, (straight[1:] + straight[:-1]) / 2))),
        low=score(float(np.dot(widths, ρ_in))),
        high=score(float(np.dot(widths, np.append(ρ_in[1:], least)))),
        flags=flags,
    )


def known_up_to(epsilons: ArrayLike, accuracies: ArrayLike) -> float:
    """Return how far the points determine the curve: to the last radius, or inf if it reached 0.

    Args:
        epsilons: Rising radii, (radii,).
        accuracies: Robust accuracy at every radius, (radii,).
    """
    return float("inf") if np.min(accuracies) == 0 else float(np.max(epsilons))


def straight_accuracies(
    epsilons: ArrayLike, accuracies: ArrayLike, at: ArrayLike, *, clean: float
) -> NDArray[np.float64]:
    """Return robust accuracies at other radii, on the straight lines that `baseline_aoi` draws.

    Args:
        epsilons: Rising radii, (radii,).
        accuracies: Robust accuracy at every radius, (radii,).
        at: Radii to read, (m,).
        clean: Accuracy on unperturbed samples, in [0, 1].
    """
    wanted = check_epsilon(at)
    reach = known_up_to(epsilons, accuracies)
    if (wanted > reach).any():
        raise FrontierError(
            f"ε = {wanted.max():g} asked for: expected at most {reach:g}, the last known radius"
        )
    ε, ρ, _ = _known_points(epsilons, accuracies, clean=clean)
    return np.asarray(np.interp(wanted, ε, ρ), dtype=np.float64)


def _known_points(
    epsilons: ArrayLike, accuracies: ArrayLike, *, clean: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    """Return the points sorted, from (0, clean accuracy), made never to rise."""
    ε, ρ = np.asarray(epsilons, dtype=np.float64), np.asarray(accuracies, dtype=np.float64)
    if (
        ε.ndim != 1
        or ε.shape != ρ.shape
        or ε.size == 0
        or not np.isfinite(ε).all()
        or (ε < 0).any()
    ):
        raise FrontierError(
            f"radii {ε.shape} and accuracies {ρ.shape}: expected as many finite radii ≥ 0 as "
            "accuracies, at least one"
        )
    if np.unique(ε).size < ε.size:
        raise FrontierError("a radius is given twice: expected one accuracy per radius")
    if not ((ρ >= 0) & (ρ <= 1)).all():
        raise FrontierError(
            f"accuracies go from {ρ.min()} to {ρ.max()}: expected shares in [0, 1], not per cent"
        )
    order = np.argsort(ε)
    ε, ρ = ε[order], ρ[order]
    if ε[0] > 0:
        ε, ρ = np.append(0.0, ε), np.append(clean, ρ)
    elif abs(ρ[0] - clean) > 1e-9:
        raise FrontierError(
            f"accuracy {ρ[0]} at ε = 0, but {clean} of the frontier's samples are correct: "
            "expected the same samples"
        )
    lowered = np.minimum.accumulate(ρ)
    if (lowered < ρ).any():
        return (
            ε,
            lowered,
            ("the accuracies rise with the radius somewhere; the lower of the two was taken",),
        )
    return ε, ρ, ()
