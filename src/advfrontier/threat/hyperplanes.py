"""The nearest point of a hyperplane inside the box [0, 1], in ℓ1, ℓ2 and ℓ∞, exactly and for all rows at once.

Feature k lowers ⟨slope, point⟩ by |slope_k| for each unit it moves downhill, and can move by its room, the distance to
the end of the box. The smallest move that lowers the product by `gap` uses the steepest features first (ℓ1), every
feature in proportion to its slope until it has no room (ℓ2), or every feature alike until it has no room (ℓ∞).
"""

from __future__ import annotations

import torch
from torch import Tensor

from advfrontier.threat.norms import TINY, Norm
from advfrontier.threat.thresholds import ranked, room_of, wide

_PASSES = 64  # rarely above ten; the bound only guards against rounding that never settles
_FEW, _MANY = 64, 8  # the features that are put in order first, and how many times as many where they do not suffice


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
    room = room_of(points, downhill)
    steepness = slope.abs()
    used = (
        _steepest_first(steepness, room, gap.abs())
        if norm.name == "L1"
        else _together(steepness, room, gap.abs(), steepness if norm.name == "L2" else torch.ones_like(steepness))
    )
    return downhill.sign_().mul_(used)


def _steepest_first(steepness: Tensor, room: Tensor, gap: Tensor, count: int = _FEW) -> Tensor:
    """Features in order of steepness, each as far as it can go, the last one as far as it takes.

    Few features reach most gaps, so only the first `count` are put in order; rows that need more are done again.
    """
    features = room.shape[-1]
    slopes, order = ranked(steepness, count)
    order = order.expand(*room.shape[:-1], -1)
    least = room.gather(-1, order)
    gains = wide(slopes * least)
    reached = gains.cumsum(-1)
    short = (reached[..., -1] < gap).flatten().nonzero().squeeze(1)
    left = wide(gap)[..., None] - reached.sub_(gains)
    used = left.div_(slopes.clamp(min=TINY)).to(room).clamp_(min=0).minimum(least)
    moves = torch.zeros_like(room).scatter_(-1, order, used)
    if len(short) and count < features:
        own = steepness.index_select(0, short % len(steepness))
        rest = room.flatten(0, -2).index_select(0, short), gap.flatten().index_select(0, short)
        moves.view(-1, features)[short] = _steepest_first(own, *rest, count=_MANY * count)
    return moves


def _together(steepness: Tensor, room: Tensor, gap: Tensor, speed: Tensor) -> Tensor:
    """min(λ·speed, room) with Σ steepness·min(λ·speed, room) = gap.

    The left side is concave in λ, so Newton's steps from below never overshoot, and it is piecewise linear, so they end
    at the root itself. A row that has converged is left out: its result does not depend on the rows beside it.
    """
    rate, gains = steepness * speed, steepness * room
    ends = room / speed.clamp(min=TINY)  # the λ at which a feature has no room left
    level = gap / rate.sum(-1).clamp(min=TINY)
    levels, here = level.view(-1), torch.arange(level.numel(), device=level.device)
    own = (rate, gains, ends, gap, level)
    for _ in range(_PASSES):
        ahead = _newton(*own)
        moving = (ahead > own[-1] * (1 + 4 * torch.finfo(room.dtype).eps)).flatten().nonzero().squeeze(1)
        if not len(moving):
            break
        ahead, here = ahead.flatten().index_select(0, moving), here.index_select(0, moving)
        levels[here] = ahead
        rate = rate.index_select(0, moving % len(rate))
        gains, ends = (each.flatten(0, -2).index_select(0, moving) for each in own[1:3])
        own = (rate, gains, ends, own[3].flatten().index_select(0, moving), ahead)
    return torch.minimum(level.clamp(max=torch.finfo(room.dtype).max)[..., None] * speed, room)


def _newton(rate: Tensor, gains: Tensor, ends: Tensor, gap: Tensor, level: Tensor) -> Tensor:
    """The λ at which the gap is closed if no other feature than those at this level runs out of room."""
    going = (ends - level[..., None]).sign_().clamp_(min=0)  # 1 or 0: a fraction of the time of comparing and selecting
    rest: Tensor = torch.linalg.vecdot(going, rate)
    spent: Tensor = torch.linalg.vecdot(going.neg_().add_(1), gains)
    return (gap - spent) / rest
