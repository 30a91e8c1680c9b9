"""DDN: spheres, the schedule of its step, and vanished gradients."""

import math

import pytest
import torch
from searches import annealed, answer_of, full, search_of, shift, step

from advfrontier.solvers import DDN
from advfrontier.solvers.ddn import DDNState


@pytest.mark.parametrize(("wrong", "factor"), [(True, 0.95), (False, 1.05)])
def test_ddn_moves_on_spheres_that_shrink_on_success(wrong, factor):
    search = search_of("L2", "ddn")
    search.problem.inputs.fill_(0.5)  # far from the ends of the box
    answer = answer_of(search, wrong=wrong, best=math.inf)
    downhill = -answer.gradient / answer.length[:, None]
    search.state = DDNState(search.problem.inputs.clone(), full(search, 0.3))
    step(search, 0, answer)
    torch.testing.assert_close(search.state.radius, full(search, 0.3 * factor))
    torch.testing.assert_close(shift(search), 0.3 * factor * downhill)


@pytest.mark.parametrize("i", [0, 100, 250, 400, 499])
def test_ddn_step_follows_a_cosine(i):
    """A step at right angles to the perturbation: its direction afterwards tells the length."""
    search = search_of("L2", "ddn")
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    search.state.point[:, 0] += 0.3
    search.state.radius = full(search, 0.3)
    answer = answer_of(search, wrong=False, best=1.0)
    answer.gradient.zero_()[:, 1] = -2.0
    answer.length.fill_(2.0)
    step(search, i, answer)
    moved = shift(search)
    torch.testing.assert_close(
        0.3 * moved[:, 1] / moved[:, 0], full(search, annealed(1.0, 0.01, i))
    )


def test_ddn_radius_stays_inside_the_box():
    search = search_of("L2", "ddn", solver=DDN(radius=100.0))
    step(search, 0, answer_of(search, wrong=False, best=math.inf))
    torch.testing.assert_close(search.state.radius, search.problem.largest)


def test_ddn_goes_somewhere_where_the_gradient_vanishes():
    search = search_of("L2", "ddn")
    answer = answer_of(search, wrong=False, best=math.inf)
    answer.gradient[:2] = 0
    answer.length[:2] = 1e-12
    step(search, 0, answer)
    assert (shift(search).norm(dim=1) > 0.1).all()
    assert search.state.point.isfinite().all()
