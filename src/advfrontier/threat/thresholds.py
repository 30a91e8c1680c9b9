"""Water levels: the scalar equations behind the ℓ1 projections and the ℓ∞ proximal step, solved for all rows at once.

Newton's method on a piecewise linear function reaches the exact segment in a handful of passes over the data, where
sorting costs several times a small network's forward pass. A row that has converged is frozen, so its result does not
depend on the rows it shares a batch with.
"""

from __future__ import annotations

import torch
from torch import Tensor

_PASSES = 64  # rarely above ten; the bound only guards against rounding that never settles


def water_level(heights: Tensor, total: Tensor) -> Tensor:
    """The level τ ≥ 0 of each row with Σ max(heights − τ, 0) = total, or 0 where the row holds no more than that.

    The left side is convex and falls with τ, so Newton's steps from below never overshoot; both starting values below
    are lower bounds, the first tight for a large total, the second for a small one.
    """
    level = torch.maximum((heights.sum(1) - total) / heights.shape[1], heights.amax(1) - total).clamp_(min=0)
    tolerance = 16 * torch.finfo(heights.dtype).eps * total
    for _ in range(_PASSES):
        above = (heights - level[:, None]).clamp_(min=0)
        excess = above.sum(1) - total
        moving = excess > tolerance
        if not moving.any():
            break
        count = above.sign_().sum(1).clamp_(min=1)
        level = torch.where(moving, level + excess / count, level)
    return level


def boxed_water_level(heights: Tensor, room: Tensor, total: Tensor) -> Tensor:
    """The level τ ≥ 0 of each row with Σ min(max(heights − τ, 0), room) = total, or 0 where the row holds no more.

    The caps make the left side neither convex nor concave: Newton's steps are kept inside a shrinking bracket, and a
    step that leaves it is replaced by the middle.
    """
    level = torch.zeros_like(total)
    low, high = torch.zeros_like(total), heights.amax(1)
    tolerance = 16 * torch.finfo(heights.dtype).eps * total
    for _ in range(_PASSES):
        above = heights - level[:, None]
        held = torch.minimum(above.clamp(min=0), room)
        excess = held.sum(1) - total
        # Only the bracket can tell a row that holds less than the total at level 0 from one that needs a lower level.
        moving = (excess.abs() > tolerance) & ((excess > 0) | (level > 0)) & (high > low)
        if not moving.any():
            break
        low, high = torch.where(excess > 0, level, low), torch.where(excess < 0, level, high)
        # The slope is minus the number of entries strictly between 0 and their cap: there, and only there, held = above.
        count = ((held == above) & (held < room) & (held > 0)).sum(1)
        newton = level + excess / count
        inside = (newton > low) & (newton < high)
        level = torch.where(moving, torch.where(inside, newton, (low + high) / 2), level)
    return level
