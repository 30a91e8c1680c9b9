"""Names of runs, the pools they make, and the rules between them."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES
from support.models import samples, tanh_mlp
from support.runs import Bench

from advfrontier import FrontierError, register, trace
from advfrontier.pool import CATALOGUE, Run, SolverFacts, check_run, closure, pool, violations
from advfrontier.pool.plugins import REGISTERED
from advfrontier.solvers import solver_of
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import get_norm

SIZES = {"L0": 45, "L1": 70, "L2": 95, "Linf": 60}
ATTACKS = {
    "L0": {"sigma_zero", "pdpgd", "fmn"},
    "L1": {"pdpgd", "fmn", "apgd_min-ce", "apgd_min-dlr", "alma"},
    "L2": {"pdpgd", "pdgd", "fmn", "apgd_min-ce", "apgd_min-dlr", "alma", "ddn"},
    "Linf": {"pdpgd", "fmn", "apgd_min-ce", "apgd_min-dlr"},
}


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
def test_the_extended_pool_adds_fab_and_black_box_searches(norm):
    added = [str(run) for run in pool(norm, name="extended") if run not in pool(norm)]
    search = "sparse_min" if norm == "L0" else "square_min"
    expected = {search, *(f"{search}:restart{k}" for k in range(1, 6))}
    if norm != "L0":
        expected |= {"fab_min", *(f"fab_min:restart{k}" for k in range(1, 6))}
        expected |= {f"fab_min:target{k}" for k in range(1, 10)}
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
def test_names_are_read_back(norm):
    for run in pool(norm, name="extended"):
        assert Run.parse(str(run)) == run
        assert run.base.variant == "base"
        assert run.base.attack == run.attack
        assert solver_of(run).facts is CATALOGUE[run.solver]
        assert check_run(run, norm) is CATALOGUE[run.solver]


MISSPELT = [
    "",
    "FMN",
    "fmn:",
    "fmn:restart",
    "fmn:restart0",
    "fmn:restart01",
    "fmn:other1",
    "fmn-",
    "fmn target1",
]


@pytest.mark.parametrize("name", [*MISSPELT, "fmn:target1:restart1"])
def test_names_that_cannot_be_read(name):
    with pytest.raises(FrontierError, match="does not name a run: expected SOLVER"):
        Run.parse(name)


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


@dataclass(frozen=True)
class TwoLosses:
    """As far as registering looks."""

    facts: ClassVar = SolverFacts("two_losses", ("L2",), losses=("ce", "dlr"))

    loss_name: str = "dlr"
    rate: float = 1.0


def test_a_solver_at_hand_with_several_losses_is_registered_with_each():
    try:
        register(TwoLosses(rate=0.5))
        assert solver_of(Run("two_losses", "ce")) == TwoLosses("ce", 0.5)
        assert solver_of(Run("two_losses", "dlr")) == TwoLosses("dlr", 0.5)
    finally:
        CATALOGUE.pop("two_losses", None)
        REGISTERED.clear()


def test_what_has_no_facts_is_no_solver():
    with pytest.raises(FrontierError, match="the solver's facts are None: expected SolverFacts"):
        register(object())


def test_restarts_have_seeds_43_to_47():
    model = tanh_mlp(hidden=8)
    bench = Bench.of(model, *samples(model, 3), "L2")
    assert bench.unit("fmn").problem.seeds.tolist() == [42] * 3
    assert bench.unit("fmn:target3").problem.seeds.tolist() == [42] * 3
    for k in range(1, 6):
        unit = bench.unit(f"fmn:restart{k}")
        assert unit.problem.seeds.tolist() == [42 + k] * 3
        expected = get_norm("L2").random_start(
            unit.problem.inputs, unit.problem.boundary, seed=42 + k, ids=bench.ids
        )
        assert torch.equal(unit.problem.starts, expected)
    assert torch.equal(bench.unit("fmn").problem.starts, bench.images.flatten(1))


def test_targets_are_the_likeliest_wrong_classes_in_order():
    model = tanh_mlp(hidden=8)
    images, labels = samples(model, 6)
    labels = (
        model(images).topk(2, dim=1).indices[:, 1]
    )  # all misclassified: the label and not the prediction is left out
    bench = Bench.of(model, images, labels, "L2")
    logits = model(images).detach()
    for row, label, targets in zip(logits, labels, bench.clean.targets, strict=True):
        order = [k for k in row.argsort(descending=True).tolist() if k != int(label)]
        assert targets.tolist() == order
    assert not bench.clean.correct.any()


allocations = st.dictionaries(
    st.sampled_from(pool("L1")), st.integers(0, 5).map(lambda k: 100 * k), max_size=12
)


def feasible(queries):
    """The rules, read off the paper."""
    for run, level in queries.items():
        if run.variant == "target" and run.index > 1:
            before = Run(run.solver, run.loss, "target", run.index - 1)
            if level > queries.get(before, 0):
                return False
        if run.variant == "restart" and level > 0 and queries.get(run.base, 0) == 0:
            return False
    return True


@EXAMPLES
@given(queries=allocations)
def test_violations_are_what_the_rules_say(queries):
    found = violations(queries)
    assert (not found) == feasible(queries)
    broken = [
        run
        for run in queries
        if any(line.startswith(f"{run} has {queries[run]} queries") for line in found)
    ]
    assert bool(broken) == bool(found)


@EXAMPLES
@given(queries=allocations)
def test_closures_make_any_move_feasible_and_no_larger_than_needed(queries):
    raised = {}
    for run, level in queries.items():
        if level:
            for needed, least in {run: level, **closure(run, level, smallest=100)}.items():
                raised[needed] = max(raised.get(needed, 0), least)
    assert feasible(raised)
    if feasible(queries):
        assert {run: level for run, level in raised.items() if level} == {
            run: level for run, level in queries.items() if level
        }


def test_closure_of_one_move():
    a = "apgd_min"
    assert closure(Run("fmn"), 500, smallest=100) == {}
    assert closure(Run("fmn", "", "target", 1), 500, smallest=100) == {}
    assert closure(Run(a, "ce", "target", 3), 500, smallest=100) == {
        Run(a, "ce", "target", 1): 500,
        Run(a, "ce", "target", 2): 500,
    }
    assert closure(Run(a, "ce", "restart", 3), 500, smallest=100) == {Run(a, "ce"): 100}
