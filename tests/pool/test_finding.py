"""Ensembles by what a user calls them, and what a bare budget means when one is extended."""

from itertools import pairwise

import pytest
from support.ensembles import small_ensemble
from support.nesting import contains, obeys_rules

from advfrontier.errors import FrontierError
from advfrontier.pool import Ensemble, Raise, Run, find_ensemble, find_larger, make_ensemble
from advfrontier.threat.names import NORMS

LABELS = ("4k", "8k", "12k")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("family", ["", "greedy-", "paper-"])
def test_every_family_has_nested_tiers_in_every_norm(family, norm):
    tiers = [find_ensemble(f"{family}{label}", norm, 10) for label in LABELS]
    assert [tier.name for tier in tiers[:2]] == [f"{family}4k", f"{family}8k"]
    assert [tier.total for tier in tiers[:2]] == [4000, 8000]
    assert 11000 <= tiers[2].total <= 12000  # an allocation may have no use for the last thousand
    for small, large in pairwise(tiers):
        assert large.holds(small)
        assert contains(large, small)
    for tier in tiers:
        assert sum(tier.queries.values()) == tier.total


@pytest.mark.parametrize("norm", NORMS)
def test_paper_family_obeys_the_rules_of_the_paper(norm):
    assert obeys_rules(find_ensemble("paper-8k", norm, 10).queries)


@pytest.mark.parametrize("norm", NORMS)
def test_default_family_refines(norm):
    assert any(":refine" in name for name in find_ensemble("4k", norm, 10).queries)


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ("4K", "4k"),
        (" Greedy-4k ", "greedy-4k"),
        (4000, "4k"),
        ("4000", "4k"),
        ([Run("fmn")], "fmn"),
        (["fmn", " ddn "], "fmn,ddn"),
        ("fmn,fmn", "fmn"),
        ("12k@4000", "4k"),
    ],
)
def test_other_spellings_are_found(asked, same):
    assert find_ensemble(asked, "L2", 10) == find_ensemble(same, "L2", 10)


def test_runs_advance_alternately_by_a_hundred_queries():
    ensemble = find_ensemble("fmn,ddn", "L2", 10)
    assert ensemble.total == 2000
    assert ensemble.steps[:4] == (
        Raise(run="fmn", queries=100),
        Raise(run="ddn", queries=100),
        Raise(run="fmn", queries=200),
        Raise(run="ddn", queries=200),
    )


def test_runs_can_be_stopped_at_a_budget_that_reaches_all_of_them():
    ensemble = find_ensemble("fmn,ddn,alma@210", "L2", 10)
    assert ensemble.queries == {"fmn": 100, "ddn": 100, "alma": 10}
    with pytest.raises(FrontierError, match=r"150 queries per sample do not reach .* at least 210"):
        find_ensemble("fmn,ddn,alma@150", "L2", 10)
    with pytest.raises(FrontierError, match=r"at most 1000 queries per sample \(asked: 5000\)"):
        find_ensemble("fmn@5000", "L2", 10)


def test_pools_are_ensembles():
    assert find_ensemble("black-box", "L0", 10).runs[0] == "sparse_min"
    assert len(find_ensemble("paper", "L2", 10).runs) == 95
    assert find_ensemble("paper", "L2", 10).name == "paper-pool"
    assert find_ensemble("black-box@600", "Linf", 10).total == 600


def test_file_may_lie_anywhere(tmp_path):
    place = tmp_path / "me@host"
    place.mkdir()
    Ensemble.of("mine", "L2", {"fmn": 40, "ddn": 20}).save(place / "e.toml")
    assert find_ensemble(str(place / "e.toml"), "L2", 10).total == 60
    assert find_ensemble(place / "e.toml", "L2", 10).total == 60
    assert find_ensemble(f"{place / 'e.toml'}@40", "L2", 10).total == 40


