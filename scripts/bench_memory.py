"""Device memory of an evaluation, in tensors of the size of the images.

    python scripts/bench_memory.py                  # the default 12k in four norms, 3×224×224
    python scripts/bench_memory.py --norms L0 --side 32
    python scripts/bench_memory.py --side 64 --classes 1000

Every kind of step of an ensemble is run for a few queries. What one run keeps on the device (the
solver's state, its best points) and what a step allocates on top of it is divided by the size of
the batch of images. The images and the ensemble's best points are not counted; the model is one
that allocates no more than the gradient; states of runs that continue later wait on the host. The
bar is 12.
"""

from __future__ import annotations

import argparse
import sys

import torch
from bench_nets import Net, attacked, one_thread, report
from torch import nn
from torch.profiler import ProfilerActivity, profile

from advfrontier.engine import Search, Unit, advance_search
from advfrontier.engine.loop import refinement_starts
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, Raise, Run, find_ensemble
from advfrontier.solvers import solver_of
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS

BAR = 12.0


class Means(nn.Module):
    """A classifier that allocates next to nothing: a linear layer on the means of patches."""

    def __init__(self, side: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.AvgPool2d(side // 8)
        self.layer = nn.Linear(3 * 64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        logits: torch.Tensor = self.layer(self.patches(images).flatten(1))
        return logits


def peak_of(search: Search, oracle: object, queries: int) -> int:
    """Return the most bytes that a few queries of a run had allocated at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        advance_search(oracle, search, search.queries + queries)  # type: ignore[arg-type]
    now = most = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def measure(net: Net, norm: str, ensemble: str) -> list[tuple[str, float]]:
    """Return for each attack of an ensemble the image-sized tensors that it keeps and allocates."""
    rows = []
    image_bytes = net.images.nbytes
    with attacked(net, norm) as subject:
        whole = find_ensemble(ensemble, norm, subject.clean.classes)
        unit = Unit.start(whole, subject.shard)
        seen: set[str] = set()
        for step in whole.steps:
            refines = (
                [step] if not hasattr(step, "fork") else [*step.fork.gained, *step.fork.otherwise]
            )
            for each in refines:
                name = each.run if isinstance(each, Raise) else each.name
                run = Run.parse(each.run)
                key = f"{run.attack}{'' if isinstance(each, Raise) else ':refine'}"
                if key in seen:
                    continue
                seen.add(key)
                solver = solver_of(run)
                if isinstance(each, Raise):
                    search = Search.start(subject.shard, solver, run, horizon=MAX_QUERIES)
                else:
                    starts = refinement_starts(subject.shard, each, unit.best_point, seed=0)
                    search = Search.refine(subject.shard, solver, each, starts, seed=0)
                kept = sum(tensor.nbytes for tensor in search.tensors().values())
                temporary = peak_of(search, subject.oracle, 2 * CHECKPOINT)
                rows.append((name, (kept + temporary) / image_bytes))
                print(f"  {norm} {name}: {rows[-1][1]:.1f}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    """Print the table; exit with 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--norms", nargs="*", default=list(NORMS), help="norms (default: all)")
    parser.add_argument("--ensemble", default="12k", help="ensemble (default: 12k)")
    parser.add_argument("--side", type=int, default=224, help="height and width (default: 224)")
    parser.add_argument("--classes", type=int, default=10, help="classes (default: 10)")
    parser.add_argument("--samples", type=int, default=4, help="samples (default: 4)")
    options = parser.parse_args()
    one_thread()
    model = Means(options.side, options.classes).eval()
    images = torch.rand(options.samples, 3, options.side, options.side)
    with torch.no_grad():
        labels = model(images).argmax(1)
    net = Net("means of patches", model, images, labels)
    rows = []
    for norm in options.norms:
        for name, tensors in measure(net, norm, options.ensemble):
            rows.append((norm, name, round(tensors, 1), BAR, "above" if tensors > BAR else ""))
    columns = (
        Column("norm", "norm"),
        Column("run", "code"),
        Column("tensors", "number"),
        Column("bar", "number"),
        Column("", key="missed"),
    )
    note = f"{options.samples} images of 3×{options.side}×{options.side}, {options.classes} classes"
    report("memory", Table("Image-sized tensors on the device", columns, tuple(rows), (note,)))
    return 1 if any(row[-1] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
