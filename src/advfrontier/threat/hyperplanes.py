"""Smallest moves onto a hyperplane inside a box, in ℓ1, ℓ2 and ℓ∞.

The lower ends of the box are 0, its upper ends `top`, or 1. Feature k lowers ⟨slope, point⟩ by
|slope_k| for each unit it moves downhill. It can move by its room, the distance to the end of the
box. The smallest move that lowers the product by `gap` uses the steepest features first (ℓ1), every
feature in proportion to its slope until it has no room (ℓ2), or every feature alike until it has no
room (ℓ∞).
"""

from __future__ import annotations

import torch
from torch import Tensor

from advfrontier.threat.thresholds import TINY, level_above

_NEWTON = 5  # passes; 3 suffice while most features have room left


def steepest_first(points: Tensor, slope: Tensor, gap: Tensor, top: Tensor | None = None) -> Tensor:
    """Return the move onto the hyperplane that is smallest in ℓ1.

    Features whose slopes are in a ratio of 1 + 2^-12 at most share the last part of the move.
    Where the box is too small, every feature moves to the end of the box.

    Args:
        points: (n, d), inside the box.
        slope: (n, d), of Euclidean length about 1.
        gap: (n,), by how much ⟨slope, points⟩ shall fall; negative to rise.
        top: (1, d), the upper ends of the box; None for 1.
    """
    downhill, room = _downhill(points, slope, gap, top)
    steepness, needed = slope.abs(), gap.abs()
    gains = steepness * room
    low, high = level_above(steepness, needed, gains)
    moved = (steepness - high).sign_().clamp_(min=0)
    partly = (steepness - low).sign_().clamp_(min=0).sub_(moved)
    rest = needed.sub_(torch.linalg.vecdot(moved, gains))
    share = (rest / torch.linalg.vecdot(partly, gains).clamp_(min=TINY)).clamp_(0, 1)
    return moved.addcmul_(partly, share[:, None]).mul_(room).mul_(downhill)


def in_proportion(points: Tensor, slope: Tensor, gap: Tensor, top: Tensor | None = None) -> Tensor:
    """Return the smallest move onto the hyperplane in ℓ2; arguments as in `steepest_first`.

    Args:
        points: (n, d), inside the box.
        slope: (n, d), of Euclidean length about 1.
        gap: (n,), by how much ⟨slope, points⟩ shall fall; negative to rise.
        top: (1, d), the upper ends of the box; None for 1.
    """
    downhill, room = _downhill(points, slope, gap, top)
    steepness = slope.abs()
    ends = room / steepness.clamp(min=TINY)
    rate = steepness * steepness
    level = _newton(rate, ends, steepness * room, gap.abs())
    return torch.minimum(steepness.mul_(level), room).mul_(downhill)


def all_alike(points: Tensor, slope: Tensor, gap: Tensor, top: Tensor | None = None) -> Tensor:
    """Return the smallest move onto the hyperplane in ℓ∞; arguments as in `steepest_first`.

    Args:
        points: (n, d), inside the box.
        slope: (n, d), of Euclidean length about 1.
        gap: (n,), by how much ⟨slope, points⟩ shall fall; negative to rise.
        top: (1, d), the upper ends of the box; None for 1.
    """
    downhill, room = _downhill(points, slope, gap, top)
    steepness = slope.abs()
    level = _newton(steepness, room, steepness * room, gap.abs())
    return torch.minimum(level, room).mul_(downhill)


def _downhill(
    points: Tensor, slope: Tensor, gap: Tensor, top: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the sign of each feature's useful move, and its room in that direction."""
    downhill = slope.sign().mul_(gap.sign().neg_()[:, None])
    end = downhill.clamp(min=0)
    if top is not None:
        end.mul_(top)
    return downhill, end.sub_(points).abs_()


def _newton(rate: Tensor, ends: Tensor, gains: Tensor, gap: Tensor) -> Tensor:
    """Return the λ with Σ rate·min(λ, ends) = gap: (n, 1); where there is none, a large number.

    The left side is concave in λ and piecewise linear. Newton's steps from below never overshoot
    and end at the root itself.
    """
    left = gap[:, None] - gains.sum(1, keepdim=True)
    level = torch.zeros_like(left)
    going, part = torch.empty_like(ends), torch.empty_like(ends)
    for _ in range(_NEWTON):
        torch.sub(ends, level, out=going).sign_().clamp_(min=0)
        slope = torch.mul(going, rate, out=part).sum(1, keepdim=True).clamp_(min=TINY)
        level = going.mul_(gains).sum(1, keepdim=True).add_(left).div_(slope)
    return level.clamp_(0, 1 / TINY)
