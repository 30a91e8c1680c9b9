"""PDPGD's step against its formulas, and PDPGD in a norm of one's own."""

import math

import pytest
import torch
from colour_norm import Colours
from searches import answer_of, full, search_of, shift, step
from support.device import count_device_work
from support.models import samples, tanh_mlp
from test_pdgd import STEPS, N, adam_step, settled

from advfrontier import attack
from advfrontier.solvers import PDPGD
from advfrontier.threat.names import NORMS, NormFacts, register_norm


def middle(norm, solver):
    """Return a run whose inputs are far from the ends of the box."""
    search = search_of(norm, "pdpgd", solver=solver)
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    return search


@STEPS
def test_primal_rate(i):
    """With all weight on the margin, so that the proximal step does not show."""
    solver = PDPGD(primal_rate=1e-3)
    search = middle("L2", solver)
    search.state.margin_weight = full(search, 1.0)
    answer = answer_of(search, wrong=False, best=1.0)
    gradient = answer.gradient * solver._slope(search.problem, answer.loss)[:, None]
    settled(search, gradient)
    step(search, i, answer)
    expected = adam_step(gradient, 1e-3 * 0.01 ** (i / N), i)
    torch.testing.assert_close(shift(search), expected, rtol=1e-3, atol=1e-7)


@STEPS
def test_weight_of_the_proximal_step(i):
    """One proximal step in ℓ1 is a soft threshold at λ₀/λ₁·rate over Adam's largest entry."""
    solver = PDPGD(primal_rate=1e-3, proximal_steps=1)
    search = middle("L1", solver)
    search.state.margin_weight = full(search, 0.5)
    answer = answer_of(search, wrong=False, best=1.0)
    answer.gradient.sign_()
    gradient = answer.gradient * solver._slope(search.problem, answer.loss)[:, None]
    settled(search, gradient)
    search.state.first.mul_(3)
    rate, bias = 1e-3 * 0.01 ** (i / N), math.sqrt(1 - 0.999 ** (i + 1))
    steps = adam_step(gradient, rate, i) * (0.9 * 3 + 0.1)
    threshold = rate * bias / gradient.abs().amax(1, keepdim=True)
    step(search, i, answer)
    expected = steps.sign() * (steps.abs() - threshold).clamp(min=0)
    torch.testing.assert_close(shift(search), expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_proximal_step_only_shrinks(norm):
    problem = search_of(norm, "pdpgd").problem
    rng = torch.Generator().manual_seed(0)
    δ = torch.randn(problem.inputs.shape, generator=rng)
    metric = torch.rand(problem.inputs.shape, generator=rng)
    metric /= metric.amax(1, keepdim=True)
    z = PDPGD()._proximal(problem, δ, torch.full((len(δ),), 0.05), metric)
    assert (z.abs() <= δ.abs() + 1e-6).all()
    assert (z * δ >= 0).all()
    assert (problem.norm.size(z) < problem.norm.size(δ)).all()


@pytest.mark.parametrize("norm", NORMS)
def test_step_waits_for_nothing(norm):
    search = search_of(norm, "pdpgd")
    answer = answer_of(search, wrong=False, best=1.0)
    with count_device_work() as work:
        step(search, 3, answer)
    assert work.waits == 0, work.where
    most = {"L0": 320, "L1": 80, "L2": 110, "Linf": 180}
    assert work.operations <= most[norm], work.names


def test_runs_in_a_norm_of_ones_own():
    register_norm(NormFacts("Colours", "ℓ2,1", Colours))
    model = tanh_mlp((3, 4, 4), hidden=16, seed=3)
    images, labels = samples(model, 6, (3, 4, 4), seed=3)
    points, distances = attack(model, images, labels, solver=PDPGD(), norm="Colours", queries=400)
    lengths = (points - images).double().norm(dim=1).flatten(1).sum(1)
    torch.testing.assert_close(lengths, distances)
    assert (distances <= 2.2).all()
    assert (model(points).argmax(1) != labels).all()
