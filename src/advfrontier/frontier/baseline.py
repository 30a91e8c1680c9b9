"""AOI of an attack known at a few radii only, such as AutoAttack, which tells no distances.

The paper draws straight lines between the known points, which over-estimates the area under a convex curve and so
under-estimates the AOI: the frontier itself, read off such lines, does not score exactly 1. All that the points prove
is that a curve never rises: between two radii it lies between the two accuracies. Those two step functions bracket the
area, and the AOI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import Curve, epsilon_min
from advfrontier.frontier.measure import as_distances, check_epsilon, unbroken_flag
from advfrontier.frontier.optimality import degenerate


@dataclass(frozen=True)
class BaselineAOI:
    """AOI by straight lines, as in the paper, and the bracket that the known points prove."""

    value: float
    low: float
    high: float
    flags: tuple[str, ...] = ()


def baseline_radii(frontier: ArrayLike, *, reference: float | None = None) -> NDArray[np.float64]:
    """The radii at which the paper runs its baseline: nine percentiles of d* (10 … 90) and the reference ε.

    Each lies half-way between the distances of two samples. At a distance itself, whoever finds that sample's point a
    hair farther away than the frontier would count as not breaking it.
    """
    best = as_distances(frontier, what="frontier distances")
    broken = best[(best > 0) & np.isfinite(best)]
    if not broken.size:
        raise FrontierError(
            "no sample is both classified correctly and broken: there is no radius to run a baseline at"
        )
    inside = np.sort(broken)
    after = np.minimum(np.arange(1, 10) * inside.size // 10, inside.size - 1)  # the first that is not broken there
    radii = (np.append(0.0, inside)[after] + inside[after]) / 2
    return np.unique(radii if reference is None else [*radii, float(check_epsilon(reference))])


def baseline_aoi(epsilons: ArrayLike, accuracies: ArrayLike, frontier: ArrayLike) -> BaselineAOI:
    """AOI of an attack whose robust accuracy is known at these radii.

    The curve starts at (0, clean accuracy). Unless a radius beyond is known, the straight lines end with the frontier
    at (ε_min, 0); the bracket assumes nothing beyond the last known radius.
    """
    best = as_distances(frontier, what="frontier distances")
    limit = epsilon_min(best).value
    ε, ρ, flags = _known_points(epsilons, accuracies, clean=float((best > 0).mean()))
    flags = unbroken_flag(best) + flags
    frontier_curve = Curve.of(best)
    if below := int((ρ < frontier_curve.at(ε) - 1e-9).sum()):
        flags += (f"the attack is below the frontier at {below} radii, so its pool lacks it and the AOI may pass 1",)
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
        at_limit, least = float(np.interp(limit, ε, ρ)), ρ[~inside][0]  # no lower than at the next known radius
    widths = np.diff(ε_in)
    straight = np.append(ρ_in, at_limit)
    return BaselineAOI(
        value=score(float(np.dot(widths, (straight[1:] + straight[:-1]) / 2))),
        low=score(float(np.dot(widths, ρ_in))),
        high=score(float(np.dot(widths, np.append(ρ_in[1:], least)))),
        flags=flags,
    )


def known_up_to(epsilons: ArrayLike, accuracies: ArrayLike) -> float:
    """How far the points tell the curve: to the last radius, or for ever if nothing is robust any more."""
    return float("inf") if np.min(accuracies) == 0 else float(np.max(epsilons))


def straight_accuracies(
    epsilons: ArrayLike, accuracies: ArrayLike, at: ArrayLike, *, clean: float
) -> NDArray[np.float64]:
    """Robust accuracy at other radii, off the straight lines that `baseline_aoi` draws; only as far as points go."""
    wanted = check_epsilon(at)
    reach = known_up_to(epsilons, accuracies)
    if (wanted > reach).any():
        raise FrontierError(f"ε = {wanted.max():g} asked for: expected at most {reach:g}, the last known radius")
    ε, ρ, _ = _known_points(epsilons, accuracies, clean=clean)
    return np.asarray(np.interp(wanted, ε, ρ), dtype=np.float64)


def _known_points(
    epsilons: ArrayLike, accuracies: ArrayLike, *, clean: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    """Return the points sorted, from (0, clean accuracy), made never to rise."""
    ε, ρ = np.asarray(epsilons, dtype=np.float64), np.asarray(accuracies, dtype=np.float64)
    if ε.ndim != 1 or ε.shape != ρ.shape or ε.size == 0 or not np.isfinite(ε).all() or (ε < 0).any():
        raise FrontierError(
            f"radii {ε.shape} and accuracies {ρ.shape}: expected as many finite radii ≥ 0 as accuracies, at least one"
        )
    if np.unique(ε).size < ε.size:
        raise FrontierError("a radius is given twice: expected one accuracy per radius")
    if not ((ρ >= 0) & (ρ <= 1)).all():
        raise FrontierError(f"accuracies go from {ρ.min()} to {ρ.max()}: expected shares in [0, 1], not per cent")
    order = np.argsort(ε)
    ε, ρ = ε[order], ρ[order]
    if ε[0] > 0:
        ε, ρ = np.append(0.0, ε), np.append(clean, ρ)
    elif abs(ρ[0] - clean) > 1e-9:
        raise FrontierError(
            f"accuracy {ρ[0]} at ε = 0, but {clean} of the frontier's samples are correct: expected the same samples"
        )
    lowered = np.minimum.accumulate(ρ)
    if (lowered < ρ).any():
        return ε, lowered, ("the accuracies rise with the radius somewhere; the lower of the two was taken",)
    return ε, ρ, ()
