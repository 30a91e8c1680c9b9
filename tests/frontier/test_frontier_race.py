"""Races read off traces, and learned from them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support.races import constants

from advfrontier import FrontierError
from advfrontier.frontier.race import learn_race, race_excess, read_off
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import Race, pool

RUNS = tuple(str(run) for run in pool("L2", name="extended"))
QUERIES = np.arange(10, 1001, 10)


def made_up(samples=30, runs=RUNS, seed=0) -> Trajectories:
    """Each attack suits some samples; every run falls towards an end of its own."""
    rng = np.random.default_rng(seed)
    attacks = [run.partition(":")[0] for run in runs]
    suits = {attack: rng.lognormal(0, 0.3, samples) for attack in dict.fromkeys(attacks)}
    ends = np.stack([suits[attack] * rng.lognormal(0, 0.05, samples) for attack in attacks])
    falls = 1 + 3 * np.exp(-QUERIES / rng.uniform(100, 500, (len(runs), 1)))
    names = tuple(f"{k}" for k in range(samples))
    return Trajectories.best_so_far(runs, QUERIES, ends[:, None] * falls[:, :, None], names, "L2")


def test_every_budget_is_a_prefix_and_none_is_beyond_the_frontier():
    traces, policy = made_up(), learn_race([made_up(seed=1), made_up(seed=2)])
    whole = read_off(traces, policy)
    part = read_off(traces, policy, 4000)
    assert np.array_equal(whole.distances[:40], part.distances)
    assert np.array_equal(whole.plan[:40], part.plan)
    assert (np.diff(whole.distances, axis=0) <= 0).all()
    assert (whole.distances >= traces.frontier()).all()


def test_with_all_queries_it_is_the_frontier():
    runs = RUNS[:6]
    traces = made_up(runs=runs)
    policy = Race("race", "L2", 6000, tuple((run, 1000) for run in runs), constants(runs))
    assert np.array_equal(read_off(traces, policy).distances[-1], traces.frontier())


def test_it_beats_the_same_moves_for_all_samples():
    """With nothing ever left out, a race is the plain order of its moves."""
    training, traces = [made_up(seed=k) for k in range(3)], made_up(seed=9)
    policy = learn_race(training)
    hopeful = dict.fromkeys(policy.hopes, (1e-09,) * 10)
    plain = Race("plain", "L2", policy.total, policy.order, hopeful)
    assert (
        race_excess(traces, policy, [4000])[4000] < 0.8 * race_excess(traces, plain, [4000])[4000]
    )


def test_a_sample_alone_is_raced_as_among_others():
    traces, policy = made_up(), learn_race([made_up(seed=1)])
    alone = read_off(traces.select(samples=["7"]), policy)
    assert np.array_equal(alone.distances[:, 0], read_off(traces, policy).distances[:, 7])


def test_what_was_learned_is_feasible_and_covers_the_pool():
    policy = learn_race([made_up(seed=1), made_up(seed=2)], name="race-12k")
    policy.check()
    assert set(policy.runs) == set(RUNS)
    assert policy.at(4000).name == "race-4k"
    assert all(0 < hope <= 1.0001 for hopes in policy.hopes.values() for hope in hopes)


@pytest.mark.parametrize("lost", [np.inf, 0.0])
def test_models_on_which_nothing_was_broken_teach_nothing(lost):
    one = made_up(runs=RUNS[:20])
    other = Trajectories.best_so_far(
        one.runs, QUERIES, np.full_like(one.distances, lost), one.samples, "L2"
    )
    for traces in ([one, other], [other]):
        assert set(learn_race(traces).runs) == set(one.runs)


def test_a_race_of_few_runs_is_called_by_what_it_can_spend():
    assert learn_race([made_up(runs=("fmn", "ddn"))], name="race-12k").name == "race-2k"


def test_a_hundred_runs_on_a_thousand_samples_take_seconds():
    traces, policy = made_up(1000), learn_race([made_up(seed=1)])
    began = time.process_time()
    read_off(traces, policy, 4000)
    assert time.process_time() - began < 20


def test_short_traces_and_odd_budgets_are_refused():
    policy = learn_race([made_up(seed=1)])
    with pytest.raises(FrontierError, match="multiple of 100"):
        read_off(made_up(), policy, 4050)
    with pytest.raises(FrontierError, match="expected all 1000"):
        read_off(made_up().thin(range(100, 901, 100)), policy, 4000)
    with pytest.raises(FrontierError, match=f"up to {1000 * len(RUNS)}$"):
        read_off(made_up(), policy, 1000 * len(RUNS) + 100)
    with pytest.raises(FrontierError, match=r"no checkpoint at \[200, 300, 400, 600"):
        read_off(made_up().thin([100, 500, 1000]), policy, 4000)
    with pytest.raises(FrontierError, match="one norm"):
        learn_race([])
