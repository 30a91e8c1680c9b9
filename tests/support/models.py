"""Small classifiers, and a counter that watches a model from outside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

SHAPE = (1, 6, 6)  # of the images of `conv_problem`


def tanh_mlp(shape=(3, 4, 4), *, hidden=64, classes=10, seed=0):
    """The random tanh network on which a radius rule that stalls is caught: PyTorch's default
    initialisation.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        features = int(torch.tensor(shape).prod())
        return nn.Sequential(
            nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)
        ).eval()


def conv_net(shape=(1, 8, 8), *, classes=4, seed=0):
    """One convolution with a kink, and a linear layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        conv = nn.Conv2d(shape[0], 6, 3, 2, 1)
        side = (shape[1] + 1) // 2, (shape[2] + 1) // 2
        return nn.Sequential(
            conv, nn.ReLU(), nn.Flatten(), nn.Linear(6 * side[0] * side[1], classes)
        ).eval()


def linear(features, classes, *, seed=0):
    """A random linear classifier, flat inputs, logits of order one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = nn.Linear(features, classes)
        with torch.no_grad():
            layer.weight.normal_(0, features**-0.5)
            layer.bias.zero_()
        return layer.eval()


def samples(model, count, shape=(3, 4, 4), *, seed=0, low=0.0, high=1.0):
    """Random images with the labels the model gives them."""
    images = low + (high - low) * torch.rand(
        count, *shape, generator=torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        return images, model(images).argmax(1)


class Answering(nn.Module):
    """A model made of a function of (flat images) → logits."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, images):
        return self.function(images.flatten(1))


def conv_problem(count, *, wrong=None):
    """A small convolutional net with images and labels that it gives them, one of which may be
    another.
    """
    model = conv_net(SHAPE, classes=10, seed=5)
    images, labels = samples(model, count, SHAPE, seed=5)
    if wrong is not None:
        labels[wrong] = (labels[wrong] + 1) % 10
    return model, images, labels


@dataclass
class Watch:
    """Rows that went through a model forwards and backwards, seen by hooks of its own."""

    forward: int = 0
    backward: int = 0

    @classmethod
    def on(cls, model):
        """Start watching a module."""
        watch = cls()
        model.register_forward_hook(watch._saw)
        return watch

    @property
    def total(self):
        """Queries."""
        return self.forward + self.backward

    def _saw(self, _module, inputs, output):
        self.forward += len(inputs[0])
        if output.requires_grad:
            output.register_hook(self._back)

    def _back(self, gradient):
        self.backward += len(gradient)
