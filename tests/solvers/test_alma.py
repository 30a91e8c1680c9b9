"""ALMA: first step, penalty, decay, and momentum against the box."""

import math

import pytest
import torch
from searches import Bench, answer_of, full, search_of, shift, step
from support.models import Answering

from advfrontier.solvers import ALMA
from advfrontier.solvers.alma import slope


@pytest.mark.parametrize(("norm", "distance"), [("L1", 0.5), ("L2", 0.1)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_first_plain_step_goes_the_wanted_distance(norm, distance, scale):
    search = search_of(norm, "alma")
    answer = answer_of(search, wrong=False, best=math.inf)
    answer.gradient.mul_(scale)
    answer.length.mul_(scale)
    gradient = answer.gradient * slope(answer.loss, search.state.ρ, search.state.μ)[:, None]
    step(search, 0, answer)
    x = search.problem.inputs
    moved = (x - search.state.rate[:, None] * gradient).clamp(0, 1) - x
    torch.testing.assert_close(
        search.problem.norm.size(moved), full(search, distance), rtol=1e-3, atol=0
    )


def test_first_step_goes_half_as_far_as_the_box_allows():
    """All features but one are at the end of the box that the step leads to."""
    search = search_of("L1", "alma")
    search.problem.inputs.zero_()
    search.problem.inputs[:, 0] = 0.06
    answer = answer_of(search, wrong=False, best=math.inf)
    answer.gradient.abs_()
    gradient = answer.gradient * slope(answer.loss, search.state.ρ, search.state.μ)[:, None]
    step(search, 0, answer)
    torch.testing.assert_close(
        search.state.rate * gradient[:, 0], full(search, 0.03), rtol=1e-4, atol=0
    )


def test_first_step_without_room_takes_the_plain_rate():
    search = search_of("L1", "alma")
    search.problem.inputs.zero_()
    answer = answer_of(search, wrong=False, best=math.inf)
    answer.gradient.abs_()
    step(search, 0, answer)
    assert search.state.rate.tolist() == pytest.approx([0.1] * 5)


def test_a_distance_of_zero_takes_the_plain_rate():
    search = search_of("L2", "alma", solver=ALMA(distance=0, rate=0.03))
    step(search, 0, answer_of(search, wrong=False, best=math.inf))
    assert search.state.rate.tolist() == pytest.approx([0.03] * 5)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_a_narrow_box_is_no_hindrance(norm):
    """One feature counts, and can go 0.06 down."""
    x = torch.full((2, 8), 0.06)
    model = Answering(lambda images: torch.stack([images[:, 0] - 0.04, 0.04 - images[:, 0]], 1))
    bench = Bench.of(model, x, torch.zeros(2, dtype=torch.long), norm)
    torch.testing.assert_close(
        bench.distances("alma", 400),
        torch.full((2,), 0.02, dtype=torch.float64),
        rtol=0.02,
        atol=0,
    )


def test_slope_is_that_of_the_penalty():
    s = torch.linspace(-2, 2, 41, dtype=torch.float64, requires_grad=True)
    μ, ρ = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.7, dtype=torch.float64)
    penalty = torch.where(s >= 0, μ * s + μ * ρ * s**2 + ρ**2 * s**3 / 6, μ * s / (1 - ρ * s))
    (expected,) = torch.autograd.grad(penalty.sum(), s)
    torch.testing.assert_close(slope(s.detach(), ρ, μ), expected)


@pytest.mark.parametrize(("now", "before", "grows"), [(0.9, 1.0, False), (0.96, 1.0, True)])
def test_penalty_grows_where_the_loss_did_not_fall_by_a_twentieth(now, before, grows):
    search = search_of("L2", "alma")
    search.state.checked = full(search, before)
    step(search, 9, answer_of(search, wrong=False, best=math.inf, loss=now))
    assert search.state.ρ.tolist() == pytest.approx([1.2 if grows else 1.0] * 5)


def test_penalty_does_not_grow_after_a_success():
    search = search_of("L2", "alma")
    search.state.first_success = full(search, 3.0)
    step(search, 9, answer_of(search, wrong=False, best=1.0, loss=2.0))
    assert search.state.ρ.tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("i", "checks"), [(7, False), (8, False), (9, True), (10, False), (19, True), (499, True)]
)
def test_penalty_is_checked_every_ten_steps(i, checks):
    search = search_of("L2", "alma")
    search.state.checked = full(search, 0.4)
    step(search, i, answer_of(search, wrong=False, best=1.0, loss=0.5))
    assert search.state.ρ.tolist() == pytest.approx([1.2 if checks else 1.0] * 5)
    assert search.state.checked.tolist() == pytest.approx([0.5 if checks else 0.4] * 5)


