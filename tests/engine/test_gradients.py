"""Gradients that mislead are flagged before an attack relies on them; those of honest nets never
are.
"""

import pytest
import torch
from support.models import Answering, Watch, conv_net, samples, tanh_mlp
from support.nets import NAMES, needs_nets, net

from advfrontier import zoo
from advfrontier.engine import Oracle, check_model
from advfrontier.engine.gradients import agreement
from advfrontier.flags import Kind
from advfrontier.threat.losses import margin


def shattered(model, frequency=1e4):
    def logits(x):
        s = 0.3 * torch.sin(frequency * x)
        return model(x + s - s.detach())

    return logits


def random_slope(model):
    def logits(x):
        noise = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0))
        z = model(x.detach())
        return z + ((x - x.detach()) * noise).flatten(1).sum(1, keepdim=True) * torch.linspace(
            -1, 1, z.shape[1]
        )

    return logits


def rounded(model, levels=255):
    return lambda x: model(x + ((x * levels).round() / levels - x).detach())


DISHONEST = {
    "negated": lambda model: lambda x: model(2 * x.detach() - x),
    "shattered": shattered,
    "shattered slowly": lambda model: shattered(model, 50.0),
    "random": random_slope,
}
HONEST = {
    "plain": lambda model: model,
    "rounded to 8 bits": rounded,
    "half precision": lambda model: lambda x: model(x).bfloat16(),
    "kinked": lambda model: lambda x: model((x - 0.5).abs() + 0.5),
    "flat": lambda model: lambda x: 1e-3 * model(x),
    "steep": lambda model: lambda x: 1e3 * model(x),
}


def kinds(model, images, labels):
    with Oracle(model) as oracle:
        return {flag.kind for flag in check_model(oracle, images, labels)}


def few(images, labels, count=16):
    rows = torch.linspace(0, len(images) - 1, count).long()
    return images[rows], labels[rows]


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name != "F16"])
def test_no_model_of_the_zoo_is_suspected(name):
    assert kinds(zoo.load(name), *few(*zoo.images_and_labels()[:2])) == set()


def test_the_masked_model_of_the_zoo_is():
    assert kinds(zoo.load("F16"), *few(*zoo.images_and_labels()[:2])) == {Kind.NO_GRADIENTS}


@needs_nets
@pytest.mark.parametrize("name", NAMES)
def test_real_nets(name):
    model, images, labels = net(name, 200)
    model.requires_grad_(requires_grad=False)
    images, labels = few(images, labels)
    assert kinds(model, images, labels) == set()
    for make in DISHONEST.values():
        assert kinds(make(model), images, labels) == {Kind.MISLEADING_GRADIENTS}


@pytest.mark.parametrize("name", ["F1", "F4", "F9", "F13"])
@pytest.mark.parametrize("how", DISHONEST)
def test_dishonest_gradients_are_flagged(name, how):
    images, labels = few(*zoo.images_and_labels()[:2])
    assert kinds(DISHONEST[how](zoo.load(name)), images, labels) == {Kind.MISLEADING_GRADIENTS}


@pytest.mark.parametrize("name", ["F1", "F4", "F9", "F13"])
@pytest.mark.parametrize("how", HONEST)
def test_honest_gradients_are_not(name, how):
    images, labels = few(*zoo.images_and_labels()[:2])
    assert kinds(HONEST[how](zoo.load(name)), images, labels) <= {Kind.PRECISION}


def test_a_share_of_the_samples_is_enough():
    """Half of the images, here the brighter ones, have their gradient negated."""
    model = conv_net((1, 8, 8), seed=1)
    images, labels = samples(model, 20, (1, 8, 8), seed=1)
    middle = images.mean((1, 2, 3)).median()

    def logits(x):
        bright = x.mean((1, 2, 3), keepdim=True) > middle
        return model(torch.where(bright, 2 * x.detach() - x, x))

    with Oracle(logits) as oracle:
        (flag,) = check_model(oracle, images, labels)
    assert flag.kind == Kind.MISLEADING_GRADIENTS
    assert "on 50% of the checked samples" in flag.text


def test_agreement_of_a_linear_model_is_exact_at_ends_of_the_box_too():
    weight = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    images = (
        torch.rand(6, 16, generator=torch.Generator().manual_seed(0)).sub(0.3).mul(2).clamp(0, 1)
    )
    assert (images == 0).any()
    labels = (images @ weight).argmax(1)
    for sign in (1, -1):
        with Oracle(Answering(lambda x: x @ weight)) as oracle:
            slope = weight.T[labels] - weight.T[(images @ weight).topk(2, dim=1).indices[:, 1]]
            found = agreement(oracle, images, labels, images @ weight, sign * slope)
        torch.testing.assert_close(
            found, torch.full((6,), float(sign), dtype=torch.float64), rtol=0.01, atol=0
        )


def test_what_cannot_be_told_is_not_guessed():
    """A gradient so small that rounding hides what it predicts, of a model that does not move."""
    images = torch.rand(3, 16)
    still = Answering(lambda x: torch.tensor([[2.0, 1.0]]) + 1e-9 * (x - x.detach())[:, :2])
    with Oracle(still) as oracle:
        found = agreement(
            oracle, images, torch.zeros(3).long(), torch.tensor([[2.0, 1.0]] * 3), 1e-9 * images
        )
    assert found.isnan().all()


def test_a_margin_that_moves_without_a_gradient_to_say_so_is_no_agreement():
    images = torch.rand(3, 16) * 0.5 + 0.25
    labels = torch.zeros(3).long()
    function = Answering(lambda x: torch.stack((4 - x.sum(1).detach(), 1e-9 * x.sum(1)), 1))
    with Oracle(function) as oracle:
        found = agreement(oracle, images, labels, function(images), torch.full((3, 16), -1e-9))
    assert (found == 0).all()


def test_it_is_not_asked_of_models_that_vary_and_costs_six_queries_of_others():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 8, seed=3)
    watch = Watch.on(model)
    with Oracle(model) as oracle:
        check_model(oracle, images, labels)
    assert watch.total == oracle.counts.checks == (1 + 1 + 0.5 + 6) * 8
    assert margin(model(images), labels).min() > 0
    assert kinds(
        lambda x: model(2 * x.detach() - x) + 0.1 * torch.randn(len(x), 10), images, labels
    ) == {Kind.RANDOM}
