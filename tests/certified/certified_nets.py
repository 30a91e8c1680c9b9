"""Small networks of all that can be certified."""

from __future__ import annotations

import torch
from torch import nn


class Shortcut(nn.Module):
    """Two convolutions beside a third, one ReLU in place and one as a function."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 6, 3, 1, 1)
        self.beside, self.act = nn.Conv2d(4, 6, 1, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        return torch.relu(self.beside(x) + self.second(self.act(self.first(x))))


class Shifted(nn.Module):
    """Numbers and buffers in front, some of them negative."""

    def __init__(self):
        super().__init__()
        self.register_buffer("spread", torch.tensor([0.5, -0.25]).view(1, 2, 1, 1))

    def forward(self, x):
        return 2 * (0.4 - x) / self.spread - 0.1 * x


def plain():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )


def pooled():
    return nn.Sequential(
        Shifted(),
        nn.AvgPool2d(2),
        nn.Conv2d(2, 5, 3, padding=1, bias=False),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Dropout(),
        nn.Conv2d(5, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def residual():
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(8, 4, 1),
        nn.ReLU(),
        Shortcut(),
        nn.Flatten(1),
        nn.Linear(24, 5),
    )


NETS = {"plain": plain, "pooled": pooled, "residual": residual}


def net(name, *, seed=0):
    """A network with random statistics, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = NETS[name]()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.3)
                layer.running_var.uniform_(0.3, 2)
                nn.init.normal_(layer.weight)
        return model.eval()


def images(count, *, seed=0, shape=(2, 8, 8)):
    """Random images, many of their pixels at an end of the box."""
    noise = torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))
    return (2 * noise - 0.5).clamp_(0, 1)
