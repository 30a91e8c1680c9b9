"""Measure time and memory of `allocate` at 1×, 2× and 4× the samples, runs and levels.

    OMP_NUM_THREADS=1 python scripts/bench_allocation.py

It allocates to 4k, 8k and 12k with upper bounds. 1× is 100 runs × 10 levels × 17 models × 1000
samples. Larger problems repeat the same data (samples again, runs under further names, levels that
add nothing), so that the search makes the same moves and only the size differs. Each time is the
best of three first calls, in a process of its own. Times are CPU times, in one thread; the part of
the operating system, which allocates memory, is printed as well.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from advfrontier.frontier import Trajectories, allocate

MODELS = 17
ATTACKS = ("pdpgd", "pdgd", "fmn", "apgd_ce", "apgd_dlr", "alma", "ddn")
VARIANTS = ("", *(f":restart{k}" for k in range(1, 6)), *(f":target{k}" for k in range(1, 10)))


def run_names(copy: int) -> list[str]:
    """Return a hundred run names; further copies stand for other attacks."""
    attacks = [f"{attack}{copy}" if copy else attack for attack in ATTACKS]
    return [attack + variant for attack in attacks for variant in VARIANTS][:100]


def trajectories(
    names: list[str], levels: list[int], samples: int, *, seed: int = 0
) -> Iterator[Trajectories]:
    """Yield models whose runs differ in their last distance, their speed and their first
    success.
    """
    rng = np.random.default_rng(seed)
    spent = np.array(levels)[:, None]
    for _ in range(MODELS):
        truth = rng.lognormal(0, 0.5, samples)
        misclassified = rng.random(samples) < 0.12
        traits: dict[str, tuple[float, float]] = {}
        d = np.empty((len(names), len(levels), samples))
        for row, name in enumerate(names):
            attack, _, variant = name.partition(":")
            gap, pace = traits.setdefault(attack, (rng.uniform(0.02, 0.25), rng.uniform(100, 500)))
            end = truth * (1 + gap * rng.exponential(0.5, samples) * (rng.random(samples) < 0.6))
            if variant.startswith("target"):
                unlikely = 1 - 0.5 ** int(variant.removeprefix("target"))
                end *= 1 + (rng.random(samples) < unlikely) * rng.exponential(0.5, samples)
            pace_of_sample = pace * rng.lognormal(0, 0.4, samples)
            d[row] = end * (1 + 3 * np.exp(-spent / pace_of_sample))
            d[row][spent < 0.3 * pace_of_sample] = np.inf
        d[:, :, misclassified] = 0
        yield Trajectories.best_so_far(names, levels, d, [str(i) for i in range(samples)], "L2")


def enlarged(traces: Trajectories, *, samples: int, runs: int, levels: int) -> Trajectories:
    """Repeat the samples, runs or levels of trajectories."""
    d = np.tile(traces.distances, (runs, 1, samples))
    later = np.repeat(d, levels, axis=1)  # level k again until the level after it ...
    shifted = np.concatenate([np.full_like(d[:, :1], np.inf)] * (levels - 1) + [later], axis=1)[
        :, : later.shape[1]
    ]
    shifted[:, :, d[0, 0] == 0] = 0
    return Trajectories(
        tuple(name for copy in range(runs) for name in run_names(copy)),
        np.arange(1, 10 * levels + 1) * (100 // levels),
        shifted,
        tuple(str(i) for i in range(d.shape[2])),
        "L2",
    )


def measure(axis: str, factor: int) -> dict[str, Any]:
    """Allocate once and return what it took."""
    factors = {"samples": 1, "runs": 1, "levels": 1} | {axis: factor}
    traces = [
        enlarged(t, **factors)
        for t in trajectories(run_names(0), list(range(100, 1001, 100)), 1000)
    ]
    before = resource.getrusage(resource.RUSAGE_SELF)
    ensembles = allocate(traces, levels=traces[0].queries.tolist())
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        "system": after.ru_stime - before.ru_stime,
        "gigabytes": round(after.ru_maxrss / 1e6, 2),
        "tiers": [[e.total, round(e.aoi or 0, 5), round(e.bound or 0, 5)] for e in ensembles],
    }


def main() -> None:
    """Measure everything."""
    sizes = [
        ("samples", 1),
        *((axis, factor) for axis in ("samples", "runs", "levels") for factor in (2, 4)),
    ]
    first = 0.0
    apart = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    for axis, factor in sizes:
        found = min(
            (apart.submit(measure, axis, factor).result() for _ in range(3)),
            key=lambda one: one["seconds"],
        )
        first = first or found["seconds"]
        print(
            f"{axis:8} {factor}×  {found['seconds']:5.2f} s ({found['seconds'] / first:.2f}×), of "
            f"which system {found['system']:.2f} s; {found['gigabytes']} GB",
            flush=True,
        )
        print(f"         total, AOI, bound: {found['tiers']}", flush=True)


if __name__ == "__main__":
    main()
