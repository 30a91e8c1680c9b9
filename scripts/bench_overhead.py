"""Overhead over bare passes: every solver, and a whole evaluation with the default 4k.

One thread; a batch of 100 on the zoo's F3 (28×28), and of 64 on a residual net for CIFAR-10 where
it lies beside the repository. On a GPU (`--device cuda`) the clock is read after the device is
idle.

A run of q queries is compared with q/2 forward and q/2 backward passes of the bare model; stretches
of both alternate in one process, and the median of the ratios counts. A black-box run makes forward
passes only, so its ratio to q forward passes is printed as well, without a bar. The evaluation is
timed as a whole (clean pass, checks, verification, files), between two halves of its bare passes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

import torch
from bench_nets import NOISE, Attacked, Net, attacked, nets, one_thread, report

from advfrontier import Machine, evaluate
from advfrontier.engine import advance_search
from advfrontier.engine.loop import step_queries
from advfrontier.pool import CATALOGUE, Run
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS

NETS = (("zoo:F3", 100), ("cifar_resnet2b", 64))
BARS = {"zoo:F3": {"L0": 1.45, "L1": 1.55, "L2": 1.40, "Linf": 1.25}}  # of an evaluation
EVALUATION = "evaluate, 4k"
QUERIES = 4000
STRETCH = 100

Row = tuple[float | str | None, ...]


def clock(device: torch.device) -> float:
    """Return CPU seconds of this process; on another device, seconds once it is idle."""
    if device.type == "cpu":
        return time.process_time()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    else:
        torch.mps.synchronize()
    return time.perf_counter()


def bare(net: Net, queries: int, *, backward: bool) -> float:
    """Time bare passes: half of them forward and half backward, or all of them forward."""
    started = clock(net.images.device)
    for _ in range(queries // 2 if backward else queries):
        x = net.images.detach().requires_grad_(backward)
        with torch.set_grad_enabled(backward):
            logits = net.model(x)
            if backward:
                torch.autograd.grad(logits.sum(), x)
    return clock(net.images.device) - started


def solver_ratios(subject: Attacked, run: str, repeats: int) -> dict[str, list[float]]:
    """Time stretches of a run; return the ratios by kind of bare passes."""
    search = subject.search(run)
    kinds = {"both": True}
    if step_queries(search.solver) == 1:
        kinds["forward"] = False
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    net, half = subject.net, STRETCH // 2
    for stop in range(STRETCH, repeats * STRETCH + 1, STRETCH):
        before = {kind: bare(net, half, backward=backward) for kind, backward in kinds.items()}
        started = clock(net.images.device)
        advance_search(subject.oracle, search, stop)
        spent = clock(net.images.device) - started
        for kind, backward in kinds.items():
            passes = before[kind] + bare(net, half, backward=backward)
            ratios[kind].append(spent / passes)
    return ratios


def evaluation_ratio(net: Net, norm: str) -> float:
    """Time a whole evaluation with the default 4k."""
    half = QUERIES // 2
    machine = Machine(str(net.images.device), threads=torch.get_num_threads(), progress=False)
    passes = bare(net, half, backward=True)
    started = clock(net.images.device)
    evaluate(
        net.model,
        net.images.cpu(),
        net.labels.cpu(),
        norm=norm,
        ensemble=QUERIES,
        batch_size=len(net.images),
        machine=machine,
    )
    spent = clock(net.images.device) - started
    return spent / (passes + bare(net, half, backward=True))


def measure(net: Net, only: list[str] | None, norms: list[str], repeats: int) -> Iterator[Row]:
    """Yield the rows of one net, norm by norm."""
    for norm in norms:
        with attacked(net, norm) as subject:
            for facts in CATALOGUE.values():
                if not facts.runs_in(norm) or (only and facts.name not in only):
                    continue
                for loss in facts.losses:
                    run = str(Run(facts.name, loss))
                    for kind, ratios in solver_ratios(subject, run, repeats).items():
                        middle = statistics.median(ratios)
                        yield net.name, norm, run, kind, round(middle, 2), None, ""
        if not only or "evaluate" in only:
            ratio = evaluation_ratio(net, norm)
            bar = BARS.get(net.name, {}).get(norm)
            missed = "above" if bar is not None and ratio > bar else ""
            yield net.name, norm, EVALUATION, "both", round(ratio, 2), bar, missed


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, default=9, help="stretches of 100 queries per solver (default: 9)"
    )
    parser.add_argument("--only", nargs="*", help="names of solvers, or evaluate")
    parser.add_argument("--norms", nargs="*", default=list(NORMS), help="norms (default: all)")
    parser.add_argument("--nets", nargs="*", help="of " + ", ".join(name for name, _ in NETS))
    parser.add_argument("--device", default="cpu", help="device (default: cpu)")
    options = parser.parse_args()
    one_thread()
    rows = []
    for net in nets(NETS, options.nets):
        net.model.to(options.device)
        here = Net(
            net.name, net.model, net.images.to(options.device), net.labels.to(options.device)
        )
        for line in measure(here, options.only, options.norms, min(options.repeats, 10)):
            print(" ", *line, file=sys.stderr, flush=True)
            rows.append(line)
    columns = (
        Column("net"),
        Column("norm", "norm"),
        Column("run", "code"),
        Column("passes"),
        Column("ratio", "number"),
        Column("bar", "number"),
        Column("", key="missed"),
    )
    report("overhead", Table("Overhead over bare passes", columns, tuple(rows), (NOISE,)))
    return 1 if any(line[-1] for line in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
