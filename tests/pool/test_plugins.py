"""Solvers that are registered in a script or a notebook."""

from dataclasses import dataclass, replace

import pytest

from advfrontier import FrontierError, register
from advfrontier.pool import ANY, CATALOGUE, Run, SolverFacts, check_run, pool
from advfrontier.solvers import solver_of


@dataclass(frozen=True)
class TwoLosses:
    """As far as registering looks."""

    loss_name: str = "dlr"
    rate: float = 1.0


FACTS = SolverFacts("two_losses", TwoLosses, ("L2",), losses=("ce", "dlr"))


@pytest.fixture
def registered():
    yield register(FACTS)
    CATALOGUE.pop("two_losses", None)


def test_solver_with_several_losses_is_registered_with_each(registered):
    assert solver_of(Run("two_losses", "ce")) == TwoLosses("ce")
    assert solver_of(Run("two_losses", "dlr")) == TwoLosses("dlr")
    assert CATALOGUE["two_losses"] == registered


def test_solver_joins_the_extended_pool_and_never_the_papers(registered):
    del registered
    register(replace(FACTS, pools=("paper", "extended")))
    names = {str(run) for run in pool("L2", name="extended")}
    assert {"two_losses-ce", "two_losses-dlr:restart5", "two_losses-ce:target9"} <= names
    assert not [run for run in pool("L2") if run.solver == "two_losses"]
    assert not [run for run in pool("L1", name="extended") if run.solver == "two_losses"]


def test_solver_registered_again_replaces_itself(registered):
    register(replace(registered, norms=ANY))
    assert check_run(Run("two_losses", "ce"), "Linf").norms == ANY


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (object(), "does not describe a solver: expected SolverFacts"),
        (replace(FACTS, name="fmn"), "there is a solver fmn already"),
        (replace(FACTS, step_queries=3), "two_losses spends 3 queries per step: expected 1 or 2"),
        (replace(FACTS, norms=()), "two_losses runs in no norm"),
        (replace(FACTS, norms=("l2",)), "two_losses names l2: expected L2"),
        (replace(FACTS, norms=("L7",)), "unknown norm 'L7'"),
        (replace(FACTS, name="Two Losses"), "does not name a run"),
        (replace(FACTS, losses=("CE",)), "does not name a run"),
    ],
)
def test_facts_that_describe_no_solver_are_refused(facts, message):
    before = dict(CATALOGUE)
    with pytest.raises(FrontierError, match=message):
        register(facts)
    assert before == CATALOGUE


def test_class_that_cannot_be_imported_is_named():
    register(SolverFacts("absent", "advfrontier.solvers.fmn:Absent", ("L2",)))
    try:
        with pytest.raises(FrontierError, match=r"absent is registered as .*fmn:Absent.*imported"):
            solver_of(Run("absent"))
    finally:
        CATALOGUE.pop("absent")
