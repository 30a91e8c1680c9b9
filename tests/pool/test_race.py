"""Races: a pure choice from what was seen, written as TOML, with every smaller budget a prefix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.races import constants, small_race

from advfrontier import FrontierError
from advfrontier.pool import RACE, SLICE, Ensemble, Polish, Race, Run, find_ensemble
from advfrontier.threat.names import NORMS

RUNS = ("fmn", "fmn:restart1", "ddn")
RUNS_IN_ORDER = ("fmn", "ddn", "fmn:restart1")
ORDER = (("fmn", 100), ("ddn", 100), ("fmn", 300), ("fmn:restart1", 200), ("ddn", 1000))


def race(**changes) -> Race:
    hopes = constants(RUNS)
    return replace(Race("race-12k", "L2", 2000, ORDER, hopes), **changes)


def seen(*states):
    """(sample, run) queries and distances from one dictionary per sample: run → (queries, distance)."""
    runs = race().runs
    spent = np.array([[state.get(run, (0, 0))[0] for run in runs] for state in states])
    found = np.array([[state[run][1] if run in state else np.inf for run in runs] for state in states])
    return spent, found


def chosen(*states, **changes):
    picked = race(**changes)
    return [picked.runs[place] for place in picked.choose(*seen(*states))]


def test_a_sample_walks_along_the_order():
    assert chosen({}) == ["fmn"]
    assert chosen({"fmn": (100, 2.0)}) == ["ddn"]
    assert chosen({"fmn": (100, 2.0), "ddn": (100, 2.1)}) == ["fmn"]
    assert chosen({"fmn": (200, 2.0), "ddn": (100, 2.1)}) == ["fmn"]
    assert chosen({"fmn": (300, 2.0), "ddn": (100, 2.1)}) == ["fmn:restart1"]


def test_a_run_without_hope_is_left_out():
    far = {"fmn": (100, 9.0), "ddn": (100, 2.0)}  # 0.82 · 9 is more than 2
    assert chosen(far) == ["ddn"]


def test_a_run_not_begun_is_judged_by_its_attack():
    assert chosen({"fmn": (300, 9.0), "ddn": (100, 2.0)}) == ["ddn"]  # not fmn:restart1
    assert chosen({"fmn": (300, 2.2), "ddn": (100, 2.0)}) == ["fmn:restart1"]  # 0.8 · 2.2 is less than 2


def test_samples_choose_each_for_itself():
    near, far = {"fmn": (100, 2.0), "ddn": (100, 2.1)}, {"fmn": (100, 9.0), "ddn": (100, 2.0)}
    assert chosen(near, far, near) == ["fmn", "ddn", "fmn"]


def test_where_nothing_has_hope_the_nearest_goes_on():
    assert chosen({"fmn": (1000, 2.0), "ddn": (900, 9.0), "fmn:restart1": (100, 99.0)}) == ["ddn"]


def test_a_run_that_found_nothing_yet_has_hope_until_another_did():
    assert chosen({"fmn": (100, np.inf), "ddn": (100, np.inf)}) == ["fmn"]  # the order's next
    assert chosen({"fmn": (100, np.inf), "ddn": (100, 2.0)}) == ["ddn"]


def test_a_slice_that_a_budget_has_cut_is_finished_first():
    assert chosen({"fmn": (100, 2.0), "ddn": (30, 9.0)}) == ["ddn"]


def test_finished_runs_are_never_chosen():
    for left in RUNS:
        state = {run: (1000, 1.0) for run in RUNS if run != left} | {left: (500, 50.0)}
        assert chosen(state) == [left]


def test_what_it_shares_with_an_ensemble():
    whole = find_ensemble("race-12k", "L2", 10)
    assert whole.queries == {RACE: 12000}
    assert whole.tiers == (4000, 8000, 12000)
    assert whole.at(4000).name == "race-4k"
    assert whole.at(4000).order == whole.order
    assert whole.at(4567).total == 4560
    assert whole.at(20000) is whole


def test_few_classes_leave_the_queries_to_other_runs():
    two = find_ensemble("4k", "L1", 2)
    assert two.total == 4000
    assert not [run for run in two.runs if run.endswith(tuple(f"target{k}" for k in range(2, 10)))]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("family", ["race", "greedy", "paper"])
def test_every_family_has_its_tiers_in_every_norm(family, norm):
    tiers = [find_ensemble(f"{family}-{tier}", norm, 10) for tier in ("4k", "8k", "12k")]
    assert [tier.total for tier in tiers[:2]] == [4000, 8000]
    assert 11000 <= tiers[2].total <= 12000  # an allocation may have had no use for the last thousand
    assert all(isinstance(tier, Race if family == "race" else Ensemble) for tier in tiers)
    assert find_ensemble("4k", norm, 10) == find_ensemble("race-4k", norm, 10)


@pytest.mark.parametrize("norm", NORMS)
def test_files_hold_all_of_it(norm, tmp_path):
    made = small_race(norm, polish=True)
    made.save(tmp_path / "race.toml")
    assert Race.load(tmp_path / "race.toml") == made
    assert find_ensemble(str(tmp_path / "race.toml"), norm, 10) == made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": (("fmn", 150),)}, "multiple of 100"),
        ({"order": (("fmn", 300), ("fmn", 200))}, "from 300 to 200"),
        ({"order": (("pdgd", 100),)}, "0 hopes of pdgd: expected 10"),
        ({"total": 4000}, "up to 3000"),
        ({"total": 15}, "multiple of 10"),
    ],
)
def test_what_cannot_be_raced_is_refused(changes, message):
    with pytest.raises(FrontierError, match=message):
        race(**changes)


def test_the_last_queries_of_every_so_many_polish():
    polishes = race(polish=Polish("fmn", 200, 800))
    states = seen({"fmn": (300, 2.0), "ddn": (100, 2.1)}, {"fmn": (100, 9.0), "ddn": (100, 2.0)})
    spent, found = (np.pad(table, ((0, 0), (0, 1))) for table in states)
    assert polishes.names == (*RUNS_IN_ORDER, "fmn:polish")
    for queries, begun in {600: 0, 700: 100, 750: 150, 1400: 0}.items():
        assert [each.tolist() for each in polishes.choice(queries, spent, found)] == [[3, 3], [begun, begun]]
    for queries in (0, 500, 800, 1300):
        chosen, before = polishes.choice(queries, spent, found)
        assert [polishes.names[place] for place in chosen] == ["fmn:restart1", "ddn"]
        assert before.tolist() == [0, 100]


@pytest.mark.parametrize(("queries", "every"), [(150, 800), (200, 850), (800, 800), (0, 800), (1100, 4000)])
def test_polishing_that_fits_no_slices_is_refused(queries, every):
    with pytest.raises(FrontierError, match="expected multiples of 100"):
        Polish("fmn", queries, every)


def test_without_gradients_one_black_box_run_goes_on_from_what_it_has_found():
    alone = small_race("L2", black_box=True, polish=True).without_gradients()
    assert alone.runs == ("square_min",)
    assert alone.names == ("square_min", "square_min:polish")
    spent, found = np.array([[500, 0]]), np.array([[1.0, np.inf]])
    for queries, (name, begun) in {
        0: ("square_min", 0),
        500: ("square_min:polish", 0),
        2700: ("square_min:polish", 200),
    }.items():
        place, before = alone.choice(queries, np.zeros_like(spent) if queries == 0 else spent, found)
        assert (alone.names[place[0]], before[0]) == (name, begun)
    assert replace(alone, total=40_000).most == np.inf
    assert Race.from_toml(alone.to_toml()) == alone
    assert small_race("L2").without_gradients() is None


def test_polishing_needs_a_solver_of_the_norm():
    with pytest.raises(FrontierError, match="ddn does not run in L1"):
        replace(small_race("L1"), polish=Polish("ddn", 200, 800)).check()


def test_only_a_race_polishes():
    assert str(Run.parse("fmn:polish")) == "fmn:polish"
    with pytest.raises(FrontierError, match="there is no run fmn:polish"):
        find_ensemble("fmn:polish", "L2", 10)


def test_runs_of_another_norm_are_refused():
    with pytest.raises(FrontierError, match="ddn does not run in L1"):
        race(norm="L1").check()


def test_slices_are_a_tenth_of_a_run():
    assert SLICE == 100
