"""The nearest point of a hyperplane inside the box [0, 1], in ℓ1, ℓ2 and ℓ∞, exactly and for all rows at once.

Feature k lowers ⟨slope, point⟩ by |slope_k| for each unit it moves downhill, and can move by its room, the distance to
the end of the box. The smallest move that lowers the product by `gap` uses the steepest features first (ℓ1), every
feature in proportion to its slope until it has no room (ℓ2), or every feature alike until it has no room (ℓ∞).
"""

from __future__ import annotations

import torch
from torch import Tensor

from advfrontier.threat.norms import TINY, Norm
from advfrontier.threat.thresholds import ranked

_PASSES = 64  # rarely above ten; the bound only guards against rounding that never settles


def move_onto_hyperplane(norm: Norm, points: Tensor, slope: Tensor, gap: Tensor) -> Tensor:
    """The smallest move that lowers ⟨slope, points⟩ by `gap` (raises it where that is negative) and stays in the box.

    Where the box is too small for it, the move to the corner that comes nearest.

    Args:
        norm: L1, L2 or Linf.
        points: (…, samples, features), inside the box; several points per sample can share a slope.
        slope: (samples, features), of Euclidean length about 1.
        gap: (…, samples).

    """
    downhill = -slope * gap.sign()[..., None]
    room = torch.where(downhill > 0, 1 - points, points)
    steepness = slope.abs()
    used = (
        _steepest_first(steepness, room, gap.abs())
        if norm.name == "L1"
        else _together(steepness, room, gap.abs(), steepness if norm.name == "L2" else torch.ones_like(steepness))
    )
    return downhill.sign_().mul_(used)


def _steepest_first(steepness: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """Features in order of steepness, each as far as it can go, the last one as far as it takes."""
    slopes, order = ranked(steepness)
    order = order.expand_as(room)
    room = room.gather(-1, order)
    gains = (slopes * room).double()
    left = gap.double()[..., None] - gains.cumsum(-1).sub_(gains)
    used = left.div_(slopes.clamp(min=TINY)).to(room).clamp_(min=0).minimum(room)
    return torch.empty_like(used).scatter_(-1, order, used)


def _together(steepness: Tensor, room: Tensor, gap: Tensor, speed: Tensor) -> Tensor:
    """min(λ·speed, room) with Σ steepness·min(λ·speed, room) = gap.

    The left side is concave in λ, so Newton's steps from below never overshoot, and it is piecewise linear, so they end
    at the root itself. A row that has converged is frozen: its result does not depend on the rows beside it.
    """
    rate, gains = steepness * speed, steepness * room
    ends = room / speed.clamp(min=TINY)  # the λ at which a feature has no room left
    level = gap / rate.sum(-1).clamp(min=TINY)
    for _ in range(_PASSES):
        stopped = (ends <= level[..., None]).to(room)
        spent = torch.linalg.vecdot(stopped, gains)
        ahead = (gap - spent) / torch.linalg.vecdot(1 - stopped, rate)
        moving = ahead > level * (1 + 4 * torch.finfo(room.dtype).eps)
        if not moving.any():
            break
        level = torch.where(moving, ahead, level)
    return torch.minimum(level.clamp(max=torch.finfo(room.dtype).max)[..., None] * speed, room)
