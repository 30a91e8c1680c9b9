"""Overhead of every solver: CPU time of a run over CPU time of the same number of bare forward and backward passes.

One thread, a batch of 100 on a small 28×28 convolutional net. Both sides are timed alternately in one process, and the
median of the ratios is reported: absolute times say nothing on a shared machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time

import torch
from torch import Tensor, nn

from advfrontier.engine import Oracle, advance, clean_pass, start_unit
from advfrontier.pool import CATALOGUE, Run
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import sample_ids

# What adv-lib 0.2.8 takes on the same net, and how far above it a solver may be.
ADV_LIB = {
    ("fmn", "Linf"): 1.23, ("fmn", "L2"): 1.11, ("fmn", "L1"): 1.78, ("fmn", "L0"): 1.32, ("pdgd", "L2"): 1.17,
    ("pdpgd", "L0"): 3.03, ("pdpgd", "L1"): 1.37, ("pdpgd", "L2"): 1.34, ("pdpgd", "Linf"): 3.98, ("ddn", "L2"): 1.04,
    ("alma", "L2"): 1.19, ("alma", "L1"): 1.19, ("sigma_zero", "L0"): 1.23,
}  # fmt: skip
SLACK = 0.1


def bar(solver: str, norm: str) -> float:
    """The largest ratio that is accepted: more where ℓ1 projections or proximal steps are needed.

    A black-box run is compared with forward passes alone, a third of the work: reported, without a bar.
    """
    if CATALOGUE[solver].step_queries == 1:
        return math.inf
    own = 2.0 if solver == "pdpgd" and norm in ("L0", "Linf") else 1.5 if solver == "pdpgd" or norm == "L1" else 1.25
    return min(own, ADV_LIB.get((solver, norm), own) + SLACK)


def network(width: int = 16) -> nn.Module:
    """Two strided convolutions and 100 hidden units."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(2 * width * 49, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def bare(model: nn.Module, images: Tensor, steps: int, *, backward: bool) -> float:
    """CPU seconds of bare passes."""
    started = time.process_time()
    for _ in range(steps):
        x = images.detach().requires_grad_(backward)
        with torch.set_grad_enabled(backward):
            logits = model(x)
            if backward:
                torch.autograd.grad(logits.sum(), x)
    return time.process_time() - started


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="ratios per solver (the median counts)")
    parser.add_argument("--steps", type=int, default=50, help="steps per ratio, spread over the run")
    parser.add_argument("--only", nargs="*", help="solvers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    images = torch.rand(100, 1, 28, 28)
    missed = 0
    print(f"{'solver':14s} {'norm':5s} {'ratio':>6s} {'spread':>13s} {'bar':>5s}")
    ids = sample_ids(images.numpy())
    with Oracle(model) as oracle:
        labels = model(images).argmax(1)
        for name in NORMS:
            norm = get_norm(name)
            clean = clean_pass(oracle, images, labels, norm, batch_size=100)
            for facts in CATALOGUE.values():
                if name not in facts.norms or (options.only and facts.name not in options.only):
                    continue
                for loss in facts.losses:
                    run = Run(facts.name, loss)
                    ratios = []
                    unit = start_unit(oracle, run, images, labels, clean, norm=norm, seed=42, ids=ids)
                    stride = facts.step_queries * options.steps
                    for _ in range(options.repeats):
                        steps = options.steps
                        before = bare(model, images, steps // 2, backward=stride > steps)
                        started = time.process_time()
                        advance(oracle, [unit], [unit.queries + stride])
                        spent = time.process_time() - started
                        after = bare(model, images, steps - steps // 2, backward=stride > steps)
                        ratios.append(spent / (before + after))
                    ratio = statistics.median(ratios)
                    limit = bar(facts.name, name)
                    missed += ratio > limit
                    mark = "" if ratio <= limit else "  above"
                    print(
                        f"{run!s:14s} {name:5s} {ratio:6.2f} {min(ratios):6.2f}-{max(ratios):.2f} {limit:5.2f}{mark}",
                        flush=True,
                    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
