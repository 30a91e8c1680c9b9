"""A sample's result does not depend on the batch it is in: float64, where rounding cannot grow into a difference."""

from functools import cache

import pytest
import torch
from support.models import samples, tanh_mlp
from support.runs import SHORT, Bench, catalogue, runs_of

from advfrontier.engine import advance

COUNT = 14
CLOSE = {"rtol": 1e-6, "atol": 0.0}


def budget(run):
    """Half of a short schedule. ALMA's course is chaotic: it is compared after 50 queries."""
    return 50 if str(run).startswith("alma") else SHORT // 2


@cache
def bench(norm):
    model = tanh_mlp(hidden=16, seed=5)
    images, labels = samples(model, COUNT, seed=5)
    return Bench.of(model.double(), images, labels, norm, dtype=torch.float64)


def ran(norm, run, rows):
    unit = bench(norm).unit(run, rows, horizon=SHORT)
    bench(norm).go(unit, budget(run))
    return unit.distances()


@cache
def reference(norm, run):
    distances = ran(norm, run, range(COUNT))
    assert distances.isfinite().any()
    return distances


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_batches_of_seven(norm, run):
    parts = [ran(norm, run, rows) for rows in torch.arange(COUNT).split(7)]
    torch.testing.assert_close(torch.cat(parts), reference(norm, run), **CLOSE)


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_permuted_samples(norm, run):
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ran(norm, run, order), reference(norm, run)[order], **CLOSE)


@cache
def packed(norm):
    """All base runs, first restarts and first targets in one batch; ALMA's leave it early."""
    runs = runs_of(norm, "restart1", "target1")
    units = [bench(norm).unit(run, horizon=SHORT) for run in runs]
    with bench(norm).oracle:
        advance(bench(norm).oracle, units, [budget(run) for run in runs])
    return {str(unit.run): unit.distances() for unit in units}


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_packed_with_other_runs(norm, run):
    torch.testing.assert_close(packed(norm)[run], reference(norm, run), **CLOSE)


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_packed_twice_gives_the_same_bits_in_float32(norm):
    model = tanh_mlp(hidden=16, seed=5)
    images, labels = samples(model, 9, seed=5)

    def once():
        own = Bench.of(model, images, labels, norm)
        units = [own.unit(run) for run in runs_of(norm, "restart3", "target2")]
        own.go(units, 60)
        return torch.stack([unit.trajectory for unit in units]), torch.stack(
            [unit.best_point for unit in units]
        )

    one, two = once(), once()
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


def test_restarts_of_a_sample_are_its_own():
    """The random start belongs to (seed, image): the same in any batch, another for each restart."""
    own = bench("L2")
    starts = [own.unit(f"fmn:restart{k}").problem.starts for k in range(1, 6)]
    alone = own.unit("fmn:restart2", [13]).problem.starts
    assert torch.equal(starts[1][13], alone[0])
    for k, start in enumerate(starts):
        for other in starts[:k]:
            assert (start != other).any(1).all()
