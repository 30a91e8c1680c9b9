"""A race is made of prefixes of its runs, costs the same on every sample, and can be stopped anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from support.races import small_race
from support.runs import Bench, same

from advfrontier.engine import advance_race, start_race
from advfrontier.frontier.race import read_off
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import SLICE
from advfrontier.threat.names import NORMS

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def net():
    model = conv_net(seed=1)
    return model, *samples(model, 9, SHAPE, seed=4)


def raced(bench, race, *stops):
    unit = start_race(race, bench.unit)
    with bench.oracle:
        for stop in stops:
            advance_race(bench.oracle, unit, stop)
    return unit


def traced(bench, runs):
    """All runs to their end, each by itself."""
    tables = np.stack([bench.finished(run).trajectory.numpy() for run in runs])
    names = [f"{k}" for k in range(tables.shape[2])]
    return Trajectories(tuple(runs), np.arange(10, 1001, 10), tables, tuple(names), bench.norm)


@pytest.mark.parametrize("norm", NORMS)
def test_a_race_is_what_the_traces_of_its_runs_say(net, norm):
    bench = Bench.of(*net, norm)
    race = small_race(norm, classes=4)
    expected = read_off(traced(bench, race.runs), race)
    unit = raced(bench, race, race.total)
    assert np.array_equal(unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy(), expected.distances)
    assert np.array_equal(unit.plan.numpy(), expected.plan)
    assert len({tuple(row) for row in unit.plan.T.tolist()}) > 1  # samples took different ways


@pytest.mark.parametrize("norm", NORMS)
def test_between_two_times_of_polishing_it_is_what_the_traces_say(net, norm):
    bench = Bench.of(*net, norm)
    race = small_race(norm, classes=4, polish=200)
    expected = read_off(traced(bench, race.runs), race)
    unit = raced(bench, race, race.total)
    found = unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy()
    assert np.array_equal(unit.plan.numpy(), expected.plan)
    assert np.array_equal(found[:6], expected.distances[:6])  # before the first time
    assert np.array_equal(unit.nearest.numpy(), expected.distances[-1])
    assert (found <= expected.distances).all()
    assert (found[[7, 15]] < expected.distances[[7, 15]]).any()


def test_it_polishes_the_nearest_point_and_one_point_only_once(net):
    bench = Bench.of(*net, "L2")
    race = replace(small_race("L2", classes=4, polish=200), order=(("ddn", 1000), ("fmn", 1000)))
    unit = raced(bench, race, 600)
    before = unit.nearest_point.clone()
    advance_race(bench.oracle, unit, 610)
    polishing = unit.runs[len(race.runs)]
    assert torch.equal(polishing.problem.starts, before)
    assert polishing.problem.steps == 100
    advance_race(bench.oracle, unit, 1400)
    same_point = unit.nearest == unit.polished
    advance_race(bench.oracle, unit, 1410)
    starts = unit.runs[len(race.runs)].problem.starts
    nearest = torch.where(same_point[:, None], starts, unit.nearest_point)
    assert torch.equal(starts, nearest)
    again = (unit.found[:, -1] < unit.nearest.numpy()) & same_point.numpy()
    assert not torch.equal(starts[again], unit.nearest_point[again])


def test_with_black_box_runs_it_differs_by_rounding_at_most(net):
    bench = Bench.of(*net, "Linf")
    race = small_race("Linf", classes=4, black_box=True)
    expected = read_off(traced(bench, race.runs), race)
    unit = raced(bench, race, race.total)
    found = unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy()
    assert np.median(np.abs(found[-1] / expected.distances[-1] - 1)) < 1e-3


@pytest.mark.parametrize("norm", NORMS)
def test_every_sample_costs_the_same_counted_at_the_model(norm):
    model = conv_net(seed=1)
    images, labels = samples(model, 5, SHAPE, seed=4)
    bench = Bench.of(model, images, labels, norm)
    rows = {"forward": 0, "backward": 0}
    model.register_forward_hook(lambda _, args, __: rows.__setitem__("forward", rows["forward"] + len(args[0])))
    model.register_full_backward_hook(
        lambda _, __, grads: rows.__setitem__("backward", rows["backward"] + len(grads[0]))
    )
    raced(bench, small_race(norm, classes=4, black_box=True, polish=200), 1500)
    assert rows["forward"] + rows["backward"] == 5 * 1500
    assert bench.oracle.counts.attack == 5 * 1500


@pytest.mark.parametrize("polish", [None, 200])
@pytest.mark.parametrize("norm", NORMS)
def test_stopped_and_restored_it_goes_on_bit_for_bit(net, norm, polish):
    bench = Bench.of(*net, norm)
    race = small_race(norm, classes=4, black_box=True, polish=polish)
    whole = raced(bench, race, race.total)
    part = raced(bench, race.at(730), 730)  # in the middle of a slice, and of polishing
    again = start_race(race, bench.unit)
    again.restore(part.tensors())
    with bench.oracle:
        advance_race(bench.oracle, again, 1100)
        advance_race(bench.oracle, again, race.total)
    assert same(whole.tensors(), again.tensors())


def test_the_kept_points_are_at_the_distances_told(net):
    bench = Bench.of(*net, "L2")
    unit = raced(bench, small_race("L2", classes=4, polish=200), 900)
    measured = (unit.best_point.double() - unit.problem.inputs.double()).norm(dim=1)
    torch.testing.assert_close(measured, unit.best_distance)
    assert torch.equal(unit.best_distance, unit.trajectory[89])
    assert (np.asarray(unit.found).min(1) == unit.best_distance.numpy()).all()


def test_a_run_that_is_finished_on_all_samples_is_forgotten(net):
    bench = Bench.of(*net, "L2")
    race = replace(small_race("L2", classes=4), order=(("fmn", 1000), ("ddn", 1000)), total=2000)
    unit = raced(bench, race, 1000)
    assert unit.runs == {}
    again = start_race(race, bench.unit)
    again.restore(unit.tensors())
    with bench.oracle:
        advance_race(bench.oracle, again, 2000)
    assert torch.equal(again.trajectory, raced(bench, race, 2000).trajectory)
