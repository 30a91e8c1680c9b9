"""Races: a pure choice from what was seen, written as TOML, with every smaller budget a prefix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.races import constants, small_race

from advfrontier import FrontierError
from advfrontier.pool import RACE, SLICE, Ensemble, Polish, Race, Run, Turn, find_ensemble
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
    found = np.array(
        [[state[run][1] if run in state else np.inf for run in runs] for state in states]
    )
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
    assert chosen({"fmn": (300, 2.2), "ddn": (100, 2.0)}) == [
        "fmn:restart1"
    ]  # 0.8 · 2.2 is less than 2


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
    assert (
        11000 <= tiers[2].total <= 12000
    )  # an allocation may have had no use for the last thousand
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
    turns = (Turn("ddn", 100, reach=2.0), Turn("fmn", 200), Turn("ddn", 100))
    polishes = race(polish=Polish(turns, 1000))
    states = seen({"fmn": (300, 2.0), "ddn": (100, 2.1)}, {"fmn": (100, 9.0), "ddn": (100, 2.0)})
    spent, found = (np.pad(table, ((0, 0), (0, 2))) for table in states)
    assert polishes.names == (*RUNS_IN_ORDER, "ddn:polish", "fmn:polish")
    expected = {
        600: (3, 0),
        650: (3, 50),
        700: (4, 0),
        800: (4, 100),
        900: (3, 0),
        1600: (3, 0),
        1750: (4, 50),
    }
    for queries, (place, before) in expected.items():
        assert [each.tolist() for each in polishes.choice(queries, spent, found)] == [
            [place] * 2,
            [before] * 2,
        ]
    for queries in (0, 500, 1000, 1500):
        chosen, before = polishes.choice(queries, spent, found)
        assert [polishes.names[place] for place in chosen] == ["fmn:restart1", "ddn"]
        assert before.tolist() == [0, 100]


@pytest.mark.parametrize(
    ("queries", "every"), [(150, 800), (200, 850), (800, 800), (0, 800), (1100, 4000)]
)
def test_polishing_that_fits_no_slices_is_refused(queries, every):
    with pytest.raises(FrontierError, match="expected multiples of 100"):
        Polish((Turn("fmn", queries),), every)


def test_polishing_needs_turns_that_fit():
    with pytest.raises(FrontierError, match="polishes for 0 of every 800"):
        Polish((), 800)
    with pytest.raises(FrontierError, match=r"polishes for 400 \+ 400 of every 700"):
        Polish((Turn("fmn", 400), Turn("ddn", 400)), 700)


@pytest.mark.parametrize("reach", [0.5, float("inf"), float("nan")])
def test_a_run_that_polishes_starts_at_the_point_or_beyond(reach):
    with pytest.raises(FrontierError, match=f"a reach of {reach}: expected 1 or more"):
        Polish((Turn("fmn", 200, reach),), 800)


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
        place, before = alone.choice(
            queries, np.zeros_like(spent) if queries == 0 else spent, found
        )
        assert (alone.names[place[0]], before[0]) == (name, begun)
    assert replace(alone, total=40_000).most == np.inf
    assert Race.from_toml(alone.to_toml()) == alone
    assert small_race("L2").without_gradients() is None


@pytest.mark.parametrize("norm", NORMS)
def test_with_surrogate_gradients_a_search_without_any_polishes_in_l0_and_linf(norm):
    own = find_ensemble("race-12k", norm, 10)
    taken = own.with_surrogates()
    assert replace(taken, polish=own.polish) == own
    polish = {"L0": "sparse_min", "Linf": "square_min"}.get(norm, own.polish.turns[0].attack)
    assert taken.polish.turns[0].attack == polish
    assert small_race(norm).with_surrogates() == small_race(norm)  # which has no such search


def test_polishing_needs_a_solver_of_the_norm():
    with pytest.raises(FrontierError, match="ddn does not run in L1"):
        replace(small_race("L1"), polish=Polish((Turn("ddn", 200),), 800)).check()


def test_only_a_race_polishes():
    assert str(Run.parse("fmn:polish")) == "fmn:polish"
    with pytest.raises(FrontierError, match="there is no run fmn:polish"):
        find_ensemble("fmn:polish", "L2", 10)


def test_runs_of_another_norm_are_refused():
    with pytest.raises(FrontierError, match="ddn does not run in L1"):
        race(norm="L1").check()


def test_slices_are_a_tenth_of_a_run():
    assert SLICE == 100
