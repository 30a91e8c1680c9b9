"""Every solver breaks every sample, and what it keeps stays broken in other batches."""

import sys

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
        seen = [classify(bench.oracle, unit, batch_size=size) for size in (1, 7, 64)]
    return [int((classes == unit.problem.labels).sum()) for classes in seen]


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_random_tanh_network(norm, run):
    """The network on which the published FMN stalls inside the boundary on nine samples of ten."""
    model = tanh_mlp((48,), seed=1)
    bench = Bench.of(model, *samples(model, 32, (48,)), norm)
    unit = bench.finished(run)
    assert unit.distances().isfinite().all()
    assert flips(bench, unit) == [0, 0, 0]


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1", classes=4))
@pytest.mark.parametrize(("classes", "above"), [(2, 0.0), (2, 1e-8), (4, 0.0), (4, 1e-6)])
def test_ties_at_the_input_are_broken(norm, run, classes, above):
    """The label leads by nothing, or by less than what counts as misclassified."""
    weight = torch.tensor([1.0, -2, 3, -1, 0, 0, 0, 0]) / 4
    shift = torch.tensor([0.0, 0.0, -0.3, -0.5])[:classes]
    sign = torch.tensor([1.0, -1.0, 0.2, -0.1])[:classes]
    model = Answering(lambda x: 1 + shift + ((x - 0.5) @ weight.to(x) + above)[:, None] * sign)
    x = torch.full((4, 8), 0.5)
    x[:, 4:] = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    unit = Bench.of(model, x, torch.zeros(4, dtype=torch.long), norm).finished(run, 600)
    assert unit.distances().isfinite().all()
    assert unit.state.point.isfinite().all()


def failures(name, norm, count):
    """(run, samples not broken, flips, median distance) of the base runs on a net's first test images."""
    bench = Bench.of(*nets.net(name, count), norm)
    for run in runs_of(norm):
        unit = bench.finished(run)
        yield (
            str(run),
            unit.rows,
            int(unit.distances().isinf().sum()),
            flips(bench, unit),
            float(unit.distances().median()),
        )


@nets.needs_nets
@pytest.mark.parametrize(("name", "norm"), [("mnist_small_fgsm", "Linf"), ("mnist_small_kw_0_1", "L1")])
def test_some_real_nets(name, norm):
    for run, rows, unbroken, flipped, _median in failures(name, norm, 8):
        assert rows > 4
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
