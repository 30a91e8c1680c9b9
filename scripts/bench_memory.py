"""Peak memory of an evaluation on CIFAR-sized samples, above that of the loaded model and the images.

Every size is measured in a process of its own. What is kept of a run does not depend on how many steps it makes, but a
race keeps the state of every run it has begun, so only `--queries 12000` measures the largest tier. Three things are
varied: the samples, the runs, and the queries. The bar is 1.5 GB above the model for 1000 samples, and growth with
samples no larger than what the results themselves take: the images, the points found and the trajectories.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from bench_nets import one_thread, report
from torch import nn

from advfrontier import Machine, evaluate
from advfrontier.pool import pool
from advfrontier.table import Column, Table

BAR = 1.5e9


def network() -> nn.Module:
    """A convolutional net of the size that small CIFAR-10 classifiers have."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 64, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def peak() -> int:
    """The most bytes that this process has had in memory so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(samples: int, norm: str, runs: int, queries: int) -> dict[str, float]:
    """Evaluate once: a race of so many queries, or with `runs` so many of the pool that take turns."""
    one_thread()
    model = network().eval()
    images = torch.rand(samples, 3, 32, 32)
    with torch.no_grad():
        labels = torch.cat([model(part).argmax(1) for part in images.split(50)])
    names = [str(run) for run in pool(norm, name="extended")][:runs]
    quiet = Machine(progress=False)
    evaluate(
        model, images[:50], labels[:50], norm=norm, ensemble="fmn@100", machine=quiet
    )  # what is imported late
    before = peak()
    with tempfile.TemporaryDirectory() as out:
        wanted = f"{','.join(names)}@{queries * runs}" if runs else queries
        found = evaluate(model, images, labels, norm=norm, ensemble=wanted, out=out, machine=quiet)
        after = peak()
        read = found.distances.nbytes + found.adversarials.nbytes
    return {"bytes": after - before, "reading": peak() - before, "results": read}


def main() -> int:
    """Measure all sizes; exit with 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=600, help="of the race")
    parser.add_argument("--norm", default="L2")
    options = parser.parse_args()
    few = options.queries
    sizes = [
        (250, 1, 100),
        (1000, 1, 100),
        (250, 8, 100),
        (250, 0, few),
        (1000, 0, few),
        (250, 0, 2 * few),
    ]
    rows, most = [], 0.0
    apart = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    for samples, runs, queries in sizes:
        found = apart.submit(measure, samples, options.norm, runs, queries).result()
        most = max(most, found["bytes"] if samples == 1000 else 0)
        what = "race" if not runs else f"{runs} run{'s' if runs > 1 else ''}"
        rows.append((what, samples, queries, found["bytes"], found["reading"], found["results"]))
        print(
            f"  {what}, {samples} samples: {found['bytes'] / 1e6:.0f} MB",
            file=sys.stderr,
            flush=True,
        )
    columns = (
        Column("what"), Column("samples", "integer"), Column("queries", "integer"), Column("above the model", "bytes"),
        Column("with reading", "bytes"), Column("size of the results", "bytes"),
    )  # fmt: skip
    note = f"peak memory in {options.norm} above the model and the images; bar {BAR / 1e9:g} GB at 1000 samples"
    report("memory", Table("Peak memory", columns, tuple(rows), (note,)))
    return 0 if most <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
