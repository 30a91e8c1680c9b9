"""Surrogate gradients: no value changes, and there is a way back where a model rounds, thresholds
or saturates.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from advfrontier import evaluate, zoo
from advfrontier.engine import Oracle
from advfrontier.engine.diagnose import has_surrogate
from advfrontier.engine.surrogate import surrogate_gradients
from advfrontier.errors import FrontierError
from advfrontier.evaluation.verify import verify
from advfrontier.flags import Kind

GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = torch.rand(12, 3, generator=GENERATOR) + 0.1
IMAGES = torch.rand(4, 12, generator=GENERATOR)

HIDING = {
    "round": lambda x: (5 * x).round() / 5,
    "round to decimals": lambda x: torch.round(x, decimals=1),
    "floor in place": lambda x: (5 * x).floor_() / 5,
    "divide and floor": lambda x: (5 * x) // 1,
    "sign": lambda x: torch.sign(x - 0.5),
    "heaviside": lambda x: torch.heaviside(x - 0.5, torch.tensor(0.0)),
    "threshold": lambda x: (x > 0.5).float(),
    "threshold from the other side": lambda x: (x <= 0.5).to(x.dtype),
    "threshold by where": lambda x: torch.where(x > 0.5, 1.0, 0.0),
    "threshold as a method": lambda x: torch.ones_like(x).where(x > 0.5, torch.zeros_like(x)),
    "threshold times": lambda x: (x > 0.5) * torch.ones_like(x),
    "bytes": lambda x: (255 * x).to(torch.uint8).float() / 255,
    "bytes divided": lambda x: (255 * x).byte() / 255,
    "whole numbers, twice": lambda x: (255 * x).int().long().to(x.dtype),
    "tanh": lambda x: torch.tanh(8000 * (x - 0.5)),
    "tanh in place": lambda x: (8000 * (x - 0.5)).tanh_(),
    "a layer of sigmoids": lambda x: nn.Sigmoid()(8000 * (x - 0.5)),
    "hard tanh": lambda x: nn.Hardtanh()(8000 * (x - 0.5)),
    "hard sigmoid": lambda x: functional.hardsigmoid(8000 * (x - 0.5)),
    "clamp": lambda x: (8000 * (x - 0.5)).clamp(-1, 1),
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("name", HIDING)
def test_every_way_to_hide_a_gradient_is_followed_and_no_value_changes(name):
    """The weights are positive and all that is done rises, or falls: so does every surrogate
    gradient.
    """
    x = IMAGES.clone().requires_grad_()
    plain = HIDING[name](IMAGES.clone()).to(torch.float32) @ WEIGHTS
    with surrogate_gradients():
        answer = HIDING[name](x.clone()).to(torch.float32) @ WEIGHTS
    assert torch.equal(answer.detach(), plain)
    (gradient,) = torch.autograd.grad(answer.sum(), x)
    assert ((gradient < 0) if "other side" in name else (gradient > 0)).all()


def test_a_pixel_near_a_jump_has_a_steeper_slope():
    x = torch.tensor([[0.1, 0.45, 0.49, 0.52, 0.9]], requires_grad=True)
    for hiding in ("sign", "threshold", "tanh", "clamp", "threshold by where"):
        with surrogate_gradients():
            answer = HIDING[hiding](x.clone())
        (gradient,) = torch.autograd.grad(answer.sum(), x)
        order = (x - 0.5).abs().argsort()
        assert (gradient[0, order[0]].diff() < 0).all(), hiding


def test_what_has_a_gradient_keeps_it():
    """Also beside a mask that is made of the same images."""
    x, net = (
        IMAGES.clone().requires_grad_(),
        nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)),
    )
    expected = torch.autograd.grad(net(x).square().sum(), x)[0]
    with surrogate_gradients():
        answer = net(x.clone()).square().sum()
        chosen = torch.where(x > 0.5, x, x)  # crossing the threshold changes nothing
    assert torch.equal(torch.autograd.grad(answer, x)[0], expected)
    assert torch.equal(torch.autograd.grad(chosen.sum(), x)[0], torch.ones_like(x))


def closed(x):
    with torch.no_grad():
        return x.flatten(1) @ WEIGHTS


def through_numpy(x):
    return torch.from_numpy(x.detach().numpy()).flatten(1) @ WEIGHTS


@pytest.mark.parametrize("model", [closed, through_numpy])
def test_what_pytorch_does_not_see_cannot_be_followed(model):
    labels = closed(IMAGES).argmax(1)
    assert not has_surrogate(Oracle(model), IMAGES, labels)


def test_a_scripted_model_is_left_to_searches_without_gradients():
    class Rounded(nn.Module):
        def forward(self, x):
            return (5 * x).round().flatten(1)[:, :3]

    labels = torch.zeros(len(IMAGES), dtype=torch.long)
    assert has_surrogate(Oracle(Rounded()), IMAGES, labels)
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(Rounded())
    assert not has_surrogate(Oracle(scripted), IMAGES, labels)


@pytest.fixture(scope="module")
def masked():
    images, labels = zoo.images_and_labels()
    return zoo.load("F16"), images[:8], labels[:8]


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_a_masked_model_breaks_nearer_than_without_gradients(masked, norm):
    model, images, labels = masked

    def alone(x):
        with torch.no_grad():
            return model(x)

    options = {"norm": norm, "ensemble": 600}
    found, searched = (
        evaluate(model, images, labels, **options),
        evaluate(alone, images, labels, **options),
    )
    assert (found.record.header.gradients, searched.record.header.gradients) == (
        "surrogate",
        "none",
    )
    assert found.counts["attack"] == searched.counts["attack"]
    assert found.distances.mean() < 0.9 * searched.distances.mean()
    assert [flag.kind for flag in found.flags if flag.doubtful] == [Kind.NO_GRADIENTS]
    assert "surrogate" in str(found.flags[0])


class QuarterSteps(nn.Module):
    """A rectifier whose answers are multiples of 1/4."""

    def forward(self, x):
        return (4 * x.relu()).round() / 4


def with_quarter_steps(module):
    """Put `QuarterSteps` in the place of every activation of a network."""
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU | nn.SiLU):
            setattr(module, name, QuarterSteps())
        else:
            with_quarter_steps(child)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["F6", "F8"])
def test_in_l2_the_ensemble_is_nearer_than_apgd_alone_and_than_greedy(name):
    images, labels = zoo.images_and_labels()
    model = with_quarter_steps(zoo.load(name))
    means = {}
    for ensemble in ("4k", "greedy-4k", "apgd_min-ce"):
        found = evaluate(model, images[:24], labels[:24], norm="L2", ensemble=ensemble)
        assert found.record.header.gradients == "surrogate"
        means[ensemble] = found.distances.mean()
    assert means["4k"] <= means["apgd_min-ce"]
    assert means["4k"] <= 0.95 * means["greedy-4k"]


def test_stopped_and_extended_it_is_the_same_and_it_can_be_verified(masked, tmp_path):
    model, images, labels = masked
    options = {"norm": "Linf", "batch_size": 4}
    whole = evaluate(model, images, labels, ensemble=200, **options)
    first = evaluate(model, images, labels, ensemble=100, out=tmp_path, **options)
    more = first.extend(200, model=model)
    assert np.array_equal(more.distances, whole.distances)
    assert np.array_equal(first.distances, whole.distances_at(100))
    assert verify(more, model, images, labels, rerun=1).holds


def test_ensembles_and_single_runs_use_them_too(masked):
    model, images, labels = masked
    found = evaluate(model, images, labels, norm="L2", ensemble=["fmn"])
    assert found.record.header.gradients == "surrogate"
    assert np.isfinite(found.distances).all()


def test_a_model_of_functions_without_derivative_is_attacked():
    def floored(x):
        return ((8 * x.flatten(1)) // 1) @ WEIGHTS

    labels = floored(IMAGES).argmax(1)
    found = evaluate(floored, IMAGES.view(4, 1, 3, 4), labels, norm="L2", ensemble="fmn@100")
    assert found.record.header.gradients == "surrogate"
    with pytest.raises(FrontierError, match="no gradient with respect to the images"):
        evaluate(closed, IMAGES.view(4, 1, 3, 4), labels % 3, norm="L2", ensemble="fmn@100")
