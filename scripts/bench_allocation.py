"""Time and memory of `allocate` to 4k, 8k and 12k with certificates, at 1×, 2× and 4× the samples, runs and levels.

    OMP_NUM_THREADS=1 python scripts/bench_allocation.py

1× samples is 100 runs × 10 levels × 17 models × 1000 samples. Runs and levels are scaled with 250 samples per model, so that 4× needs
no more memory than that. Every size is measured in a process of its own, the better of two times counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.frontier import Trajectories, allocate

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = 17
ATTACKS = ("pdpgd", "pdgd", "fmn", "apgd_min-ce", "apgd_min-dlr", "alma", "ddn")
VARIANTS = ("", *(f":restart{k}" for k in range(1, 6)), *(f":target{k}" for k in range(1, 10)))


def run_names(count: int) -> list[str]:
    """As many run names as asked for: the attacks with all their variants, then made-up attacks."""
    attacks = [*ATTACKS, *(f"solver{k}" for k in range(count))]
    return [attack + variant for attack in attacks for variant in VARIANTS][:count]


def trajectories(names: list[str], levels: list[int], samples: int, *, seed: int = 0) -> Iterator[Trajectories]:
    """Models whose runs differ in where they end, how fast they get there and when they first succeed."""
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
        yield Trajectories.best_so_far(names, levels, d, [str(i) for i in range(samples)])


def measure(runs: int, levels: int, samples: int) -> dict[str, object]:
    """Allocate once or twice and report."""
    steps = [1000 * k // levels for k in range(1, levels + 1)]
    traces = list(trajectories(run_names(runs), steps, samples))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        ensembles = allocate(traces, norm="L2", levels=steps)
        times.append(time.perf_counter() - start)
    return {
        "seconds": round(min(times), 2),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "tiers": [[e.total, round(e.aoi or 0, 5), round(e.bound or 0, 5)] for e in ensembles],
    }


def main() -> None:
    """Measure everything, or one size when called for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, type=int, metavar=("RUNS", "LEVELS", "SAMPLES"))
    one = parser.parse_args().one
    if one:
        print(json.dumps(measure(*one)))
        return
    sizes = {
        "samples": [(100, 10, 1000 * k) for k in (1, 2, 4)],
        "runs": [(100 * k, 10, 250) for k in (1, 2, 4)],
        "levels": [(100, 10 * k, 250) for k in (1, 2, 4)],
    }
    for axis, three in sizes.items():
        first = 0.0
        for factor, size in zip((1, 2, 4), three, strict=True):
            command = [sys.executable, __file__, "--one", *map(str, size)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
            first = first or found["seconds"]
            ratio = found["seconds"] / first
            print(
                f"{axis:8} {factor}×  {size}  {found['seconds']:6.2f} s  {ratio:4.1f}×  {found['gigabytes']} GB  {found['tiers']}"
            )


if __name__ == "__main__":
    main()
