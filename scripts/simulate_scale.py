"""Simulate the cost of the paper's full experiment on 1, 8 and 64 GPUs.

A worker takes the next unit (one run on one shard of samples), loads the model if it is another
than before, works, stores, and may crash on the way; then the unit waits in front again. No attack
is run: throughputs and overheads are assumptions, but for the time to hand a unit over, which was
measured; all are options.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from dataclasses import dataclass, replace
from itertools import groupby, product

# Forward passes in multiply-adds per CIFAR-10 image; a backward pass to the image costs as much
# again. Two operations each. The counts make up 30 models like those of a public leaderboard.
ARCHITECTURES = {
    "ResNet-18": (0.56e9, 8),
    "WRN-28-10": (5.25e9, 12),
    "WRN-34-10": (6.67e9, 6),
    "WRN-70-16": (38.8e9, 4),
}
RUNS = 270  # per model, in all four norms
NORMS = 4
QUERIES = 1000
CHECKPOINTS = 100
DAY = 86400.0
SIZES = {"paper": 1000, "10 ×": 10_000}  # samples


@dataclass(frozen=True)
class World:
    """The machines and what they do besides passes."""

    gpus: int
    flops: float = 0.4 * 19.5e12  # an A100 in float32 at 40 % of its peak
    jitter: float = 0.05  # spread of a unit's time, as a share
    dispatch: float = 0.003  # seconds per unit to hand it over and take the outcome
    store: float = 0.05  # … to write it
    load: float = 15.0  # … to bring another model onto the GPU
    restart: float = 120.0  # … after a crash, until the worker is back
    failures: float = 0.0  # crashes per GPU and day


@dataclass(frozen=True)
class Unit:
    """One run on one shard of one model; units of a `group` may run at the same time."""

    model: int
    group: int
    work: float  # floating-point operations


@dataclass(frozen=True)
class Outcome:
    """What a simulated experiment took."""

    makespan: float
    useful: float  # seconds of all GPUs spent on passes that counted
    lost: float  # … on passes that a crash threw away
    crashes: int


def simulate(units: list[Unit], world: World, *, seed: int = 0) -> Outcome:
    """Give every free worker the next unit; a group begins when the one before is done."""
    draw = random.Random(seed)  # noqa: S311
    useful = lost = start = 0.0
    crashes = 0
    rate = world.failures / DAY
    holds: dict[int, int] = {}  # the model each worker has loaded
    for _, members in groupby(units, key=lambda unit: unit.group):
        waiting = deque(members)
        workers = [(start, worker) for worker in range(world.gpus)]
        heapq.heapify(workers)
        ends = [start]
        while waiting:
            now, worker = heapq.heappop(workers)
            unit = waiting.popleft()
            begin = now + world.dispatch + (world.load if holds.get(worker) != unit.model else 0.0)
            holds[worker] = unit.model
            length = unit.work / world.flops * max(0.5, draw.gauss(1.0, world.jitter))
            crash = draw.expovariate(rate) if rate else float("inf")
            if crash < length:
                waiting.appendleft(unit)
                crashes, lost = crashes + 1, lost + crash
                del holds[worker]
                heapq.heappush(workers, (begin + crash + world.restart, worker))
                continue
            useful += length
            ends.append(begin + length + world.store)
            heapq.heappush(workers, (ends[-1], worker))
        start = max(ends)
    return Outcome(start, useful, lost, crashes)


def experiment(*, samples: int, shard: int, apart: bool) -> list[Unit]:
    """Return the units of 30 models in four norms, in one queue or (`apart`) in many."""
    models = [cost for cost, count in ARCHITECTURES.values() for _ in range(count)]
    random.Random(1).shuffle(models)  # noqa: S311
    units = []
    for number, cost in enumerate(models):
        for run in range(RUNS):
            group = NORMS * number + NORMS * run // RUNS if apart else 0
            sizes = [min(shard, samples - first) for first in range(0, samples, shard)]
            units += [Unit(number, group, 2 * cost * QUERIES * size) for size in sizes]
    return units


def row(label: str, samples: int, shard: int, world: World, *, apart: bool) -> str:
    """One line of a table."""
    units = experiment(samples=samples, shard=shard, apart=apart)
    found = simulate(units, world)
    each = f"{found.lost / found.crashes / 60:.1f} min" if found.crashes else "–"
    return (
        f"| {label} | {world.gpus} | {len(units):,} | {found.makespan / DAY:.2f} d "
        f"| {found.useful / (found.makespan * world.gpus):.2%} | {found.crashes} | {each} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--flops", type=float, default=World.flops, help="sustained operations per second of a GPU"
    )
    parser.add_argument("--shard", type=int, default=250, help="samples per unit")
    parser.add_argument(
        "--dispatch", type=float, default=World.dispatch, help="seconds per unit to hand it over"
    )
    parser.add_argument(
        "--store", type=float, default=World.store, help="seconds per unit to write it"
    )
    parser.add_argument("--load", type=float, default=World.load, help="seconds to load a model")
    parser.add_argument("--failures", type=float, default=0.2, help="crashes per GPU and day")
    options = parser.parse_args()
    head = (
        "| | GPUs | units | makespan | busy | crashes | lost per crash "
        "|\n|---|---:|---:|---:|---:|---:|---:|"
    )
    calm = World(
        1, flops=options.flops, dispatch=options.dispatch, store=options.store, load=options.load
    )
    rough = replace(calm, failures=options.failures)
    print(head)
    ways = (
        ("one by one", calm, True),
        ("one queue", calm, False),
        ("one queue, crashes", rough, False),
    )
    for (name, samples), gpus, (way, world, apart) in product(SIZES.items(), (1, 8, 64), ways):
        print(row(f"{name}, {way}", samples, options.shard, replace(world, gpus=gpus), apart=apart))
    print(f"\n{head}")
    for shard in (50, 100, 250, 1000):
        print(row(f"paper, shards of {shard}", 1000, shard, replace(rough, gpus=64), apart=False))
    print(
        "\n| architecture | passes per second | unit of the paper's experiment |\n|---|---:|---:|"
    )
    for name, (cost, _) in ARCHITECTURES.items():
        rate = options.flops / (2 * cost)
        print(f"| {name} | {rate:,.0f} | {options.shard * QUERIES / rate / 60:.1f} min |")
    print()
    for name, samples in SIZES.items():
        trajectories = sum(count for _, count in ARCHITECTURES.values()) * RUNS * samples
        plain, points = 8 * CHECKPOINTS * trajectories / 1e9, 4 * 3 * 32 * 32 * trajectories / 1e9
        print(
            f"disk, {name}: {plain:.1f} GB of trajectories; {plain + points:.0f} GB with every "
            "best point"
        )


if __name__ == "__main__":
    main()
