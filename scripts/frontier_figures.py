"""The measured figures of docs/frontier.md: how good allocations are, and how often intervals hold the truth.

    OMP_NUM_THREADS=1 python scripts/frontier_figures.py

The random instances are those of tests/frontier, which assert the limits these figures must keep.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy import stats

from advfrontier.frontier import curve_margin, wilson
from advfrontier.frontier.confidence import ratio_intervals

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "frontier"))
from frontier_instances import COLUMNS, simulated, solved

BUDGET = 4000
DRAWS = 4000
OTHER_DRAWS = 1000  # BCa is slow


def allocation_figures() -> None:
    """Greedy, swaps and certificates against the exact optimum."""
    rows = []
    for seed in range(200):
        p, first, better, best, loose, tight = solved(seed, BUDGET)
        rows.append([value / p.aoi(best) for value in (p.aoi(first), p.aoi(better), tight, loose)])
    names = ("greedy", "greedy with swaps", "certificate", "certificate without steps")
    for name, ratios in zip(names, np.array(rows).T, strict=True):
        print(
            f"{name:26} mean {ratios.mean():.4f}  least {ratios.min():.4f}  most {ratios.max():.4f}"
        )


def wilson_figures() -> None:
    """Exact coverage over p of Wilson's interval, and of its modification by Brown, Cai and DasGupta (2001)."""
    for n in (100, 1000):
        low, high = np.array(
            [(i.low, i.high) for i in (wilson(count, n) for count in range(n + 1))]
        ).T
        print(f"Wilson, n = {n}: {exact_coverage(low, high)}")
        low[1:4] = stats.chi2.ppf(0.05, [2, 4, 6]) / 2 / n
        high[n - 3 : n] = 1 - low[3:0:-1]
        print(f"modified Wilson, n = {n}: {exact_coverage(low, high)}")


def exact_coverage(low: np.ndarray, high: np.ndarray) -> str:
    """How often intervals, one per count, hold p for p from 0.01 to 0.99, and where that leaves 92 to 98 %."""
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
    """Coverage of the studentised intervals, and for n = 100 of the others."""
    for figure in COLUMNS:
        for n in (100, 1000):
            truth, u, w = simulated(figure, n, DRAWS)
            found = [
                interval.low <= truth <= interval.high
                for part in range(0, DRAWS, 500)
                for interval in ratio_intervals(
                    u[part : part + 500],
                    w[part : part + 500],
                    limits=[(-np.inf, np.inf)] * 500,
                    seed=part,
                )
            ]
            print(f"{figure}, n = {n}: studentised {np.mean(found):.1%}", flush=True)
        truth, u, w = simulated(figure, 100, OTHER_DRAWS)
        print(f"{figure}, n = 100: {other_intervals(truth, u, w)}", flush=True)


def other_intervals(truth: float, u: np.ndarray, w: np.ndarray) -> str:
    """Coverage of the normal interval and of scipy's percentile and BCa intervals."""
    ratio = u.mean(axis=1) / w.mean(axis=1)
    error = np.std(u - ratio[:, None] * w, axis=1, ddof=1) / np.sqrt(u.shape[1]) / w.mean(axis=1)
    told = [f"normal {np.mean(np.abs(ratio - truth) <= 1.96 * error):.1%}"]
    for method in ("percentile", "BCa"):
        held = []
        for part in range(0, len(u), 50):
            interval = stats.bootstrap(
                (u[part : part + 50], w[part : part + 50]),
                lambda u, w, axis: u.mean(axis=axis) / w.mean(axis=axis),
                paired=True, axis=1, n_resamples=1000, method=method, rng=np.random.default_rng(part),
            ).confidence_interval  # fmt: skip
            held += ((interval.low <= truth) & (truth <= interval.high)).tolist()
        told.append(f"{method} {np.mean(held):.1%}")
    return ", ".join(told)


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
