"""σ-zero's schedules, threshold and surrogate against their formulas."""

import pytest
import torch
from searches import annealed, answer_of, full, search_of, shift, small, step
from support.device import count_device_work
from test_pdgd import STEPS, adam_step, settled

from advfrontier.solvers import SigmaZero


@STEPS
def test_rate(i):
    search = search_of("L0", "sigma_zero", solver=SigmaZero(eta=1e-3))
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    search.state.threshold.zero_()
    answer = answer_of(search, wrong=False, best=1.0)
    gradient = answer.gradient / answer.gradient.abs().amax(1, keepdim=True)
    settled(search, gradient)
    step(search, i, answer)
    expected = adam_step(gradient, annealed(1e-3, 1e-4, i), i)
    torch.testing.assert_close(shift(search), expected, rtol=2e-2, atol=1e-7)


@STEPS
@pytest.mark.parametrize(("wrong", "direction"), [(True, 1), (False, -1)])
def test_threshold_rises_after_a_success_and_falls_after_a_failure(wrong, direction, i):
    search = search_of("L0", "sigma_zero")
    step(search, i, answer_of(search, wrong=wrong, best=1.0))
    expected = 0.3 + direction * 0.01 * annealed(1.0, 0.1, i + 1)
    torch.testing.assert_close(search.state.threshold, full(search, expected))


def test_no_change_below_the_threshold_is_kept():
    bench = small("L0")
    search = bench.search("sigma_zero")
    for stop in (10, 100, 400):
        bench.go(search, stop)
        change = shift(search).abs()
        smallest = torch.where(change > 0, change, 2).amin(1)
        assert (smallest >= search.state.threshold - 1e-6).all()
    assert (search.state.threshold != SigmaZero().tau).all()


@pytest.mark.parametrize("sigma", [5e-4, 1e-3])
def test_surrogate_alone_pulls_beyond_the_boundary(sigma):
    """Its gradient is 2σδ/(δ² + σ)²; the largest entry becomes 1, and Adam takes a tenth of it."""
    search = search_of("L0", "sigma_zero", solver=SigmaZero(sigma=sigma))
    n, d = search.problem.inputs.shape
    δ = torch.linspace(0.01, 0.3, d).repeat(n, 1)
    search.state.point = search.problem.inputs + δ
    step(search, 0, answer_of(search, wrong=True, best=9.0, loss=-1.0))
    pull = δ / (δ**2 + sigma) ** 2
    expected = 0.1 * pull / pull.amax(1, keepdim=True)
    torch.testing.assert_close(search.state.first, expected, rtol=1e-3, atol=1e-5)


def test_step_waits_for_nothing():
    search = search_of("L0", "sigma_zero")
    answer = answer_of(search, wrong=False, best=1.0)
    with count_device_work() as work:
        step(search, 3, answer)
    assert work.waits == 0, work.where
    assert work.operations <= 60, work.names
