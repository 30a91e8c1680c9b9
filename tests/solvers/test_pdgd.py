"""The schedules and the dual variable of PDGD, and its step, against their formulas."""

import math

import pytest
import torch
from searches import answer_of, full, search_of, shift, small, step
from support.device import count_device_work

from advfrontier.solvers import PDGD

STEPS = pytest.mark.parametrize("i", [0, 100, 250, 400, 499])
N = 500


def settled(search, gradient):
    """Set Adam's moments as if this gradient had always been the same."""
    search.state.first, search.state.second = gradient.clone(), gradient * gradient


def adam_step(gradient, rate, i):
    """Return Adam's next step, whose correction of the moments' bias is then out of place."""
    return -rate * math.sqrt(1 - 0.999 ** (i + 1)) / (1 - 0.9 ** (i + 1)) * gradient.sign()


@STEPS
def test_primal_rate(i):
    """With all weight on the margin, so that the norm does not show."""
    solver = PDGD(primal_rate=1e-3)
    search = search_of("L2", "pdgd", solver=solver)
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    search.state.margin_weight = full(search, 1.0)
    answer = answer_of(search, wrong=False, best=1.0)
    gradient = answer.gradient * solver._slope(search.problem, answer.loss)[:, None]
    settled(search, gradient)
    step(search, i, answer)
    expected = adam_step(gradient, 1e-3 * 0.01 ** (i / N), i)
    torch.testing.assert_close(shift(search), expected, rtol=1e-3, atol=1e-7)


@STEPS
@pytest.mark.parametrize(
    ("norm", "run", "rate"), [("L2", "pdgd", 0.1), ("L1", "pdpgd", 0.1), ("Linf", "pdpgd", 0.07)]
)
def test_dual_rate_and_running_mean_of_the_weight(norm, run, rate, i):
    search = search_of(norm, run)
    before, weight = search.state.dual_logit.clone(), search.state.margin_weight.clone()
    step(search, i, answer_of(search, wrong=False, best=math.inf))
    after = before + rate * (0.1 + 0.9 * (N - 1 - i) / (N - 1))
    torch.testing.assert_close(search.state.dual_logit, after)
    torch.testing.assert_close(search.state.margin_weight, 0.9 * weight + 0.1 * after.sigmoid())


def test_dual_logit_is_bounded():
    search = search_of("L2", "pdgd")
    search.state.dual_logit = full(search, 13.8)
    step(search, 0, answer_of(search, wrong=False, best=math.inf))
    torch.testing.assert_close(search.state.dual_logit, full(search, -math.log(1e-6)))


def test_weight_follows_the_margin():
    for loss, direction in ((0.5, 1), (-0.5, -1)):
        search = search_of("L2", "pdgd")
        weight = search.state.margin_weight.clone()
        step(search, 0, answer_of(search, wrong=loss < 0, best=math.inf, loss=loss))
        assert ((search.state.margin_weight - weight).sign() == direction).all()
        assert weight.tolist() == pytest.approx([1 / 1.01] * 5)


def test_slope_is_the_softplus_of_margins_scaled_to_at_least_two():
    problem = small("L2").search("pdgd").problem
    margin = torch.linspace(-3, 3, len(problem.margin))
    stretch = (2 / problem.margin).clamp(min=1)
    assert (stretch > 1).any()
    torch.testing.assert_close(PDGD()._slope(problem, margin), (stretch * margin).sigmoid())


def test_gradient_holds_both_terms():
    """The first moment after one step is a tenth of the gradient."""
    search = search_of("L2", "pdgd")
    search.state.point = search.state.point * 0.9
    λ, δ = full(search, 0.7), shift(search).clone()
    search.state.margin_weight = λ
    answer = answer_of(search, wrong=False, best=1.0)
    slope = search.solver._slope(search.problem, answer.loss)
    expected = (λ * slope)[:, None] * answer.gradient + 0.3 * δ / δ.norm(dim=1, keepdim=True)
    step(search, 0, answer)
    torch.testing.assert_close(search.state.first, 0.1 * expected)


def test_step_waits_for_nothing():
    search = search_of("L2", "pdgd")
    answer = answer_of(search, wrong=False, best=1.0)
    with count_device_work() as work:
        step(search, 3, answer)
    assert work.waits == 0, work.where
    assert work.operations <= 50, work.names
