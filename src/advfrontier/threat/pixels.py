"""Pixel-wise ℓ0: the number of changed pixels, whatever the number of their channels."""

from __future__ import annotations

import torch
from torch import Tensor

from advfrontier.threat.norms import L0, prox_two_thirds
from advfrontier.threat.random import Draws
from advfrontier.threat.thresholds import TINY, keep_largest, wide


class L0Pixel(L0):
    """Number of changed pixels: a pixel counts once if any of its channels changes.

    Samples of shape (channels, height, width) have height·width pixels. In samples of other shapes
    every feature is a pixel of one channel.

    Args:
        shape: Shape of one sample before flattening, such as (3, 32, 32).
    """

    name = "L0pixel"

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.channels = self.shape[0] if len(self.shape) == 3 else 1
        self.units = self.features // self.channels

    def squares(self, v: Tensor) -> Tensor:
        """Return the squared Euclidean length of every pixel's change: (n, pixels)."""
        return self._pixels(v).square().sum(1)

    def magnitudes(self, v: Tensor) -> Tensor:
        """Return the Euclidean length of every pixel's change: (n, pixels)."""
        lengths: Tensor = torch.linalg.vector_norm(self._pixels(v), 2, dim=1)
        return lengths

    def spread(self, values: Tensor) -> Tensor:
        """Repeat the value of each pixel for all of its channels: (n, d)."""
        return values.repeat(1, self.channels)

    def totals(self, values: Tensor) -> Tensor:
        """Return the sum over each pixel's channels: (n, pixels)."""
        return self._pixels(values).sum(1)

    def features_of(self, units: Tensor) -> Tensor:
        """Return the places of the channels of pixels: (n, channels · k)."""
        channels = torch.arange(self.channels, device=units.device) * self.units
        return (units[:, None, :] + channels[:, None]).flatten(1)

    def size(self, v: Tensor) -> Tensor:
        """Return the number of pixels with a non-zero entry."""
        return self._pixels(v).abs().amax(1).sign_().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return the most that one pixel can gain: max over pixels of Σ|g| over its channels."""
        return self.totals(g.abs()).amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Keep the ⌊radius⌋ pixels that changed most in ℓ2; of equal ones, the first."""
        kept = keep_largest(self.magnitudes(v), radius.floor().clamp_(min=0))
        return self.spread(kept).mul_(v)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Return the proximal step of the surrogate Σ‖pixel‖₂^{2/3}, which only shortens pixels."""
        lengths = self.magnitudes(v)
        shortened = prox_two_thirds(lengths, weight).div_(lengths.clamp_(min=TINY))
        return self.spread(shortened).mul_(v)

    def boundary(self, margin: Tensor, gradient: Tensor, inputs: Tensor) -> Tensor:
        """Return the fewest pixels whose gains reach the margin, each at its corner of the box."""
        gains = self.totals(self.room_of(inputs, -gradient).mul_(gradient.abs()))
        ranked = gains.sort(dim=1, descending=True).values
        short = (ranked.cumsum(1) < margin.abs()[:, None]).to(gains.dtype).sum(1)
        return torch.minimum(short + 1, self.largest(inputs).clamp(min=1))

    def subgradient(self, v: Tensor) -> Tensor:
        """Return a subgradient of the sum of the Euclidean lengths of the pixels."""
        return v / self.spread(self.magnitudes(v).clamp_(min=TINY))

    def steepest(self, g: Tensor) -> Tensor:
        """Return the signs of the pixel that gains most, and 0 elsewhere."""
        best = self.totals(g.abs()).argmax(1, keepdim=True)
        chosen = torch.zeros_like(g[:, : self.units]).scatter_(1, best, 1)
        return self.spread(chosen).mul_(g.sign())

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Choose ⌈radius⌉ pixels, and move each of their channels by a number from (−1, 1)."""
        drawn = self._changeable(draws.uniform("pixels", self.units))
        chosen = keep_largest(drawn, radius.float().ceil())
        values = wide(draws.uniform("values", self.features)).mul_(2).sub_(1)
        return values.mul_(self.spread(chosen))

    def _pixels(self, v: Tensor) -> Tensor:
        """View rows as (n, channels, pixels)."""
        return v.view(len(v), self.channels, self.units)
