"""Overhead of every solver and of a race: time of a run over time of the same number of bare passes.

One thread; a batch of 100 on the zoo's F3 (28×28) and of 64 on a residual net for CIFAR-10, if it lies beside the
repository. Stretches of a run and of bare passes take turns in one process, and the median of the ratios counts:
absolute times say nothing on a shared machine.

A query is one pass, so q queries of any run are compared with q/2 forward and q/2 backward passes. A black-box run
makes forward passes only, the cheaper kind: its ratio to q of those is printed as well, without a bar. A race is a
whole one of 4k queries, timed slice by slice; the sum of its time over the sum of the passes' counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from bench_nets import NOISE, Attacked, Net, attacked, nets, one_thread, report

from advfrontier.engine import Unit, advance, advance_race
from advfrontier.pool import CATALOGUE, MAX_QUERIES, SLICE, Run
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS

NETS = (("zoo:F3", 100), ("cifar_resnet2b", 64))
BARS = {"zoo:F3": 1.2, "cifar_resnet2b": 1.1}
RACE_BARS = {"zoo:F3": 1.5, "cifar_resnet2b": 1.2}
RACE_QUERIES = 4000

Row = tuple[float | str | None, ...]


@dataclass(frozen=True)
class Stretch:
    """Some queries of a run or a race, to be timed against bare passes."""

    advance: Callable[[int], object]  # to so many queries
    queries: int  # of one stretch
    last: int  # where it ends
    black_box: bool = False


def bare(net: Net, queries: int, *, backward: bool) -> float:
    """CPU seconds of bare passes: half of them forward and half backward, or all of them forward."""
    started = time.process_time()
    for _ in range(queries // 2 if backward else queries):
        x = net.images.detach().requires_grad_(backward)
        with torch.set_grad_enabled(backward):
            logits = net.model(x)
            if backward:
                torch.autograd.grad(logits.sum(), x)
    return time.process_time() - started


def timed(net: Net, stretch: Stretch) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each stretch and of the bare passes, half of them before it and half after; by kind of passes."""
    kinds = {"both": True, "forward": False} if stretch.black_box else {"both": True}
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    half = stretch.queries // 2
    for stop in range(stretch.queries, stretch.last + 1, stretch.queries):
        passes = {kind: bare(net, half, backward=backward) for kind, backward in kinds.items()}
        started = time.process_time()
        stretch.advance(stop)
        spent = time.process_time() - started
        for kind, backward in kinds.items():
            found[kind].append((spent, passes[kind] + bare(net, half, backward=backward)))
    return found


def runs(subject: Attacked, repeats: int) -> Iterator[tuple[str, Stretch]]:
    """The base run of every solver that has this norm."""

    def stretch(unit: Unit) -> Stretch:
        queries = MAX_QUERIES // 10
        black_box = unit.solver.facts.step_queries == 1
        return Stretch(
            lambda stop: advance(subject.oracle, [unit], [stop]),
            queries,
            repeats * queries,
            black_box,
        )

    for facts in CATALOGUE.values():
        for loss in facts.losses if subject.norm in facts.norms else ():
            run = str(Run(facts.name, loss))
            yield run, stretch(subject.unit(run))


def measure(net: Net, only: list[str] | None, repeats: int) -> Iterator[Row]:
    """The rows of one net, norm by norm."""
    for norm in NORMS:
        with attacked(net, norm) as subject:
            for run, stretch in runs(subject, repeats):
                if not only or run in only:
                    for kind, found in timed(net, stretch).items():
                        bar = BARS[net.name] if kind == "both" else None
                        yield (
                            net.name,
                            norm,
                            run,
                            kind,
                            *summary([spent / bare for spent, bare in found], bar),
                        )
            if (not only or "race" in only) and (race := subject.race(RACE_QUERIES)) is not None:
                advanced = partial(advance_race, subject.oracle, race)
                found = timed(net, Stretch(advanced, SLICE, RACE_QUERIES))["both"]
                value = sum(spent for spent, _ in found) / sum(bare for _, bare in found)
                slices = [spent / bare for spent, bare in found]
                yield (net.name, norm, "race", "both", *summary(slices, RACE_BARS[net.name], value))


def summary(
    found: list[float], bar: float | None, value: float | None = None
) -> tuple[float | str | None, ...]:
    """The ratio, which is the median unless given, the least and the most, the bar, and whether it is missed."""
    value = statistics.median(found) if value is None else value
    mark = "above" if bar is not None and value > bar else ""
    return round(value, 2), round(min(found), 2), round(max(found), 2), bar, mark


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, default=9, help="stretches of 100 queries per solver, 10 at most"
    )
    parser.add_argument("--only", nargs="*", help="solvers, or race")
    parser.add_argument("--nets", nargs="*", help="of " + ", ".join(name for name, _ in NETS))
    options = parser.parse_args()
    one_thread()
    rows = []
    for net in nets(NETS, options.nets):
        for line in measure(net, options.only, options.repeats):
            print(" ", *line, file=sys.stderr, flush=True)
            rows.append(line)
    columns = (
        Column("net"), Column("norm", "norm"), Column("run", "code"), Column("passes"), Column("ratio", "number"),
        Column("least", "number"), Column("most", "number"), Column("bar", "number"), Column("", key="missed"),
    )  # fmt: skip
    report("overhead", Table("Overhead over bare passes", columns, tuple(rows), (NOISE,)))
    return 1 if any(line[-1] for line in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
