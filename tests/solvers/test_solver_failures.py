"""Every solver breaks every sample, and what it keeps stays broken in other batches."""

import sys
from functools import cache

import pytest
import torch
from support import nets
from support.models import Answering, samples, tanh_mlp
from support.runs import Bench, catalogue, runs_of

from advfrontier.engine import classify
from advfrontier.threat.names import NORMS


def flips(bench, unit):
    """Kept points that are classified correctly when looked at again, at batch sizes 1, 7 and 64."""
    with bench.oracle:
        seen = [classify(bench.oracle, unit, batch_size=size)[0] for size in (1, 7, 64)]
    return [int((classes == unit.problem.labels).sum()) for classes in seen]


def stop_of(run, whole=300):
    """Base runs go further than their variants, which go far enough to have found something."""
    return min(150, whole) if ":" in run else whole


@cache
def tanh_bench(norm):
    model = tanh_mlp((48,), seed=1)
    return Bench.of(model, *samples(model, 32, (48,)), norm)


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_random_tanh_network(norm, run):
    """The network on which the published FMN stalls inside the boundary on nine samples of ten."""
    bench = tanh_bench(norm)
    unit = bench.finished(run, stop_of(run))
    assert unit.distances().isfinite().all()
    assert flips(bench, unit) == [0, 0, 0]


@cache
def tied_bench(norm, classes):
    """The label leads by nothing on half of the samples, and on the others by less than what counts as misclassified.

    The last feature says which: the model reads it, but its gradient does not.
    """
    weight = torch.tensor([1.0, -2, 3, -1, 0, 0, 0, 0]) / 4
    shift = torch.tensor([0.0, 0.0, -0.3, -0.5])[:classes]
    sign = torch.tensor([1.0, -1.0, 0.2, -0.1])[:classes]
    above = 1e-8 if classes == 2 else 1e-6
    x = torch.full((4, 8), 0.5)
    x[:, 4:] = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    x[:, 7] = torch.tensor([0.1, 0.2, 0.8, 0.9])

    def logits(x):
        lead = (x - 0.5) @ weight.to(x) + above * (x[:, 7] > 0.5).to(x)
        return 1 + shift + lead[:, None] * sign

    return Bench.of(Answering(logits), x, torch.zeros(4, dtype=torch.long), norm)


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1", classes=4))
@pytest.mark.parametrize("classes", [2, 4])
def test_ties_at_the_input_are_broken(norm, run, classes):
    unit = tied_bench(norm, classes).finished(run, 100)
    assert unit.distances().isfinite().all()
    assert unit.state.point.isfinite().all()


def failures(name, norm, count, queries=1000):
    """(run, samples not broken, flips, median distance) of the base runs on a net's first test images."""
    bench = Bench.of(*nets.net(name, count), norm)
    for run in runs_of(norm):
        unit = bench.finished(run, queries)
        yield (
            str(run),
            unit.rows,
            int(unit.distances().isinf().sum()),
            flips(bench, unit),
            float(unit.distances().median()),
        )


@nets.needs_nets
def test_a_real_net():
    for run, rows, unbroken, flipped, _median in failures(
        "mnist_small_fgsm", "Linf", 4, queries=300
    ):
        assert rows > 2
        assert unbroken == 0, run
        assert flipped == [0, 0, 0], run


@pytest.mark.slow
@nets.needs_nets
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", nets.NAMES)
def test_all_real_nets(name, norm):
    found, flipped = {}, {}
    for run, rows, unbroken, flips, median in failures(name, norm, 32):
        row = f"{name:22s} {norm:5s} {run:13s} unbroken {unbroken:2d} of {rows:2d}, flips {flips}, median {median:.4f}"
        sys.stdout.write(row + "\n")
        found[run], flipped[run] = unbroken, sum(flips)
    assert {run: count for run, count in flipped.items() if count} == {}
    assert {run: count for run, count in found.items() if count} == {}