@pytest.mark.parametrize("norm", NORMS)
def test_few_classes_leave_the_queries_to_other_steps(norm):
    two = find_ensemble("4k", norm, 2)
    assert two.total == 4000
    assert not [run for run in two.names if run.endswith(tuple(f"target{k}" for k in range(2, 10)))]
    assert find_ensemble("8k", norm, 2).holds(two)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "ensemble runs has no runs: expected at least one"),
        (make_ensemble(name="none", norm="L2"), "ensemble none has no runs: expected at least one"),
        ("fmn@5", "^5 queries are too few to run anything: expected at least 10"),
        ("4k@5", "^5 queries are too few to run anything: expected at least 10"),
        (["fmn", None], "'None' does not name a run"),
        ("-5", "^'-5' is not a budget: expected a number of queries such as 4k"),
        ("greedy-0", "^'0' is not a budget"),
        ("20k", "20000 queries are more than the largest tier: expected at most 12000"),
        ("fmn:refine", "'fmn:refine' does not name a run"),
        ({"fmn": 100}, r"is no ensemble: expected a budget such as 4k.*Ensemble\.of"),
        (1.5, "ensemble"),
        ("absent.toml", r"no ensemble file absent\.toml: `advfrontier allocate` writes such"),
        ("sigma_zero", "sigma_zero does not run in L2"),
        (small_ensemble("L1"), "ensemble small is for L1, the evaluation in L2"),
        ("xyz", "xyz: no such ensemble or run: expected"),
    ],
)
def test_what_cannot_be_run_is_named(asked, message):
    with pytest.raises(FrontierError, match=message):
        find_ensemble(asked, "L2", 10)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("greedi-2500", "greedy-2500"),
        ("papper-4k", "paper-4k"),
        ("blackbox", "black-box"),
        ("fmn,amla:target1", "alma:target1"),
    ],
)
def test_misspelt_name_is_answered_with_the_nearest_and_with_all_kinds(asked, meant):
    with pytest.raises(FrontierError, match="no such ensemble or run") as error:
        find_ensemble(asked, "L2", 10)
    assert f"(did you mean {meant}?)" in str(error.value)
    assert "a family (greedy, paper) with a tier (4k, 8k, 12k) as in greedy-4k" in str(error.value)


# Extending


@pytest.mark.parametrize("classes", [2, 5, 10])
@pytest.mark.parametrize("family", ["", "greedy-", "paper-"])
@pytest.mark.parametrize("norm", ["L0", "L2"])
def test_any_budget_of_few_classes_is_a_prefix_and_can_be_extended(norm, family, classes):
    whole = find_ensemble(f"{family}12k", norm, classes)
    for budget in range(500, whole.total, 1500):
        part = find_ensemble(f"{family}{budget}", norm, classes)
        assert part.queries == whole.at(budget).queries
        larger = find_larger(str(whole.total), part, classes)
        assert larger.holds(part)
        assert larger.total == whole.total


@pytest.mark.parametrize("asked", ["600", 600])
def test_bare_budget_extends_the_list_that_was_begun(asked):
    part = find_ensemble("fmn,ddn@210", "L2", 10)
    larger = find_larger(asked, part, 10)
    assert larger.total == 600
    assert larger.holds(part)
    assert larger.queries == {"fmn": 300, "ddn": 300}


def test_bare_budget_extends_an_allocation_beyond_its_own_list():
    """A file of a few runs goes on with these runs in turns, once its own list is spent."""
    part = Ensemble.of("mine", "L2", {"fmn": 100, "ddn": 100})
    larger = find_larger("1k", part, 10)
    assert larger.total == 1000
    assert larger.holds(part)
    assert larger.queries == {"fmn": 500, "ddn": 500}


def test_bare_budget_beyond_every_list_is_refused():
    part = Ensemble.of("mine", "L2", {"fmn": 300, "ddn": 100})
    with pytest.raises(FrontierError, match=r"mine can use at most 400 .*\(asked: 12000\)"):
        find_larger("12k", part, 10)


@pytest.mark.parametrize("asked", ["greedy-8k", "paper", "fmn,ddn", ["fmn"], small_ensemble("L2")])
def test_everything_else_means_what_it_says(asked):
    assert find_larger(asked, find_ensemble("4k", "L2", 10), 10) == asked


def test_without_an_ensemble_before_it_a_budget_means_what_it_says():
    assert find_larger("8k", None, 10) == "8k"
    assert find_larger(8000, None, 10) == 8000
