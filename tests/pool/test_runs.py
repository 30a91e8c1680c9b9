"""Names of runs, and the rules between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES
from support.nesting import obeys_rules

from advfrontier import FrontierError
from advfrontier.pool import Run, closure, pool
from advfrontier.threat.names import NORMS


@pytest.mark.parametrize("norm", NORMS)
def test_names_are_read_back(norm):
    for run in pool(norm, name="extended"):
        assert Run.parse(str(run)) == run
        assert run.base.variant == "base"
        assert run.base.attack == run.attack


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
def test_name_that_cannot_be_read_is_refused(name):
    with pytest.raises(FrontierError, match="does not name a run: expected SOLVER"):
        Run.parse(name)


allocations = st.dictionaries(
    st.sampled_from(pool("L1")), st.integers(0, 5).map(lambda k: 100 * k), max_size=12
)


@EXAMPLES
@given(queries=allocations)
def test_closure_makes_any_move_feasible_and_is_no_larger_than_needed(queries):
    raised = {}
    for run, level in queries.items():
        if level:
            for needed, least in {run: level, **closure(run, level, smallest=100)}.items():
                raised[needed] = max(raised.get(needed, 0), least)
    assert obeys_rules(raised)
    if obeys_rules(queries):
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
