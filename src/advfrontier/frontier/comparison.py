"""Two models on the same samples: does one curve lie below the other, where do they cross, what to run next.

Distances only fall as queries are spent, so a curve only goes down. If one model's curve lies below the other's
everywhere, more queries on the lower one cannot reverse that against the other's record as it stands: the lower one
is rejected. With as many samples on both sides, "below everywhere" is the same as: the sorted distances are smaller
one by one.
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
    crossings: tuple[float, ...]  # every ε where the lead passes from one to the other
    run_next: dict[str, int]  # model → tier to extend it to; empty if nothing is left to run or it is decided
    verdict: str
    flags: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether more queries on the lower model could not change the order."""
        return self.lower is not None


def compare(first: Evaluated, second: Evaluated, *, E: float | None = None, tiers: Sequence[int] = TIERS) -> Comparison:
    """Compare two models on the same samples, areas up to one common E (by default the largest finite distance)."""
    check_same_samples(first.samples, second.samples, names=(first.name, second.name))
    what = (f"distances of {first.name}", f"distances of {second.name}")
    a, b = as_pair(first.distances, second.distances, what=what)
    both = np.concatenate((a, b))
    limit = float(np.max(both, initial=0.0, where=np.isfinite(both))) if E is None else check_limit(E)
    lower, other = _lower(first, second)
    crossed = crossings(a, b)
    difference = aurec_difference_interval(a, b, E=limit)
    run_next = {} if lower else _next(first, second, tiers)
    if lower and other:
        verdict = _rejection(lower, other, tiers)
    else:
        verdict = _open(first, second, crossed, difference, run_next)
    flags = tuple(f"{model.name}: {flag}" for model, d in ((first, a), (second, b)) for flag in unbroken_flag(d))
    if lower and other and other.queries < tiers[-1]:
        flags += (
            f"{other.name} stands at {other.queries} queries only, and at {tiers[-1]} its curve may be lower too",
        )
    return Comparison(
        names=(first.name, second.name),
        E=limit,
        aurec=(aurec(a, E=limit).value, aurec(b, E=limit).value),
        difference=difference,
        lower=lower.name if lower else None,
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


def _lower(first: Evaluated, second: Evaluated) -> tuple[Evaluated, Evaluated] | tuple[None, None]:
    """The model below and the one above, if that is so everywhere."""
    if lies_below(first.distances, second.distances):
        return first, second
    if lies_below(second.distances, first.distances):
        return second, first
    return None, None


def _next(first: Evaluated, second: Evaluated, tiers: Sequence[int]) -> dict[str, int]:
    """The next tier of the model with fewer queries, or of both where they are equal."""
    least = min(first.queries, second.queries)
    higher = [tier for tier in tiers if tier > least]
    return {model.name: higher[0] for model in (first, second) if model.queries == least} if higher else {}


def _rejection(lower: Evaluated, other: Evaluated, tiers: Sequence[int]) -> str:
    saved = tiers[-1] - lower.queries
    return (
        f"reject {lower.name}: its curve at {lower.queries} queries lies below that of {other.name} at {other.queries} "
        f"everywhere, and more queries on {lower.name} can only lower it"
        + (f"; {saved} queries per sample saved" if saved > 0 else "")
    )


def _open(
    first: Evaluated, second: Evaluated, crossed: tuple[float, ...], difference: Interval, run_next: dict[str, int]
) -> str:
    if not crossed:
        state = "the two curves are the same"
    else:
        larger, smaller = (first, second) if difference.estimate > 0 else (second, first)
        certain = "more than" if difference.low > 0 or difference.high < 0 else "within"
        state = (
            f"the curves cross ({len(crossed)} times, first at ε = {crossed[0]:g}); the area of {larger.name} is "
            f"larger than that of {smaller.name} by {abs(difference.estimate):g}, {certain} other samples might change"
        )
    if run_next:
        todo = " and ".join(f"{name} to {tier}" for name, tier in run_next.items())
        return f"undecided: {state}; extend {todo}"
    return f"not decided by one curve lying below the other: {state}; no further tier is left to run"
