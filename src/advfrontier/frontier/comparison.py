"""Two models on the same samples: does one curve lie below the other, where do they cross, what to run next.

Distances only fall as queries are spent, so a curve only goes down. If one model's curve lies below the other's
everywhere, more queries on the lower one cannot reverse that against the other's record as it stands: the lower one
is rejected. With as many samples on both sides, "below everywhere" is the same as: the sorted distances are smaller
one by one. Where the curves cross, the areas may decide: an area only falls too, so a model whose area is smaller by
more than the choice of samples explains is rejected with as many queries as the other one had, or fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.frontier.confidence import Interval, aurec_difference_interval
from advfrontier.frontier.curve import aurec, check_limit
from advfrontier.frontier.measure import as_pair, check_same_samples, unbroken_flag
from advfrontier.pool import TIERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What a comparison needs to know of a record: distances per sample, and the tier they were found with."""

    name: str
    distances: ArrayLike
    samples: tuple[str, ...]
    queries: int


@dataclass(frozen=True)
class Comparison:
    """How two models compare, and what it would take to decide."""

    names: tuple[str, str]
    E: float
    aurec: tuple[float, float]  # of the first and the second, both up to E
    difference: Interval  # first less second
    lower: str | None  # the model whose curve lies below the other's everywhere
    smaller: str | None  # where the curves cross: the model that is rejected by its area
    crossings: tuple[float, ...]  # every ε where the lead passes from one to the other
    run_next: dict[str, int]  # model → tier to extend it to; empty if nothing is left to run or it is decided
    verdict: str
    flags: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether more queries on the rejected model could not change the order."""
        return self.lower is not None or self.smaller is not None


def compare(first: Evaluated, second: Evaluated, *, E: float | None = None, tiers: Sequence[int] = TIERS) -> Comparison:
    """Compare two models on the same samples, areas up to one common E (by default the largest finite distance)."""
    check_same_samples(first.samples, second.samples, names=(first.name, second.name))
    what = (f"distances of {first.name}", f"distances of {second.name}")
    a, b = as_pair(first.distances, second.distances, what=what)
    both = np.concatenate((a, b))
    limit = float(np.max(both, initial=0.0, where=np.isfinite(both))) if E is None else check_limit(E)
    crossed = crossings(a, b)
    difference = aurec_difference_interval(a, b, E=limit)
    below = _below(first, second)
    smaller = _smaller(first, second, difference) if crossed else None
    rejected, kept = below or smaller or (None, None)
    run_next = {} if rejected else _next(first, second, tiers)
    if rejected and kept:
        reason = _whole_curve(kept) if below else _area(kept, crossed, difference)
        verdict = _rejection(rejected, reason, tiers)
    else:
        verdict = _open(first, second, crossed, difference, run_next)
    flags = tuple(f"{model.name}: {flag}" for model, d in ((first, a), (second, b)) for flag in unbroken_flag(d))
    if kept and kept.queries < tiers[-1]:
        flags += (f"{kept.name} stands at {kept.queries} queries only, and at {tiers[-1]} its curve may be lower too",)
    return Comparison(
        names=(first.name, second.name),
        E=limit,
        aurec=(aurec(a, E=limit).value, aurec(b, E=limit).value),
        difference=difference,
        lower=below[0].name if below else None,
        smaller=smaller[0].name if smaller else None,
        crossings=crossed,
        run_next=run_next,
        verdict=verdict,
        flags=flags,
    )


def lies_below(first: ArrayLike, second: ArrayLike) -> bool:
    """Whether the first curve is nowhere above the second and somewhere below; both on equally many samples."""
    a, b = _both_sorted(first, second)
    return bool((a <= b).all() and (a < b).any())


def crossings(first: ArrayLike, second: ArrayLike) -> tuple[float, ...]:
    """Every ε at which the curve that was strictly lower before becomes the strictly higher one."""
    a, b = _both_sorted(first, second)
    steps = np.unique(np.concatenate((a, b)))
    steps = steps[np.isfinite(steps)]
    lead = np.sign(np.searchsorted(b, steps, side="right") - np.searchsorted(a, steps, side="right"))
    steps, lead = steps[lead != 0], lead[lead != 0]
    return tuple(steps[1:][lead[1:] != lead[:-1]].tolist())


def _both_sorted(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = as_pair(first, second, what=("distances of the first", "of the second"))
    return np.sort(a), np.sort(b)


def _below(first: Evaluated, second: Evaluated) -> tuple[Evaluated, Evaluated] | None:
    """The model below and the one above, if that is so everywhere."""
    pairs = ((first, second), (second, first))
    return next((pair for pair in pairs if lies_below(pair[0].distances, pair[1].distances)), None)


def _smaller(first: Evaluated, second: Evaluated, difference: Interval) -> tuple[Evaluated, Evaluated] | None:
    """The models of smaller and larger area, if other samples would not change that and more queries cannot."""
    small, large = (second, first) if difference.estimate > 0 else (first, second)
    certain = difference.low > 0 or difference.high < 0
    return (small, large) if certain and small.queries <= large.queries else None


def _next(first: Evaluated, second: Evaluated, tiers: Sequence[int]) -> dict[str, int]:
    """The next tier of the model with fewer queries, or of both where they are equal."""
    least = min(first.queries, second.queries)
    higher = [tier for tier in tiers if tier > least]
    return {model.name: higher[0] for model in (first, second) if model.queries == least} if higher else {}


def _rejection(rejected: Evaluated, reason: str, tiers: Sequence[int]) -> str:
    saved = tiers[-1] - rejected.queries
    return (
        f"reject {rejected.name}: its {reason}, and more queries on {rejected.name} (now {rejected.queries}) can only "
        "lower it" + (f"; {saved} queries per sample saved" if saved > 0 else "")
    )


def _whole_curve(kept: Evaluated) -> str:
    return f"curve lies below that of {kept.name} at {kept.queries} queries everywhere"


def _area(kept: Evaluated, crossed: tuple[float, ...], difference: Interval) -> str:
    by = sorted(abs(end) for end in (difference.low, difference.high))
    return (
        f"area is smaller than that of {kept.name} at {kept.queries} queries by {abs(difference.estimate):.4g} "
        f"({by[0]:.4g} to {by[1]:.4g} on other samples), although the curves cross ({_places(crossed)})"
    )


def _places(crossed: tuple[float, ...]) -> str:
    return f"{len(crossed)} times, first at ε = {crossed[0]:.4g}" if len(crossed) > 1 else f"at ε = {crossed[0]:.4g}"


def _open(
    first: Evaluated, second: Evaluated, crossed: tuple[float, ...], difference: Interval, run_next: dict[str, int]
) -> str:
    if not crossed:
        state = "the two curves are the same"
    else:
        larger, smaller = (first, second) if difference.estimate > 0 else (second, first)
        certain = "more than" if difference.low > 0 or difference.high < 0 else "within what"
        state = (
            f"the curves cross ({_places(crossed)}); the area of {larger.name} is larger than that of {smaller.name} "
            f"by {abs(difference.estimate):.4g}, {certain} other samples might change"
        )
    if run_next:
        todo = " and ".join(f"{name} to {tier}" for name, tier in run_next.items())
        return f"undecided: {state}; extend {todo}"
    return f"undecided: {state}; no further tier is left to run"
