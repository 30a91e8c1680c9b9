"""A norm of one's own, in one file: the sum of the Euclidean lengths of the pixels' changes."""

import torch
from torch import Tensor

from advfrontier.threat.norms import Norm, soft_threshold
from advfrontier.threat.thresholds import TINY, water_level


class Colours(Norm):
    """The sum over pixels of how far each one's colour moves."""

    name = "Colours"

    def size(self, v: Tensor) -> Tensor:
        """Return the sum of the lengths."""
        return self._lengths(v).sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return the largest length."""
        return self._lengths(g).amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Shorten all pixels by the amount that leaves exactly `radius`."""
        return self.prox(v, water_level(self._lengths(v), radius))

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Shorten every pixel by the weight."""
        lengths = self._lengths(v)
        share = soft_threshold(lengths, weight) / lengths.clamp(min=TINY)
        return (v.view(len(v), self.shape[0], -1) * share[:, None]).flatten(1)

    def _lengths(self, v: Tensor) -> Tensor:
        """Return the Euclidean length of every pixel's change: (n, pixels)."""
        return torch.linalg.vector_norm(v.view(len(v), self.shape[0], -1), dim=1)
