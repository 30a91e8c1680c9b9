"""FAB's retraction, projections and mean against their formulas."""

import math
from dataclasses import replace

import pytest
import torch
from searches import answer_of, full, search_of, shift, small, step
from support.device import count_device_work

from advfrontier.solvers import FABMin


def along_one_feature(answer):
    """Make the gradient 2 along feature 1, and 0 elsewhere."""
    answer.gradient.zero_()[:, 1] = 2.0
    answer.length.fill_(2.0)
    return answer


def middle(**options):
    """Return a run whose inputs are far from the ends of the box."""
    search = search_of("L2", "fab_min", **options)
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    return search


@pytest.mark.parametrize("waited", [0, 1, 7, 30])
def test_pull_towards_the_input_fades_while_nothing_succeeds(waited):
    """The input at right angles to the slope: the component along it is the mean's weight."""
    search = middle()
    search.state.point[:, 0] += 0.3
    search.state.waited = full(search, float(waited))
    step(search, 5, along_one_feature(answer_of(search, wrong=False, best=1.0, loss=0.2)))
    α = 0.1 * 1.1 ** -(waited + 1)
    torch.testing.assert_close(shift(search)[:, 0], full(search, 0.3 * (1 - α)))
    torch.testing.assert_close(shift(search)[:, 1], full(search, -1.05 * 0.1))
    assert (search.state.waited == waited + 1).all()


def test_success_is_taken_back_and_the_waiting_begins_anew():
    """The boundary is at −0.2. From −0.27 the way back is 0.07, from the input it is 0.2."""
    search = middle()
    search.state.point[:, 1] -= 0.3
    search.state.waited = full(search, 9.0)
    step(search, 5, along_one_feature(answer_of(search, wrong=True, best=0.3, loss=-0.2)))
    expected = 0.9 * (-0.27 + 1.05 * 0.07) + 0.1 * (-1.05 * 0.2)
    torch.testing.assert_close(shift(search)[:, 1], full(search, expected))
    assert (search.state.waited == 0).all()


def test_projections_are_weighed_by_their_lengths():
    search = middle(solver=FABMin(alpha=1.0))
    search.state.point[:, 1] -= 0.19
    step(search, 5, along_one_feature(answer_of(search, wrong=False, best=1.0, loss=0.02)))
    α = 0.01 / 0.21
    expected = (1 - α) * (-0.19 - 1.05 * 0.01) - α * 1.05 * 0.2
    torch.testing.assert_close(shift(search)[:, 1], full(search, expected))


def test_restarts_begin_half_way_to_the_random_point():
    problem = small("L2").search("fab_min").problem
    starts = torch.rand(problem.inputs.shape, generator=torch.Generator().manual_seed(0))
    state = FABMin().start(replace(problem, starts=starts))
    torch.testing.assert_close(state.point, (problem.inputs + starts) / 2)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_where_the_model_fails_the_point_only_goes_back(broken):
    search = middle()
    search.state.point += 0.1
    answer = answer_of(search, wrong=False, best=1.0)
    answer.logits[:, 3] = broken
    step(search, 5, answer)
    torch.testing.assert_close(shift(search), torch.full_like(shift(search), 0.09))


def test_vanished_gradient_takes_a_random_direction():
    search = middle()
    answer = answer_of(search, wrong=False, best=1.0, loss=0.2)
    answer.gradient.zero_()
    answer.length.fill_(1e-12)
    step(search, 5, answer)
    assert (shift(search) != 0).any(1).all()
    assert search.state.point.isfinite().all()


@pytest.mark.parametrize(("norm", "most"), [("L1", 480), ("L2", 210), ("Linf", 205)])
def test_step_waits_for_nothing(norm, most):
    search = search_of(norm, "fab_min")
    answer = answer_of(search, wrong=False, best=1.0)
    step(search, 2, answer_of(search, wrong=False, best=1.0))  # makes what is cached
    with count_device_work() as work:
        step(search, 3, answer)
    assert work.waits == 0, work.where
    assert work.operations <= most, work.names
