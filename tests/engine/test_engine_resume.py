"""Stopping, saving and going on leaves no trace: the same bits as one run."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.runs import SHORT, catalogue, complete, length, same, small

RUNS = pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))


@pytest.mark.parametrize("horizon", [SHORT, pytest.param(1000, marks=pytest.mark.slow)])
@RUNS
def test_stop_save_restore_and_go_on(norm, run, horizon, tmp_path):
    """Base runs to their end, the others to 100 queries, with a stop in the middle of a stretch of both."""
    bench, whole, stop = small(norm), complete(norm, run, horizon), 130 if ":" not in run else 70
    first = bench.finished(run, stop, horizon=horizon)
    save_file(first.tensors(), tmp_path / "unit.safetensors")
    second = bench.unit(run, horizon=horizon)
    second.restore(load_file(tmp_path / "unit.safetensors"))
    assert second.queries == stop
    assert torch.equal(second.trajectory[: stop // 10], whole.trajectory[: stop // 10])
    assert second.trajectory[stop // 10 :].isinf().all()
    bench.go(second, length(run, horizon))
    assert torch.equal(second.distances(), whole.distances())
    assert torch.equal(second.best_point, whole.best_point)
    assert torch.equal(second.trajectory, whole.trajectory)
    assert same(second.tensors(), whole.tensors())


@RUNS
def test_a_budget_is_a_prefix_of_the_full_run(norm, run):
    bench, whole = small(norm), complete(norm, run)
    unit = bench.finished(run, 90, horizon=SHORT)
    assert torch.equal(unit.distances(), whole.trajectory[8])


def test_the_horizon_and_not_the_budget_shapes_the_schedule():
    """A run configured for 200 queries is another run than the first 200 queries of 1000."""
    short = complete("L2", "fmn")
    assert len(short.trajectory) == 20
    assert not torch.equal(short.distances(), small("L2").finished("fmn", 200).distances())


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_what_is_saved_and_what_goes_on_share_no_memory(norm, run):
    bench = small(norm)
    unit = bench.finished(run, 50)
    saved = unit.tensors()
    copy = {name: tensor.clone() for name, tensor in saved.items()}
    bench.go(unit, 100)
    assert same(saved, copy)
    again = bench.unit(run)
    again.restore(saved)
    bench.go(again, 100)
    assert same(saved, copy)
    assert same(again.tensors(), unit.tensors())


def test_state_can_be_handed_to_a_unit_that_was_already_used():
    bench = small("L1")
    saved = bench.finished("apgd_min-ce", 100, horizon=SHORT).tensors()
    used = bench.finished("apgd_min-ce", 150, horizon=SHORT)
    used.restore(saved)
    bench.go(used, SHORT)
    assert same(used.tensors(), complete("L1", "apgd_min-ce").tensors())
