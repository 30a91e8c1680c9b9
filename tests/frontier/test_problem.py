"""Allocation problems: their levels, their worth, and inputs that are refused."""

from dataclasses import replace

import numpy as np
import pytest
from frontier_instances import LEVELS, RUNS, problem, trajectories

from advfrontier.errors import FrontierError
from advfrontier.frontier import (
    Trajectories,
    allocate,
    build_problem,
    exact_optimum,
    staged,
)
from advfrontier.frontier.problem import levels_of


def test_levels_are_tenths_of_what_was_traced():
    assert levels_of(1000) == tuple(range(100, 1001, 100))
    assert levels_of(300) == (30, 60, 90, 120, 150, 180, 210, 240, 270, 300)
    assert levels_of(40) == (10, 20, 30, 40)
    traces = Trajectories(
        ("fmn",), np.array([10, 20]), np.array([[[2.0, 3.0], [1.0, 3.0]]]), ("a", "b"), "L2"
    )
    assert allocate([traces], budgets=(20,))[0].queries == {"fmn": 20}
    few = Trajectories(("fmn",), np.array([1, 2]), traces.distances, ("a", "b"), "L2")
    with pytest.raises(FrontierError, match=r"steps 1.queries = 2: .* a multiple of 10"):
        allocate([few], budgets=(2,))


def test_models_on_which_all_attacks_are_equal_count_as_one():
    ordinary, flat = trajectories(2, models=2)
    flat = replace(flat, distances=np.ones_like(flat.distances))
    p = build_problem([ordinary, flat], levels=LEVELS)
    assert p.constant == 0.5
    assert p.aoi(p.none + 4) == pytest.approx(1)
    assert "model 2" in p.flags[0]
    only = allocate([flat], budgets=(1000,), levels=LEVELS)[0]
    assert (only.total, only.aoi, only.bound) == (0, 1.0, 1.0)
    assert "AOI set to 1" in only.flags[0]


def test_wrong_problems_are_refused():
    first, second = trajectories(0)
    with pytest.raises(FrontierError, match="same runs"):
        build_problem([first, second.select(runs=RUNS[:3])], levels=LEVELS)
    with pytest.raises(FrontierError, match="one norm"):
        build_problem([first, replace(second, norm="Linf")], levels=LEVELS)
    for levels in ((), (500, 250), (250, 250), (0, 250)):
        with pytest.raises(FrontierError, match="rising"):
            build_problem([first], levels=levels)
    with pytest.raises(FrontierError, match="fmn:target1, which has no trajectory"):
        build_problem([first.select(runs=["fmn", "fmn:target2"])], levels=LEVELS)
    with pytest.raises(FrontierError, match="at least one model"):
        build_problem([], levels=LEVELS)
    with pytest.raises(FrontierError, match="rising"):
        staged(problem(0), (4000, 2000))
    with pytest.raises(FrontierError, match="no checkpoint"):
        build_problem([first])
    with pytest.raises(FrontierError, match="too large"):
        exact_optimum(problem(0, samples=8000), 4000)
