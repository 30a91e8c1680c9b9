"""Every solver breaks every sample, and what it keeps stays broken in other batches."""

import sys
from functools import cache

import pytest
import torch
from searches import Bench, catalogue, runs_of
from support import nets
from support.models import Answering, samples, tanh_mlp

from advfrontier.threat.names import NORMS


def flips(bench, search):
    """Count kept points that are classified correctly again at batch sizes 1, 7 and 64."""
    counts = []
    shard = bench.shard
    for size in (1, 7, 64):
        parts = search.best_point.view(-1, *shard.shape).split(size)
        with bench.oracle, torch.no_grad():
            classes = torch.cat([bench.oracle.logits(part).argmax(1) for part in parts])
        counts.append(int((classes == shard.labels).sum()))
    return counts


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
    search = bench.search(run)
    assert bench.go(search, stop_of(run))[-1].isfinite().all()
    assert flips(bench, search) == [0, 0, 0]


@cache
def tied_bench(norm, classes):
    """Return a model whose label leads by nothing on half of the samples, and hardly on the others.

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
    bench = tied_bench(norm, classes)
    search = bench.search(run)
    assert bench.go(search, 100)[-1].isfinite().all()
    assert search.state.point.isfinite().all()


def failures(name, norm, count, queries=1000):
    """Yield (run, samples, samples not broken, flips, median distance) on a net's first images."""
    bench = Bench.of(*nets.net(name, count), norm)
    for run in runs_of(norm):
        search = bench.search(run)
        distances = bench.go(search, queries)[-1]
        unbroken = int(distances.isinf().sum())
        yield str(run), len(distances), unbroken, flips(bench, search), float(distances.median())


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
        counts = f"unbroken {unbroken:2d} of {rows:2d}, flips {flips}"
        sys.stdout.write(f"{name:22s} {norm:5s} {run:13s} {counts}, median {median:.4f}\n")
        found[run], flipped[run] = unbroken, sum(flips)
    assert {run: count for run, count in flipped.items() if count} == {}
    assert {run: count for run, count in found.items() if count} == {}
