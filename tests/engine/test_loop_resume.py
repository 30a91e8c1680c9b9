"""Stopping a run, saving it and resuming it leaves no trace: the bits are those of one go."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.runs import SHORT, catalogue, complete, length, same, small

EVERY_RUN = pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))


@pytest.mark.parametrize("horizon", [SHORT, pytest.param(1000, marks=pytest.mark.slow)])
@EVERY_RUN
def test_resumed_runs_have_the_same_bits(norm, run, horizon, tmp_path):
    bench, whole = small(norm), complete(norm, run, horizon)
    stop = 130 if ":" not in run else 70
    first, before = bench.finished(run, stop, horizon=horizon)
    save_file(first.tensors(), tmp_path / "run.safetensors")
    second = bench.search(run, horizon=horizon)
    second.restore(load_file(tmp_path / "run.safetensors"), stop)
    assert second.queries == stop
    assert torch.equal(before, whole.trajectory[: stop // 10])
    after = bench.go(second, length(run, horizon))
    assert torch.equal(after, whole.trajectory[stop // 10 :])
    assert same(second.tensors(), whole.search.tensors())


@EVERY_RUN
def test_budget_is_a_prefix_of_the_full_run(norm, run):
    short = small(norm).finished(run, 90, horizon=SHORT)
    assert torch.equal(short.trajectory, complete(norm, run).trajectory[:9])


def test_schedules_end_at_the_horizon_and_not_at_the_stop():
    """A run of 200 queries is another run than the first 200 queries of 1000."""
    short = complete("L2", "fmn").distances
    assert not torch.equal(short, small("L2").finished("fmn", SHORT).distances)


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_saved_tensors_can_be_restored_twice(norm, run):
    bench = small(norm)
    search, _ = bench.finished(run, 50)
    saved = {name: tensor.clone() for name, tensor in search.tensors().items()}
    ended = []
    for _ in range(2):
        again = bench.search(run)
        again.restore({name: tensor.clone() for name, tensor in saved.items()}, 50)
        bench.go(again, 100)
        ended.append(again.tensors())
    bench.go(search, 100)
    assert same(ended[0], ended[1])
    assert same(ended[0], search.tensors())


def test_state_can_be_restored_into_a_run_that_was_already_advanced():
    bench = small("L1")
    saved = bench.finished("apgd_min-ce", 100, horizon=SHORT).search.tensors()
    used, _ = bench.finished("apgd_min-ce", 150, horizon=SHORT)
    used.restore(saved, 100)
    bench.go(used, SHORT)
    assert same(used.tensors(), complete("L1", "apgd_min-ce").search.tensors())
