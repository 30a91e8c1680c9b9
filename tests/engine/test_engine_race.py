"""A race is made of prefixes of its runs, costs the same on every sample, and can be stopped anywhere."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

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


@cache
def bench(norm):
    """Nine samples of a small net."""
    model = conv_net(seed=1)
    return Bench.of(model, *samples(model, 9, SHAPE, seed=4), norm)


@cache
def trajectory(norm, run):
    """A run to its end, by itself."""
    return bench(norm).finished(run).trajectory.numpy()


def traced(norm, runs):
    tables = np.stack([trajectory(norm, run) for run in runs])
    names = [f"{k}" for k in range(tables.shape[2])]
    return Trajectories(tuple(runs), np.arange(10, 1001, 10), tables, tuple(names), norm)


def raced(own, race, *stops):
    unit = start_race(race, own.unit)
    with own.oracle:
        for stop in stops:
            advance_race(own.oracle, unit, stop)
    return unit


@pytest.mark.parametrize(
    "norm", [pytest.param(norm, marks=pytest.mark.slow) for norm in ("L0", "L1", "L2", "Linf")]
)  # the next test shows the same of ℓ0, and tests/evaluation of ℓ2
def test_a_race_is_what_the_traces_of_its_runs_say(norm):
    race = small_race(norm, classes=4, total=2000)
    expected = read_off(traced(norm, race.runs), race)
    unit = raced(bench(norm), race, race.total)
    assert np.array_equal(
        unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy(), expected.distances
    )
    assert np.array_equal(unit.plan.numpy(), expected.plan)
    assert len({tuple(row) for row in unit.plan.T.tolist()}) > 1  # samples took different ways


@pytest.mark.parametrize(
    "norm", ["L0", *(pytest.param(norm, marks=pytest.mark.slow) for norm in NORMS[1:])]
)
def test_between_two_times_of_polishing_it_is_what_the_traces_say(norm):
    race = small_race(norm, classes=4, polish=True)
    expected = read_off(traced(norm, race.runs), race)
    unit = raced(bench(norm), race, race.total)
    found = unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy()
    assert np.array_equal(unit.plan.numpy(), expected.plan)
    assert np.array_equal(found[:2], expected.distances[:2])  # before the first time
    assert np.array_equal(
        unit.found[:, : len(race.runs)].min(1), expected.distances[-1]
    )  # of the runs alone
    assert (found <= expected.distances).all()
    assert (found[-1] < expected.distances[-1]).any()


def test_turns_start_beyond_the_nearest_point_or_at_it():
    own = bench("L2")
    race = small_race("L2", classes=4, polish=True)
    unit, place = raced(own, race, 200), len(race.runs)
    before, x = unit.best_point.clone(), unit.problem.inputs
    with own.oracle as oracle:
        advance_race(oracle, unit, 210)
        beyond = unit.runs[place].problem
        advance_race(oracle, unit, 300)
        after = unit.best_point.clone()
        assert place not in unit.runs  # its turn is over
        advance_race(oracle, unit, 310)
        at = unit.runs[place].problem
    assert torch.equal(at.starts, after)
    assert (at.polishes, beyond.polishes) == (True, False)
    assert at.steps == beyond.steps == 50
    free = (beyond.starts > 0) & (beyond.starts < 1) & (before != x)
    ratio = torch.where(free, (beyond.starts - x) / (before - x), torch.nan)
    least, most = ratio.nan_to_num(9).amin(1), ratio.nan_to_num(0).amax(1)
    assert torch.allclose(least, most, rtol=1e-3)
    assert (least > 1).all()
    assert (most < 2).all()
    assert len(set(most.tolist())) > 1  # every sample draws its own


def test_with_black_box_runs_it_differs_by_rounding_at_most():
    race = small_race("L0", classes=4, black_box=True)
    expected = read_off(traced("L0", race.runs), race)
    unit = raced(bench("L0"), race, race.total)
    found = unit.trajectory[SLICE // 10 - 1 :: SLICE // 10].numpy()
    assert np.median(np.abs(found[-1] / expected.distances[-1] - 1)) < 1e-3


@pytest.mark.parametrize("norm", NORMS)
def test_every_sample_costs_the_same_counted_at_the_model(norm):
    model = conv_net(seed=1)
    images, labels = samples(model, 5, SHAPE, seed=4)
    own = Bench.of(model, images, labels, norm)
    rows = {"forward": 0, "backward": 0}
    model.register_forward_hook(
        lambda _, args, __: rows.__setitem__("forward", rows["forward"] + len(args[0]))
    )
    model.register_full_backward_hook(
        lambda _, __, grads: rows.__setitem__("backward", rows["backward"] + len(grads[0]))
    )
    raced(own, small_race(norm, classes=4, black_box=True, polish=True), 400)
    assert rows["forward"] + rows["backward"] == 5 * 400
    assert own.oracle.counts.attack == 5 * 400


@pytest.mark.parametrize(
    ("norm", "polish"),
    [
        *((norm, True) for norm in NORMS),
        *(pytest.param(norm, False, marks=pytest.mark.slow) for norm in NORMS),
    ],
)
def test_stopped_and_restored_it_goes_on_bit_for_bit(norm, polish):
    race = small_race(norm, classes=4, black_box=True, total=700, polish=polish)
    whole = raced(bench(norm), race, race.total)
    part = raced(bench(norm), race.at(330), 330)  # in the middle of a slice, and of polishing
    again = start_race(race, bench(norm).unit)
    again.restore(part.tensors())
    with bench(norm).oracle as oracle:
        advance_race(oracle, again, 500)
        advance_race(oracle, again, race.total)
    assert same(whole.tensors(), again.tensors())


@pytest.mark.parametrize("norm", ["L0", "Linf"])
def test_a_search_that_draws_numbers_is_polished_with_the_same_ones_after_it_was_stopped(norm):
    race = small_race(norm, classes=4, black_box=True, total=900).without_gradients()
    whole = raced(bench(norm), race, race.total)
    part = raced(bench(norm), race.at(630), 630)  # polishing has begun at 500
    again = start_race(race, bench(norm).unit)
    again.restore(part.tensors())
    assert torch.equal(again.runs[1].problem.starts, part.runs[1].problem.starts)
    assert torch.equal(again.nearest_point, part.nearest_point)
    with bench(norm).oracle as oracle:
        advance_race(oracle, again, race.total)
    assert same(whole.tensors(), again.tensors())


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_where_nothing_was_found_a_search_that_polishes_begins_anew(norm):
    race = small_race(norm, classes=4, black_box=True, total=900).without_gradients()
    unit = start_race(race, bench(norm).unit)
    unit.queries = 500  # as if the first 500 had broken none
    with bench(norm).oracle as oracle:
        advance_race(oracle, unit, 510)
    polished = unit.runs[len(race.runs)]
    assert (polished.state.radius > 0).all()
    assert (polished.state.point != unit.problem.inputs).any(1).all()


def test_the_kept_points_are_at_the_distances_told():
    unit = raced(bench("L2"), small_race("L2", classes=4, polish=True), 900)
    measured = (unit.best_point.double() - unit.problem.inputs.double()).norm(dim=1)
    torch.testing.assert_close(measured, unit.best_distance)
    assert torch.equal(unit.best_distance, unit.trajectory[89])
    assert (np.asarray(unit.found).min(1) == unit.best_distance.numpy()).all()


def test_a_run_that_is_finished_on_all_samples_is_forgotten():
    own = bench("L2")
    race = replace(small_race("L2", classes=4), order=(("fmn", 1000), ("ddn", 1000)), total=1200)
    unit = raced(own, race, 1000)
    assert unit.runs == {}
    again = start_race(race, own.unit)
    again.restore(unit.tensors())
    with own.oracle:
        advance_race(own.oracle, again, 1200)
    assert torch.equal(again.trajectory, raced(own, race, 1200).trajectory)
