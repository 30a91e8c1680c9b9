"""A sample's result does not depend on its batch: float64, where rounding stays small."""

from functools import cache

import pytest
import torch
from support.models import samples, tanh_mlp
from support.runs import SHORT, Bench, catalogue

COUNT = 14
CLOSE = {"rtol": 1e-6, "atol": 0.0}
EVERY_RUN = pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))


def budget(run):
    """Return half of a short schedule; ALMA, whose course is chaotic, is compared after 50."""
    return 50 if str(run).startswith("alma") else SHORT // 2


@cache
def bench(norm):
    model = tanh_mlp(hidden=16, seed=5)
    images, labels = samples(model, COUNT, seed=5)
    return Bench.of(model.double(), images, labels, norm, dtype=torch.float64)


def distances(norm, run, rows=None):
    return bench(norm).finished(run, budget(run), rows=rows, horizon=SHORT).distances


@cache
def reference(norm, run):
    found = distances(norm, run)
    assert found.isfinite().any()
    assert len(found) == COUNT
    return found


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_distances_do_not_depend_on_the_batch_size(norm, run):
    parts = [distances(norm, run, rows) for rows in torch.arange(COUNT).split(5)]
    torch.testing.assert_close(torch.cat(parts), reference(norm, run), **CLOSE)


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_distances_do_not_depend_on_the_order_of_the_samples(norm, run):
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(distances(norm, run, order), reference(norm, run)[order], **CLOSE)


@EVERY_RUN
def test_runs_give_the_same_bits_each_time_in_float32(norm, run):
    model = tanh_mlp(hidden=16, seed=5)
    own = Bench.of(model, *samples(model, 5, seed=5), norm)
    one, two = (own.finished(run, 60) for _ in range(2))
    assert torch.equal(one.trajectory, two.trajectory)
    assert torch.equal(one.search.best_point, two.search.best_point)
