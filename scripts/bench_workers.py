"""Measure how much faster two one-thread workers are than one, in processes and on Ray."""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from advfrontier import Machine, Traces, trace
from advfrontier.sources import load_data

RUNS = [
    "fmn",
    "apgd_min-ce",
    "apgd_min-dlr",
    "pdpgd",
    "fmn:restart1",
    "fmn:restart2",
    "apgd_min-ce:restart1",
    "fmn:target1",
]


def traced(workers: int, ray: str | None) -> tuple[float, Traces]:
    """Return seconds and result of tracing eight runs on two models; starts included."""
    samples = load_data("fashion-mnist", samples=200)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for name in ("F3", "F6"):
            found = trace(
                f"zoo:{name}",
                samples,
                norm="Linf",
                runs=RUNS,
                out=Path(folder) / name,
                machine=Machine(threads=1, workers=workers, ray=ray),
            )
        return time.perf_counter() - started, found


def main() -> None:
    """Print the ratios."""
    for ray, what in ((None, "processes"), *([("local", "Ray")] if "ray" in sys.argv[1:] else [])):
        (one, first), (two, second) = (traced(workers, ray) for workers in (1, 2))
        same = np.array_equal(first.distances, second.distances)
        print(
            f"{what}: one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast, same "
            f"bits: {same}"
        )


if __name__ == "__main__":
    main()
