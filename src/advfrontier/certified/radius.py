"""The largest radius around each sample that is certified to hold no misclassified point."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from advfrontier.certified.bounds import Ball, Bounds
from advfrontier.certified.network import Network, read_network
from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name
from advfrontier.threat.norms import get_norm

SUPPORTED = ("L1", "L2", "Linf")
_AT_ONCE = 20  # samples
_NOTHING = 1e-6  # of the radius that was tried first: below it the search ends, and nothing is certified


def certified_radius(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    norm: str,
    *,
    start: Tensor | None = None,
    precision: float = 0.01,
    done: Callable[[int], None] | None = None,
) -> Tensor:
    """Radii (n,) in float64: no image of [0, 1] within its radius is misclassified, ties counted as such.

    Certified is the network in exact arithmetic. The radius is 0 where the sample is misclassified anyway or nothing
    could be certified, and ∞ where the whole box is.

    Args:
        model: A feed-forward network of convolutions, linear layers, ReLU, average pooling, sums of branches and fixed
            normalisation; anything else is refused.
        images: In [0, 1].
        labels: The true classes.
        norm: `L1`, `L2` or `Linf`.
        start: Per sample the radius that is tried first, such as the half of what an attack found: saves time.
        precision: By what share a radius may be below the largest that these bounds certify.
        done: Told how many samples were finished.
    """
    norm = norm_name(norm)
    if norm not in SUPPORTED:
        raise FrontierError(f"no certificate in {norm}: expected one of {', '.join(SUPPORTED)}, whose balls are convex")
    if not isinstance(model, nn.Module):
        raise FrontierError(f"a {type(model).__name__} cannot be certified: expected an nn.Module of known layers")
    with torch.no_grad():
        network = read_network(model, images[0])
        radii = torch.zeros(len(images), dtype=torch.float64)
        flat, labels = images.flatten(1).to("cpu", torch.float64), labels.cpu()
        for rows in torch.split(torch.arange(len(images)), _AT_ONCE):
            first = None if start is None else start[rows].to("cpu", torch.float64)
            radii[rows] = _search(network, Ball(norm, flat[rows], radii[rows]), labels[rows], first, precision)
            if done is not None:
                done(len(rows))
    return radii


def _search(network: Network, ball: Ball, labels: Tensor, start: Tensor | None, precision: float) -> Tensor:
    """Bisect between the largest radius that was certified and the smallest that was not, each sample by itself.

    Larger radii may be certified where smaller ones are not, because the lines through a ReLU are chosen by a rule of
    thumb. That costs tightness at most: whatever radius is certified covers all smaller ones. The ball is of radius 0.
    """
    norm, images, low = ball.norm, ball.images, ball.radii.clone()
    box = get_norm(norm).largest(images)  # the ball of this radius holds the whole box
    high = torch.full_like(box, torch.inf)
    first = box / 64 if start is None else torch.minimum(start, box)
    high[Bounds(network, ball).least_margins(labels) <= 0] = 0
    while True:
        width = torch.where(high.isinf(), torch.inf, high - low - precision * high)
        rows = ((width > 0) & (high > _NOTHING * first) & (low < box)).nonzero().squeeze(1)
        if not len(rows):
            return torch.where(low >= box, torch.inf, low)
        inward = torch.where(low > 0, (low + high) / 2, high / 2)
        outward = torch.where(low > 0, 2 * low, first)
        trial = torch.where(high.isinf(), torch.minimum(outward, box), inward)[rows]
        certified = Bounds(network, Ball(norm, images[rows], trial)).least_margins(labels[rows]) > 0
        low[rows] = torch.where(certified, trial, low[rows])
        high[rows] = torch.where(certified, high[rows], trial)
