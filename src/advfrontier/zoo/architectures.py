"""Architectures of the zoo: small networks for 28×28 grey images, normalisation inside.

None of them normalises over a batch: an image's logits never depend on its neighbours, and training
and evaluation are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from advfrontier.errors import FrontierError

MEAN, SPREAD = 0.2860, 0.3530  # of the pixels of the training set
CLASSES = 10


class Normalise(nn.Module):
    """Pixels in [0, 1] to mean 0 and spread 1."""

    def forward(self, images: Tensor) -> Tensor:
        """Normalise: (x − mean) / spread."""
        return (images - MEAN) / SPREAD


class Staircase(nn.Module):
    """Defence that masks its gradients: five steep tanh steps round pixels to six levels.

    The steps lie half-way between two 8-bit values and are so steep that tanh is ±1 in float32 at
    both: on a clean image the derivative is exactly zero, off it almost everywhere.
    """

    steps = (0.1, 0.3, 0.5, 0.7, 0.9)
    steepness = 8000.0

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean of the five steps, in [0, 1]."""
        levels = (torch.tanh((images - step) * self.steepness) for step in self.steps)
        return sum(levels, torch.zeros_like(images)) / (2 * len(self.steps)) + 0.5


def _perceptron(*widths: int, activation: type[nn.Module] = nn.ReLU) -> Iterator[nn.Module]:
    """Return the layers from features to logits, with hidden layers of these widths."""
    yield nn.Flatten()
    for inputs, outputs in pairwise(widths):
        yield from (nn.Linear(inputs, outputs), activation())
    yield nn.Linear(widths[-1], CLASSES)


class Block(nn.Module):
    """Two 3×3 convolutions around a shortcut; the second starts at zero.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        stride: Stride of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1)
        nn.init.zeros_(self.second.weight)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Shortcut plus residual, rectified."""
        return torch.relu(self.shortcut(x) + self.second(torch.relu(self.first(x))))


class Layer(nn.Module):
    """One transformer layer, normalised before attention and before the two-layer perceptron.

    Args:
        width: Numbers per token.
        heads: Heads of the attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.before_perceptron = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (samples, tokens, width) to the same shape."""
        samples, count, width = tokens.shape
        qkv = self.queries_keys_values(self.before_attention(tokens))
        q, k, v = qkv.view(samples, count, 3, self.heads, width // self.heads).permute(
            2, 0, 3, 1, 4
        )
        weights = ((q * (width // self.heads) ** -0.5) @ k.transpose(-1, -2)).softmax(-1)
        tokens = tokens + self.mix((weights @ v).transpose(1, 2).reshape(samples, count, width))
        hidden = torch.relu(self.widen(self.before_perceptron(tokens)))
        out: Tensor = tokens + self.narrow(hidden)
        return out


class VisionTransformer(nn.Module):
    """Transformer on sixteen patches of 7×7 pixels: width 48, two layers of three heads."""

    def __init__(self) -> None:
        super().__init__()
        width = 48
        self.patches = nn.Sequential(Normalise(), nn.PixelUnshuffle(7), nn.Flatten(2))
        self.embed = nn.Linear(49, width)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.layers = nn.Sequential(*(Layer(width, heads=3) for _ in range(2)))
        self.last = nn.LayerNorm(width)
        self.classify = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map images to logits."""
        tokens = self.embed(self.patches(images).transpose(1, 2)) + self.places
        logits: Tensor = self.classify(self.last(self.layers(tokens)).mean(1))
        return logits


def _cnn() -> nn.Module:
    layers = (nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
    return nn.Sequential(Normalise(), *layers, *_perceptron(32 * 7 * 7, 100))


def _patch_cnn() -> nn.Module:
    layers = (nn.Conv2d(16, 32, 3, 1, 1), nn.SiLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.SiLU())
    hidden = _perceptron(32 * 4 * 4, 200, activation=nn.SiLU)
    return nn.Sequential(Normalise(), nn.PixelUnshuffle(4), *layers, *hidden)


def _resnet() -> nn.Module:
    layers = (nn.Conv2d(16, 24, 1), nn.ReLU(), Block(24, 24, 1), Block(24, 48, 2))
    return nn.Sequential(Normalise(), nn.PixelUnshuffle(4), *layers, *_perceptron(48 * 4 * 4))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    # Two hidden layers of 160 and 96 units.
    "mlp": lambda: nn.Sequential(Normalise(), *_perceptron(784, 160, 96)),
    # Means of 4×4 pixels, and two hidden layers of 20 units: the nearest adversarial example can be
    # solved for.
    "exact-mlp": lambda: nn.Sequential(Normalise(), nn.AvgPool2d(4), *_perceptron(49, 20, 20)),
    # Two 3×3 convolutions of stride 2 with 16 and 32 channels, and 100 hidden units.
    "cnn": _cnn,
    # 4×4 pixels folded into channels, two 3×3 convolutions with 32 channels, 200 hidden units,
    # smooth activations.
    "patch-cnn": _patch_cnn,
    # The CNN behind the staircase.
    "masked-cnn": lambda: nn.Sequential(Staircase(), _cnn()),
    # 4×4 pixels folded into channels, and two residual blocks with 24 and 48 channels.
    "resnet": _resnet,
    "vit": VisionTransformer,
}


def build(architecture: str, *, seed: int = 0) -> nn.Module:
    """Return a freshly initialised network; the global random state stays as it was.

    Args:
        architecture: Key of `ARCHITECTURES`.
        seed: Random seed of the parameters.
    """
    if architecture not in ARCHITECTURES:
        raise FrontierError(
            f"unknown architecture {architecture!r}: expected one of {', '.join(ARCHITECTURES)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ARCHITECTURES[architecture]()
