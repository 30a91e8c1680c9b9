"""The stand-in for the model: which points count, and what happens on the boundary."""

import numpy as np
import pytest
import torch
from support.models import samples, tanh_mlp
from torch.nn import functional

from advfrontier import evaluate
from advfrontier.flags import Kind
from advfrontier.pool import Ensemble

NAME = "callable:attack"
SHAPE = (3, 4, 4)


def gradient_steps(model, x, y, *, seen=None):
    """Ascend without end; 2 queries per step."""
    point = x.clone()
    while True:
        point.requires_grad_()
        logits = model(point)
        if seen is not None:
            seen.append((point.detach().clone(), logits.detach().clone()))
        (slope,) = torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), point)
        point = (point.detach() + 0.003 * slope.sign()).clamp(0, 1)


class Ramp(torch.nn.Module):
    """Class 0 below a mean of one half, class 1 above it; beyond, the margin stays at `floor`."""

    def __init__(self, floor):
        super().__init__()
        self.floor = floor
        self.eval()

    def forward(self, images):
        gap = (10 * (0.5 - images.flatten(1).mean(1))).clamp(min=-self.floor)
        return torch.stack((4 + gap / 2, 4 - gap / 2, torch.full_like(gap, -4)), 1)


def to_the_boundary(extra):
    """Return points a little beyond the boundary, by this much of the margin."""
    return lambda _model, x, _y: x + (0.5 - x.flatten(1).mean(1) + extra / 10)[:, None, None, None]


DARK = 0.1 + 0.3 * torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def task():
    model = tanh_mlp(SHAPE, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.3, high=0.7)
    labels[2] = (labels[2] + 1) % 10
    return model, images, labels


def run(attack, model, images, labels, *, norm, queries=1000, name=NAME, out=None):
    """Evaluate with one function as the only run."""
    return evaluate(
        model,
        images,
        labels,
        norm=norm,
        ensemble=Ensemble.of("one", norm, {name: queries}),
        solvers={name: attack},
        out=out,
    )


def test_points_outside_the_box_do_not_count(task):
    found = run(lambda _model, x, _y: x + 40 * torch.sign(x - 0.5), *task, norm="L2")
    assert np.isinf(found.distances[[0, 1, 3, 4, 5]]).all()
    (flag,) = [flag for flag in found.flags if flag.kind is Kind.REJECTED]
    assert "5 samples have misclassified points that do not count: outside [0, 1]" in flag.text


def test_points_on_the_boundary_are_moved_outward_once():
    """2e-5 is within the rounding of logits of size 4; a thousandth farther it counts."""
    zeros = torch.zeros(5, dtype=torch.long)
    model = Ramp(floor=1.0)
    with torch.no_grad():
        assert (model(to_the_boundary(2e-5)(model, DARK, zeros)).argmax(1) == 1).all()
    found = run(to_the_boundary(2e-5), model, DARK, zeros, norm="L2")
    exact = (0.5 - DARK.flatten(1).mean(1)).numpy() * np.sqrt(DARK[0].numel())
    assert found.distances == pytest.approx(1.001 * exact, rel=1e-4)
    assert Kind.REJECTED not in {flag.kind for flag in found.flags}
    assert found.counts["attack"] == 5 * 2
    farther = run(to_the_boundary(1e-2), model, DARK, zeros, norm="L2")
    assert farther.counts["attack"] == 5


def test_model_that_writes_to_its_input_moves_no_point(task):
    net, images, labels = task

    def writing(x):
        z = net(x)
        x.data.fill_(0.5)
        return z

    found = run(gradient_steps, writing, images, labels, norm="Linf", queries=60)
    expected = run(gradient_steps, net, images, labels, norm="Linf", queries=60)
    assert np.array_equal(found.distances, expected.distances)
    assert torch.equal(found.adversarials, expected.adversarials)
