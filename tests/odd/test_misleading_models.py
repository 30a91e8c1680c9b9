"""Networks whose gradients mislead are never overrated in silence, and honest ones never flagged.

Every wrapper of `misleading_models` is evaluated. Its distances are within 5 % of the distances of
the plain network at the same budget, or of a bound on its own, or a flag casts doubt on them.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from misleading_models import HONEST, MISLEADING, nearest_on_rays
from support.models import conv_net, samples
from support.nets import NAMES, needs_nets
from support.nets import net as shared_net
from torch import nn

from advfrontier import evaluate, zoo
from advfrontier.engine import Oracle, check_model
from advfrontier.flags import Kind, doubts

TOLERANCE = 1.05
NORMS = ("L2", "Linf")
LONG = {"small": 1000}  # queries that the plain network gets; 4000 for others


def spread_out(images, labels, count):
    rows = torch.linspace(0, len(images) - 1, count).long()
    return images[rows], labels[rows]


@cache
def subject(name):
    """Return a network, 8-bit images that it classifies correctly, and their labels."""
    if name == "small":
        model = conv_net((1, 8, 8), seed=1)
        images, _ = samples(model, 6, (1, 8, 8), seed=4)
        images = (images * 255).round() / 255
        return model.requires_grad_(requires_grad=False), images, model(images).argmax(1)
    if name in zoo.MODELS:
        model, (images, labels) = zoo.load(name), zoo.images_and_labels()[:2]
    else:
        model, images, labels = shared_net(name, 100)
    model.requires_grad_(requires_grad=False)
    right = model(images).argmax(1) == labels
    return model, *spread_out(images[right], labels[right], 8)


@cache
def plain(name, norm):
    """Return the evaluation of a network without a wrapper, at a good budget."""
    model, images, labels = subject(name)
    return evaluate(model, images, labels, norm=norm, ensemble=LONG.get(name, 4000))


def judged(name, wrapper, norm, queries):
    """Return how far a wrapped network is overrated, and the flags that cast doubt on it."""
    model, images, labels = subject(name)
    reference = plain(name, norm)
    make = MISLEADING[wrapper]
    stretch = nearest_on_rays(make(model, images), images, labels, reference.adversarials)
    bound = np.maximum(stretch * reference.distances, reference.distances_at(queries))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate(make(model, images), images, labels, norm=norm, ensemble=queries)
    return found.distances.mean() / bound.mean(), doubts(found.flags)


def assert_never_overrated_in_silence(name, norm, queries, wrappers=tuple(MISLEADING)):
    silent = {}
    for wrapper in wrappers:
        ratio, flags = judged(name, wrapper, norm, queries)
        state = ", ".join(flag.kind for flag in flags)
        sys.stdout.write(f"{name} {norm} {queries} {wrapper}: {ratio:.3f} {state}\n")
        if not ratio <= TOLERANCE and not flags:
            silent[wrapper] = ratio
    assert not silent


def test_there_are_enough_wrappers():
    assert len(MISLEADING) >= 25


@pytest.mark.parametrize(("norm", "first"), [("L2", 0), ("Linf", 1)])
def test_misleading_models_are_never_overrated_in_silence(norm, first):
    assert_never_overrated_in_silence("small", norm, 400, tuple(MISLEADING)[first::2])


REAL = ("small", "F3", "F13", "cifar_cnn_a_adv", "cifar_resnet20_plain", "mnist_small_fgsm")


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("queries", [400, 1000, 4000])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", REAL)
def test_misleading_real_nets_are_never_overrated_in_silence(name, norm, queries):
    assert_never_overrated_in_silence(name, norm, queries)


# Honest networks


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, width):
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.inside(x))


class TinyViT(nn.Module):
    """A vision transformer of one layer on patches of 7 × 7."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 7, 7)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, 32))
        self.layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, activation="gelu", batch_first=True
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.layer(tokens).mean(1))


def dense(activation):
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 64),
        activation,
        nn.Linear(64, 64),
        activation,
        nn.Linear(64, 10),
    )


TRAINED = {
    "softplus": lambda: dense(nn.Softplus()),
    "tanh": lambda: dense(nn.Tanh()),
    "gelu": lambda: dense(nn.GELU()),
    "residual with batch norm": lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Block(8),
        Block(8),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
    ),
    "vision transformer": TinyViT,
}


@cache
def trained(name):
    """Train a network on the embedded images for a few steps, without any defence."""
    images, labels = zoo.images_and_labels()[:2]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TRAINED[name]().train()
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(60):
            rows = torch.randint(len(images), (100,))
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize("wrapper", HONEST)
@pytest.mark.parametrize("name", TRAINED)
def test_honest_trained_nets_are_not_flagged(name, wrapper):
    images, labels = zoo.images_and_labels()[:2]
    model = HONEST[wrapper](trained(name), images)
    with Oracle(model) as oracle:
        assert check_model(oracle, *spread_out(images, labels, 32)) == []


@pytest.mark.parametrize("name", ["softplus", "residual with batch norm"])
def test_honest_trained_nets_are_not_flagged_after_attacks(name):
    images, labels = spread_out(*zoo.images_and_labels()[:2], 6)
    for norm in NORMS:
        assert evaluate(trained(name), images, labels, norm=norm, ensemble=400).flags == ()


HONEST_NETS = [*NAMES, *(name for name in zoo.MODELS if name != "F16")]


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("queries", [400, 1000])
@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
@pytest.mark.parametrize("name", HONEST_NETS)
def test_honest_nets_are_not_flagged(name, norm, queries):
    flags = doubts(evaluate(*subject(name), norm=norm, ensemble=queries).flags)
    # Attacks of a few hundred queries may be beaten on a network that they do not converge on.
    assert {flag.kind for flag in flags} <= ({Kind.NOISE} if queries < 1000 else set())
