"""Measure how soon our curve is as good as AutoAttack's: queries and time, ours over its.

AutoAttack gives the accuracy at the radii it is run at: here ten, nine percentiles of the frontier
and a usual one, on a model of the zoo. Its AOI is read off straight lines between them, and proven
to lie between two ends. The ensemble is read every 100 queries, which are exact prefixes; the first
whose AOI, off the same lines, is no less than AutoAttack's counts, and the first that by all its
distances reaches even the upper end of what AutoAttack's points leave open. The frontier of both is
the ensemble's own at `--frontier` queries.

Queries are forward plus backward passes per sample, the setup of the ensemble included; time is CPU
time in one process.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from bench_nets import Net, attacked, nets, one_thread, report
from numpy.typing import NDArray

from advfrontier.attacks.autoattack import NORMS, attack_at
from advfrontier.engine.unit import advance
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.optimality import BaselineAOI, aoi, baseline_aoi, baseline_radii
from advfrontier.pool import CHECKPOINT
from advfrontier.table import Column, Table
from advfrontier.zoo import REFERENCE_RADII

SETUP = 2  # queries of the clean pass
SLICE = 100  # queries between two readings
BAR = 0.2


def run_ensemble(net: Net, norm: str, queries: int) -> tuple[NDArray[np.float64], list[float]]:
    """Return distances after every slice, and the seconds until then, clean pass included."""
    started, seconds = time.process_time(), []
    with attacked(net, norm) as subject:
        unit = subject.unit(str(queries))
        for stop in range(SLICE, queries + 1, SLICE):
            advance(subject.oracle, unit, stop)
            seconds.append(time.process_time() - started)
    every = SLICE // CHECKPOINT
    distances: NDArray[np.float64] = unit.trajectory[every - 1 :: every].numpy()
    return distances, seconds


def run_autoattack(
    net: Net, norm: str, frontier: NDArray[np.float64], radii: NDArray[np.float64]
) -> tuple[BaselineAOI, float, float]:
    """Return AutoAttack's AOI over these radii, its queries per sample and its seconds."""
    accuracies, queries, started = [], 0, time.process_time()
    for radius in radii:
        found = attack_at(
            net.model,
            net.images,
            net.labels,
            norm=norm,
            radius=float(radius),
            batch_size=len(frontier),
        )
        accuracies.append(float(found.robust.mean()))
        queries += found.counts["attack"]
    return (
        baseline_aoi(radii, accuracies, frontier),
        queries / len(frontier),
        time.process_time() - started,
    )


def compare(net: Net, norm: str, options: argparse.Namespace) -> tuple[Any, ...]:
    """Return a row: AutoAttack's AOI, and when the ensemble has reached the same."""
    distances, taken = run_ensemble(net, norm, options.frontier)
    frontier = distances[-1]
    radii = baseline_radii(frontier, reference=REFERENCE_RADII[norm][1])
    theirs, queries, seconds = run_autoattack(net, norm, frontier, radii)
    by_lines = [
        baseline_aoi(radii, Curve.of(found).at(radii), frontier).value for found in distances
    ]
    exact = [aoi(found, frontier).value for found in distances]
    cells: list[Any] = [norm, round(theirs.value, 4), round(theirs.high, 4), round(queries)]
    for scores, wanted in ((by_lines, theirs.value), (exact, min(theirs.high, 1.0))):
        reached = next((k for k, score in enumerate(scores) if score >= wanted), None)
        if reached is None:
            cells += [None, None, None]
        else:
            spent = SETUP + (reached + 1) * SLICE
            cells += [spent, round(spent / queries, 4), round(taken[reached] / seconds, 4)]
    missed = cells[5] is None or cells[5] > BAR or cells[6] > BAR
    print(f"  {norm}: {cells}", file=sys.stderr, flush=True)
    return (*cells, "above" if missed else "")


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="F3", help="of the zoo")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument(
        "--frontier",
        type=int,
        default=8000,
        help="queries of the ensemble that the AOI is measured by",
    )
    parser.add_argument("--norms", nargs="*", default=list(NORMS))
    options = parser.parse_args()
    one_thread()
    (net,) = nets([(f"zoo:{options.model}", options.images)])
    rows = [compare(net, norm, options) for norm in options.norms]
    columns = (
        Column("norm", "norm"),
        Column("AutoAttack's AOI", "number"),
        Column("at most", "number", key="AOI at most"),
        Column("its queries", "integer"),
        Column("ours for the AOI", "integer"),
        Column("over its", "number"),
        Column("time over its", "number"),
        Column("ours for the most", "integer"),
        Column("over its ", "number", key="most over its"),
        Column("time over its ", "number", key="most time"),
        Column("", key="missed"),
    )
    notes = (
        (
            f"{options.model}, {options.images} samples, queries per sample; bar {BAR} for queries "
            "and "
            "time"
        ),
        "`at most` is the upper end of what AutoAttack's ten points leave open",
    )
    report(
        "time_to_aoi",
        Table("Until the curve is as good as AutoAttack's", columns, tuple(rows), notes),
    )
    return 1 if any(row[-1] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
