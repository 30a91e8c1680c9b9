"""Confidence: what n samples can say about the samples not seen.

All intervals are about drawing other samples from the same source. None is about stronger attacks,
which can only lower a curve, and none covers choosing the ensemble on these very samples.

Robust accuracy at one ε is a proportion: Wilson's interval. The whole curve is one minus a
distribution function: the band of Dvoretzky, Kiefer, Wolfowitz and Massart holds for all ε at once
and any n. AUREC, its differences, AOI and DOI are all ratios of two means over the same samples,
mean(u) / mean(w), and a mean DOI over norms is a mean of such ratios, so one bootstrap serves them:
draw samples with replacement, the same ones for every model and norm, and form all replicates with
one matrix product. The interval is the studentised one, each replicate measured in its own standard
error: for the AOI of 100 samples it keeps to 95 % where normal, percentile and BCa intervals cover
89 to 92 % (scripts/frontier_figures.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import aurec, check_limit
from advfrontier.frontier.measure import as_distances, as_pair, check_epsilon

LEVEL = 0.95  # of all intervals
RESAMPLES = 2000
BATCH = 4_000_000  # drawn samples held at a time


@dataclass(frozen=True)
class Interval:
    """Estimate and the interval around it.

    Args:
        estimate: The figure; NaN where it is not known.
        low: Lower end.
        high: Upper end.
        flags: Warnings, as sentences.
        level: Confidence level.
    """

    estimate: float
    low: float
    high: float
    flags: tuple[str, ...] = ()
    level: float = LEVEL

    @classmethod
    def unknown(cls, *flags: str) -> Interval:
        """Neither a figure nor an interval: all NaN, and the reasons.

        Args:
            flags: Reasons, as sentences.
        """
        return cls(math.nan, math.nan, math.nan, flags=flags)

    @property
    def known(self) -> bool:
        """Return whether there is a figure at all."""
        return not math.isnan(self.estimate)


def robust_accuracy_interval(distances: ArrayLike, epsilon: float) -> Interval:
    """Return Wilson's interval for robust accuracy at one ε; for many use `curve_margin`.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        epsilon: Perturbation size, in units of the norm.
    """
    d = as_distances(distances)
    return wilson(int((d > check_epsilon(epsilon)).sum()), d.size)


def wilson(count: int, n: int) -> Interval:
    """Return Wilson's interval for a proportion of `count` out of n.

    With n = 100 its exact coverage is 92–98 % at every p in [0.01, 0.99] at which that is possible.
    Just above 0.01 it is not, for any interval: one that holds p at the counts 0–3 covers more than
    98 %, at 0–2 less than 92 %.

    Args:
        count: Number of successes.
        n: Number of trials.
    """
    if not (n > 0 and 0 <= count <= n):
        raise FrontierError(f"{count} of {n} is no proportion: expected 0 ≤ count ≤ n and n > 0")
    found = binomtest(count, n).proportion_ci(LEVEL, method="wilson")
    return Interval(count / n, float(found.low), float(found.high))


def curve_margin(n: int) -> float:
    """Return half the width of the band that holds the whole true curve, all ε at once.

    Args:
        n: Number of samples.
    """
    return math.sqrt(math.log(2 / (1 - LEVEL)) / (2 * n))


def aurec_interval(distances: ArrayLike, *, E: float) -> Interval:
    """Interval for AUREC up to an E fixed beforehand; unknown where there is no AUREC.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        E: End of the area, in units of the norm.
    """
    area = aurec(distances, E=E)
    if math.isnan(area.value):
        return Interval.unknown(*area.flags)
    d = np.minimum(as_distances(distances), E)[None, :]
    return ratio_intervals(d, np.ones_like(d), limits=[(0.0, E)])[0]


def aurec_difference_interval(first: ArrayLike, second: ArrayLike, *, E: float) -> Interval:
    """Return the interval for AUREC of the first less the second, both on the same samples.

    Args:
        first: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never broken.
        second: Distances of another model on the same samples, (n,).
        E: End of the area, in units of the norm.
    """
    a, b = as_pair(first, second, what=("distances of the first", "of the second"))
    if missing := [area for area in (aurec(a, E=E), aurec(b, E=E)) if math.isnan(area.value)]:
        return Interval.unknown(*missing[0].flags)
    gap = (np.minimum(a, E) - np.minimum(b, E))[None, :]
    return ratio_intervals(gap, np.ones_like(gap), limits=[(-E, E)])[0]


def aoi_interval(distances: ArrayLike, frontier: ArrayLike, *, E: float) -> Interval:
    """Interval for the AOI up to an E fixed beforehand.

    E must be given: with E the largest distance among these samples, another draw has another E and
    the AOI estimates nothing in particular, so no interval for it would be honest. Given that very
    E, the interval answers a smaller question: how the AOI up to that E would vary.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        frontier: Distance per sample of the frontier, (n,).
        E: End of the area, in units of the norm.
    """
    d, best = as_pair(distances, frontier)
    correct = best > 0
    reached = np.where(correct, np.maximum(check_limit(E) - d, 0.0), 0.0)[None, :]
    reach = np.where(correct, np.maximum(E - best, 0.0), 0.0)[None, :]
    top = np.inf if (d < best).any() else 1.0
    return ratio_intervals(reached, reach, limits=[(0.0, top)])[0]


def ratio_intervals(
    u: NDArray[np.float64],
    w: NDArray[np.float64],
    *,
    limits: Sequence[tuple[float, float]],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Interval]:
    """Return studentised bootstrap intervals for mean(u) / mean(w), one per row.

    Arrays (part, row, sample) give intervals for the mean over the parts of such ratios. `limits`
    are the smallest and the largest value each can have: where too few samples differ to tell more,
    the interval reaches them. Where none does, 1 − tail^(1/n) of all samples may still differ (n =
    100: 3.6 %), and the interval is what that share, of ordinary weight and as different as
    possible, would change.

    Args:
        u: Numerators per sample, (rows, n) or (parts, rows, n).
        w: Denominators per sample, of the same shape.
        limits: Least and largest possible value per row.
        resamples: Number of bootstrap resamples.
        seed: Random seed.
    """
    u, w = (part.reshape(-1, *part.shape[-2:]) for part in (u, w))
    rows, n = u.shape[1:]
    moments, of = _moments(u, w), u.shape[:2]
    estimate, error = (found[0] for found in _mean_ratio(moments.mean(axis=0)[None, :], of, n))
    replicates = [
        _mean_ratio(weights @ moments, of, n) for weights in resampled(n, resamples, seed)
    ]
    values, errors = (np.concatenate(found) for found in zip(*replicates, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.sort(np.where(values == estimate, 0.0, (values - estimate) / errors), axis=0)
    tail = (1 - LEVEL) / 2
    below, above = (
        t[int(np.floor(tail * (resamples - 1)))],
        t[int(np.ceil((1 - tail) * (resamples - 1)))],
    )
    unseen = 1 - tail ** (1 / n)
    return [
        _interval(estimate[k], error[k], (below[k], above[k]), limits[k], unseen=unseen)
        for k in range(rows)
    ]


def resampled(n: int, resamples: int, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Yield batches of resamples: rows say how often each sample was drawn, over n.

    Args:
        n: Number of samples.
        resamples: Number of bootstrap resamples.
        seed: Random seed.
    """
    if resamples < 1:
        raise FrontierError(
            f"{resamples} resamples: expected at least 1, for an interval 1000 or more"
        )
    rng = np.random.default_rng(seed)
    step = max(1, BATCH // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(n, size=(size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n) / n


def _interval(
    estimate: float,
    error: float,
    tails: tuple[float, float],
    limits: tuple[float, float],
    *,
    unseen: float,
) -> Interval:
    value = float(estimate)
    if not np.isfinite(value):
        return Interval(
            1.0, *limits, ("there is nothing to compare with: the index is 1 by definition",)
        )
    if error == 0:
        low, high = (value + unseen * (limit - value) for limit in limits)
        flag = "all samples agree: the interval allows for a few others that do not"
        return Interval(value, low, high, (flag,))
    low, high = value - tails[1] * error, value - tails[0] * error
    flags: tuple[str, ...] = ()
    if not (np.isfinite(low) and np.isfinite(high)):
        flags = (
            "too few samples differ for an interval: an unknown end is the least or largest value",
        )
    low = float(np.clip(low, *limits)) if np.isfinite(low) else limits[0]
    high = float(np.clip(high, *limits)) if np.isfinite(high) else limits[1]
    return Interval(value, low, high, flags)


def _moments(u: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the moments of ratios per sample: u, w, and the products of every two parts."""
    products = [a[:, None] * b[None, :] for a, b in ((u, u), (u, w), (w, w))]
    columns = (u, w, *products)
    return np.concatenate([column.reshape(-1, u.shape[-1]) for column in columns]).T


def _mean_ratio(
    moments: NDArray[np.float64], of: tuple[int, ...], n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over parts of mean(u) / mean(w), and its standard error (delta method)."""
    parts, rows = of
    ends = np.cumsum([parts * rows] * 2 + [parts * parts * rows] * 2)
    u, w, uu, uw, ww = np.split(moments, ends, axis=1)
    u, w = (mean.reshape(-1, parts, rows) for mean in (u, w))
    uu, uw, ww = (mean.reshape(-1, parts, parts, rows) for mean in (uu, uw, ww))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = u / w
        first, second = ratio[:, :, None], ratio[:, None, :]
        over = w[:, :, None] * w[:, None, :] * parts**2
        spread = (uu - second * uw - first * uw.swapaxes(1, 2) + first * second * ww) / over
        variance, size = (
            spread.sum(axis=(1, 2)),
            ((uu + first * second * ww) / over).sum(axis=(1, 2)),
        )
        # What rounding leaves of a variance that is zero would otherwise pass for a tiny error.
        variance = np.where(variance <= 1e-14 * size, 0.0, variance)
        return ratio.mean(axis=1), np.sqrt(variance / max(n - 1, 1))
