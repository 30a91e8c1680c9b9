"""The pools of runs, and which runs there are."""

import pytest
from support.models import samples, tanh_mlp

from advfrontier import FrontierError, trace
from advfrontier.pool import CATALOGUE, Run, check_run, pool
from advfrontier.solvers import solver_of
from advfrontier.threat.names import NORMS

SIZES = {"L0": 45, "L1": 70, "L2": 95, "Linf": 60}
ATTACKS = {
    "L0": {"sigma_zero", "pdpgd", "fmn"},
    "L1": {"pdpgd", "fmn", "apgd_min-ce", "apgd_min-dlr", "alma"},
    "L2": {"pdpgd", "pdgd", "fmn", "apgd_min-ce", "apgd_min-dlr", "alma", "ddn"},
    "Linf": {"pdpgd", "fmn", "apgd_min-ce", "apgd_min-dlr"},
}
BEYOND_THE_PAPER = {"fab_min", "prune", "sparse_min", "square_min"}


@pytest.mark.parametrize("norm", NORMS)
def test_the_papers_pool(norm):
    runs = pool(norm)
    assert len(runs) == len(set(runs)) == SIZES[norm]
    assert {run.attack for run in runs} == ATTACKS[norm]
    for attack in ATTACKS[norm]:
        own = [run for run in runs if run.attack == attack]
        assert [str(run) for run in own if run.variant == "base"] == [attack]
        assert [run.index for run in own if run.variant == "target"] == list(range(1, 10))
        restarts = [] if attack in {"alma", "ddn"} else [1, 2, 3, 4, 5]
        assert [run.index for run in own if run.variant == "restart"] == restarts


@pytest.mark.parametrize("classes", [2, 3, 4, 9, 10, 1000])
@pytest.mark.parametrize("norm", NORMS)
def test_targets_are_the_wrong_classes_up_to_nine(norm, classes):
    targets = min(9, classes - 1)
    runs = pool(norm, classes=classes)
    assert len(runs) == SIZES[norm] - len(ATTACKS[norm]) * (9 - targets)
    assert max(run.index for run in runs if run.variant == "target") == targets


@pytest.mark.parametrize("norm", NORMS)
def test_the_extended_pool_adds_fab_prune_and_black_box_searches(norm):
    beyond = [run for run in pool(norm, name="extended") if run not in pool(norm)]
    added = [str(run) for run in beyond if run.solver in BEYOND_THE_PAPER]
    search = "sparse_min" if norm == "L0" else "square_min"
    expected = {search, *(f"{search}:restart{k}" for k in range(1, 6))}
    if norm != "L0":
        expected |= {"fab_min", *(f"fab_min:restart{k}" for k in range(1, 6))}
        expected |= {f"fab_min:target{k}" for k in range(1, 10)}
    else:
        expected |= {"prune", *(f"prune:target{k}" for k in range(1, 10))}
    assert len(added) == len(expected)
    assert set(added) == expected
    assert set(pool(norm)) <= set(pool(norm, name="extended"))


def test_pools_take_any_spelling_of_a_norm_and_refuse_other_names():
    assert pool("inf") == pool("Linf")
    with pytest.raises(FrontierError, match="unknown pool 'best': expected one of paper, extended"):
        pool("L2", name="best")
    with pytest.raises(FrontierError, match="unknown norm"):
        pool("L7")


@pytest.mark.parametrize("norm", NORMS)
def test_black_box_pool_is_the_search_of_the_norm_with_its_restarts(norm):
    search = "sparse_min" if norm == "L0" else "square_min"
    expected = [search, *(f"{search}:restart{k}" for k in range(1, 6))]
    assert [str(run) for run in pool(norm, name="black-box")] == expected


@pytest.mark.parametrize("norm", NORMS)
def test_every_run_of_the_pool_has_facts_and_a_solver(norm):
    for run in pool(norm, name="extended"):
        facts = check_run(run, norm)
        assert facts is CATALOGUE[run.solver]
        assert str(facts.solver).endswith(f":{type(solver_of(run)).__name__}")


@pytest.mark.parametrize(
    ("name", "norm", "classes", "words"),
    [
        ("pgd", "L2", 10, "unknown solver in run pgd: expected one of sigma_zero, pdpgd"),
        ("ddn", "L1", 10, "ddn does not run in L1: ddn takes L2"),
        ("square_min", "L0", 10, "square_min takes L1, L2, Linf"),
        ("sparse_min", "L2", 10, "sparse_min takes L0"),
        ("fab_min", "L0", 10, "fab_min takes L1, L2, Linf"),
        ("apgd_min", "L2", 10, "expected apgd_min-ce, apgd_min-dlr"),
        ("apgd_min-hinge", "L2", 10, "expected apgd_min-ce, apgd_min-dlr"),
        ("fmn-ce", "L2", 10, "fmn-ce does not name a loss of fmn: expected fmn"),
        ("fmn:restart6", "L2", 10, "no run fmn:restart6 .*fmn:restart5"),
        ("alma:restart1", "L2", 10, "no run alma:restart1"),
        ("ddn:restart1", "L2", 10, "no run ddn:restart1"),
        ("square_min:target1", "Linf", 10, "no run square_min:target1"),
        ("fmn:target10", "L2", 1000, "no run fmn:target10"),
        ("fmn:target3", "L2", 3, "no run fmn:target3 with 3 classes: .*fmn:target2"),
    ],
)
def test_runs_there_are_not(name, norm, classes, words):
    with pytest.raises(FrontierError, match=words):
        check_run(Run.parse(name), norm, classes)
    model = tanh_mlp(hidden=8, classes=min(classes, 30))
    images, labels = samples(model, 2)
    with pytest.raises(FrontierError, match=words.split(":")[0].split(" with")[0]):
        trace(model, images, labels, norm=norm, runs=[name], queries=10)