@pytest.mark.parametrize("i", [1, 250])
def test_multiplier_is_a_running_mean_of_the_slope(i):
    search = search_of("L2", "alma")
    search.state.μ = full(search, 0.7)
    step(search, i, answer_of(search, wrong=False, best=1.0, loss=0.5))
    expected = 0.7 + 2 * 0.7 * 0.5 + 0.5**2 / 2
    torch.testing.assert_close(search.state.μ, full(search, 0.9 * 0.7 + 0.1 * expected))


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_step_minimises_distance_plus_penalty(norm):
    """One step from fresh averages, against the gradient that autograd finds."""
    search = search_of(norm, "alma")
    search.state.point = (search.problem.inputs + 0.1).clamp(0, 1)
    answer = answer_of(search, wrong=False, best=1.0, loss=-0.2)
    μ = 0.9 + 0.1 / 1.2**2
    δ = shift(search).clone().requires_grad_()
    (expected,) = torch.autograd.grad(search.problem.norm.size(δ).sum(), δ)
    expected = expected + answer.gradient * μ / 1.2**2
    before = search.state.point.clone()
    step(search, 1, answer)
    scaled = expected / ((0.9 + 0.1 * expected**2).sqrt() + 1e-8)
    torch.testing.assert_close(search.state.point, (before - 0.1 * scaled).clamp(0, 1))


@pytest.mark.parametrize(
    ("i", "first", "decay"),
    [(50, 501, 1), (100, 100, 1), (300, 100, 0.01**0.5), (499, 0, 0.01**0.998)],
)
def test_rate_decays_from_the_first_success_on(i, first, decay):
    search = search_of("L2", "alma")
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    search.state.first_success = full(search, float(first))
    search.state.rate = full(search, 1e-3)
    answer = answer_of(search, wrong=False, best=1.0)
    answer.gradient.sign_()
    search.state.square = torch.full_like(search.state.square, 1e-6)
    step(search, i, answer)
    expected = torch.full_like(shift(search), decay / 0.1**0.5)
    torch.testing.assert_close(shift(search).abs() / 1e-3, expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("norm", "decrease", "last"),
    [("L2", None, 0.01), ("L1", None, 0.003), ("L1", 0.01, 0.01), ("L2", 0.1, 0.1)],
)
def test_rate_falls_to_a_share_of_the_first(norm, decrease, last):
    """Without a gradient the step is the rate times nine tenths of the momentum."""
    search = search_of(norm, "alma", solver=ALMA(rate_decrease=decrease))
    steps = search.problem.steps
    search.state.point = torch.full_like(search.state.point, 0.5)
    search.state.momentum = torch.full_like(search.state.momentum, 0.01)
    search.state.square = torch.full_like(search.state.square, 1e16)
    search.state.first_success = full(search, 0.0)
    answer = answer_of(search, wrong=False, best=1.0)
    answer.gradient.zero_()
    step(search, steps - 1, answer)
    moved = float((0.5 - search.state.point).mean())
    assert moved == pytest.approx(0.1 * last ** ((steps - 1) / steps) * 0.9 * 0.01, rel=0.02)


@pytest.mark.parametrize(("norm", "keeps"), [("L1", False), ("L2", True)])
def test_momentum_against_the_box_is_dropped_in_l1(norm, keeps):
    search = search_of(norm, "alma")
    search.state.point = torch.zeros_like(search.state.point)
    search.state.momentum = torch.ones_like(search.state.momentum)  # the step is down
    step(search, 1, answer_of(search, wrong=False, best=1.0))
    assert (search.state.point == 0).any()
    pushing = search.state.momentum[search.state.point == 0] > 0
    assert pushing.all() if keeps else not pushing.any()
