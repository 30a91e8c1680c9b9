"""How soon a race's curve is as good as AutoAttack's: queries and time, ours over AutoAttack's.

AutoAttack tells the accuracy at the radii it is run at: here ten, nine percentiles of the frontier and a usual one, on
a model of the zoo. Its AOI is read off straight lines between them, and proven to lie between two ends. The race is
read every 100 queries, which are exact prefixes; the first whose AOI is no less than AutoAttack's counts, and the
first that reaches even the upper end of what AutoAttack's points leave open. The frontier of both is the race's own at
`--frontier` queries.

Queries are forward plus backward passes per sample, the setup of the race included; time is CPU time in one process.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_nets import find_net, one_thread, report

from advfrontier.attacks.autoattack import NORMS, attack_at
from advfrontier.engine import Oracle, advance_race, clean_pass, start_race, start_unit
from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi, baseline_radii
from advfrontier.frontier.optimality import aoi
from advfrontier.pool import CHECKPOINT, SLICE, Race, Run, find_ensemble
from advfrontier.table import Column, Table
from advfrontier.threat.norms import get_norm
from advfrontier.zoo import REFERENCE_RADII

if TYPE_CHECKING:
    from bench_nets import Net
    from numpy.typing import NDArray

    from advfrontier.engine import Unit

SETUP = 2  # queries of the clean pass
BAR = 0.2


@dataclass(frozen=True)
class RaceCurve:
    """What a race has found after every slice, and the seconds it had taken by then."""

    distances: NDArray[np.float64]  # (slices, samples)
    seconds: NDArray[np.float64]


def run_race(net: Net, norm_name: str, queries: int) -> RaceCurve:
    """A race slice by slice, the clean pass included."""
    norm, started = get_norm(norm_name), time.process_time()
    with Oracle(net.model) as oracle:
        clean = clean_pass(oracle, net.images, net.labels, norm, batch_size=len(net.images))

        def begin(name: str) -> Unit:
            return start_unit(oracle, Run.parse(name), net.images, clean, norm=norm, seed=42)

        race = find_ensemble(queries, norm_name, clean.classes)
        if not isinstance(race, Race):
            sys.exit(f"{queries} queries in {norm_name} are not a race")
        unit, seconds = start_race(race, begin), []
        for stop in range(SLICE, queries + 1, SLICE):
            advance_race(oracle, unit, stop)
            seconds.append(time.process_time() - started)
    every = SLICE // CHECKPOINT
    return RaceCurve(unit.trajectory[every - 1 :: every].numpy(), np.array(seconds))


def run_autoattack(net: Net, norm: str, frontier: NDArray[np.float64]) -> tuple[BaselineAOI, float, float]:
    """AutoAttack's AOI over ten radii, its queries per sample and its seconds."""
    accuracies, queries, started = [], 0, time.process_time()
    radii = baseline_radii(frontier, reference=REFERENCE_RADII[norm][1])
    for radius in radii:
        found = attack_at(net.model, net.images, net.labels, norm=norm, radius=float(radius), batch_size=len(frontier))
        accuracies.append(found.accuracy)
        queries += found.counts["attack"]
    return baseline_aoi(radii, accuracies, frontier), queries / len(frontier), time.process_time() - started


def first(scores: list[float], wanted: float) -> int | None:
    """The slice after which the score is no less than this."""
    return next((k for k, score in enumerate(scores) if score >= wanted), None)


def compare(net: Net, norm: str, options: argparse.Namespace) -> tuple[Any, ...]:
    """A row: what AutoAttack reaches, and when the race has reached the same."""
    curve = run_race(net, norm, options.frontier)
    frontier = curve.distances[-1]
    theirs, queries, seconds = run_autoattack(net, norm, frontier)
    scores = [aoi(found, frontier).value for found in curve.distances]
    cells: list[Any] = [norm, round(theirs.value, 4), round(theirs.high, 4), round(queries)]
    for wanted in (theirs.value, min(theirs.high, 1.0)):
        k = first(scores, wanted)
        if k is None:
            cells += [None, None, None]
            continue
        spent = SETUP + (k + 1) * SLICE
        cells += [spent, round(spent / queries, 4), round(float(curve.seconds[k]) / seconds, 4)]
    missed = cells[5] is None or cells[5] > BAR or cells[6] > BAR
    print(f"  {norm}: {cells}", file=sys.stderr, flush=True)
    return (*cells, "above" if missed else "")


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="F3", help="of the zoo")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--frontier", type=int, default=8000, help="queries of the race that the AOI is measured by")
    parser.add_argument("--norms", nargs="*", default=list(NORMS))
    options = parser.parse_args()
    one_thread()
    net = find_net(f"zoo:{options.model}", options.images)
    if net is None:
        return 2
    rows = [compare(net, norm, options) for norm in options.norms]
    columns = (
        Column("norm", "norm"), Column("AutoAttack's AOI", "number"), Column("at most", "number", key="AOI at most"),
        Column("its queries", "integer"), Column("ours for the AOI", "integer"), Column("over its", "number"),
        Column("time over its", "number"), Column("ours for the most", "integer"),
        Column("over its ", "number", key="most over its"), Column("time over its ", "number", key="most time"),
        Column("", key="missed"),
    )  # fmt: skip
    notes = (
        f"{options.model}, {options.images} samples, queries per sample; bar {BAR} for queries and time",
        "`at most` is the upper end of what AutoAttack's ten points leave open",
    )
    report("time_to_aoi", Table("Until the curve is as good as AutoAttack's", columns, tuple(rows), notes))
    return 1 if any(row[-1] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
