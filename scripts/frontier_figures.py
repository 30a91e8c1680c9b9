"""Print the figures of docs/frontier.md: quality of allocations, coverage of intervals.

    OMP_NUM_THREADS=1 python scripts/frontier_figures.py

The random instances are those of tests/frontier, which assert the limits these figures must keep.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
from scipy import stats

from advfrontier.frontier import curve_margin, wilson
from advfrontier.frontier.confidence import ratio_intervals

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "frontier"))
instances = import_module("frontier_instances")

BUDGET = 4000
DRAWS = 4000
OTHER_DRAWS = 1000  # BCa is slow


def allocation_figures() -> None:
    """Print greedy, swaps and upper bounds against the exact optimum."""
    rows = []
    for seed in range(200):
        p, first, better, best, loose, tight = instances.solved(seed, BUDGET)
        values = np.array([p.aoi(first), p.aoi(better), tight, loose])
        rows.append(values / p.aoi(best))
    names = ("greedy", "greedy with swaps", "upper bound", "upper bound without steps")
    for name, ratios in zip(names, np.array(rows).T, strict=True):
        print(
            f"{name:26} mean {ratios.mean():.4f}  least {ratios.min():.4f}  most {ratios.max():.4f}"
        )


def wilson_figures() -> None:
    """Print the exact coverage over p of Wilson's interval, and of its modification.

    Brown, Cai and DasGupta, "Interval estimation for a binomial proportion" (2001).
    """
    for n in (100, 1000):
        low, high = np.array(
            [(i.low, i.high) for i in (wilson(count, n) for count in range(n + 1))]
        ).T
        print(f"Wilson, n = {n}: {exact_coverage(low, high)}")
        low[1:4] = stats.chi2.ppf(0.05, [2, 4, 6]) / 2 / n
        high[n - 3 : n] = 1 - low[3:0:-1]
        print(f"modified Wilson, n = {n}: {exact_coverage(low, high)}")


def exact_coverage(low: np.ndarray, high: np.ndarray) -> str:
    """Return how often intervals, one per count, hold p, and where that is not 92 to 98 %."""
    counts, low, high = np.arange(low.size)[:, None], low[:, None], high[:, None]
    p = np.linspace(0.01, 0.99, 98_001)
    held = [
        np.where(
            (low <= part) & (part <= high), stats.binom.pmf(counts, low.size - 1, part), 0
        ).sum(axis=0)
        for part in np.array_split(p, 50)
    ]
    coverage = np.concatenate(held)
    outside = p[((coverage < 0.92) | (coverage > 0.98)) & (p < 0.5)]
    where = (
        f"; outside 92–98 % for p in [{outside.min():.5f}, {outside.max():.5f}]"
        if outside.size
        else ""
    )
    return f"{coverage.min():.2%} to {coverage.max():.2%}, mean {coverage.mean():.2%}{where}"


def bootstrap_figures() -> None:
    """Print the coverage of the studentised intervals, and for n = 100 of the others."""
    for figure in instances.COLUMNS:
        for n in (100, 1000):
            truth, u, w = instances.simulated(figure, n, DRAWS)
            held: list[bool] = []
            for first in range(0, DRAWS, 500):
                columns = u[first : first + 500], w[first : first + 500]
                limits = [(-np.inf, np.inf)] * 500
                for interval in ratio_intervals(*columns, limits=limits, seed=first):
                    held.append(bool(interval.low <= truth <= interval.high))
            print(f"{figure}, n = {n}: studentised {np.mean(held):.1%}", flush=True)
        truth, u, w = instances.simulated(figure, 100, OTHER_DRAWS)
        print(f"{figure}, n = 100: {other_intervals(truth, u, w)}", flush=True)


def other_intervals(truth: float, u: np.ndarray, w: np.ndarray) -> str:
    """Return the coverage of the normal interval and of scipy's percentile and BCa intervals."""
    ratio = u.mean(axis=1) / w.mean(axis=1)
    error = np.std(u - ratio[:, None] * w, axis=1, ddof=1) / np.sqrt(u.shape[1]) / w.mean(axis=1)
    parts = [f"normal {np.mean(np.abs(ratio - truth) <= 1.96 * error):.1%}"]
    for method in ("percentile", "BCa"):
        held: list[bool] = []
        for first in range(0, len(u), 50):
            interval = stats.bootstrap(
                (u[first : first + 50], w[first : first + 50]),
                lambda u, w, axis: u.mean(axis=axis) / w.mean(axis=axis),
                paired=True,
                axis=1,
                n_resamples=1000,
                method=method,
                rng=np.random.default_rng(first),
            ).confidence_interval
            held += ((interval.low <= truth) & (truth <= interval.high)).tolist()
        parts.append(f"{method} {np.mean(held):.1%}")
    return ", ".join(parts)


def main() -> None:
    """Print everything."""
    allocation_figures()
    wilson_figures()
    for n in (100, 1000):
        print(
            f"band, n = {n}: {stats.kstwo.cdf(curve_margin(n), n):.2%} in the least favourable case"
        )
    bootstrap_figures()


if __name__ == "__main__":
    main()
