"""A norm of one's own, in one file: the number of changed pixels, over all channels."""

from torch import Tensor

from advfrontier.threat.norms import Norm
from advfrontier.threat.thresholds import keep_largest


class Pixels(Norm):
    """The number of pixels of which any channel changed."""

    name = "Pixels"
    counts = True

    def _lengths(self, v: Tensor) -> Tensor:
        """Return the Euclidean length of every pixel's change: (n, pixels)."""
        return v.view(len(v), self.shape[0], -1).norm(dim=1)

    def _scale(self, v: Tensor, factors: Tensor) -> Tensor:
        """Multiply all channels of every pixel by its factor."""
        return (v.view(len(v), self.shape[0], -1) * factors[:, None]).flatten(1)

    def size(self, v: Tensor) -> Tensor:
        """Return the number of changed pixels."""
        return self._lengths(v).sign().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return the most that one pixel can gain inside the box."""
        return g.abs().view(len(g), self.shape[0], -1).sum(1).amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Keep the pixels that changed most."""
        return self._scale(v, keep_largest(self._lengths(v), radius.floor()))

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Keep a pixel where that costs less than it saves."""
        kept = (self._lengths(v) - (2 * weight[:, None]).sqrt()).sign().clamp(min=0)
        return self._scale(v, kept)
