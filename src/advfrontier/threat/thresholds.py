"""Levels that cut every row of a tensor: how far to shrink it, and which entries are its largest.

Every search takes a fixed number of passes over the data. A GPU never waits for Python, and the
result of a row does not depend on the rows beside it. On the CPU the passes are several times
faster than sorting: sign, clamp and lerp cost a fraction of comparing and selecting.
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12  # below this a gradient has no direction

_NEWTON = 9  # passes: they suffice for float32, up to 150,528 features and tails of any weight
_BRACKETED = 9  # passes; 8 suffice where the ball holds a third of the row or more
_DIGIT = 8  # bits of a number that one pass of `nth_largest` settles
_HALVINGS = 16  # after which two values that are not told apart differ by 2e-5 of the largest


def wide(v: Tensor) -> Tensor:
    """Return the tensor in float64, where the device has it."""
    return v if v.device.type == "mps" else v.double()


def room_of(points: Tensor, direction: Tensor) -> Tensor:
    """Return how far each entry can go in a direction before it leaves [0, 1]; 1 at most."""
    return direction.sign().clamp_(min=0).sub_(points).abs_()


def water_level(heights: Tensor, total: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the level τ ≥ 0 with Σ weight·max(height − τ, 0) = total; 0 where all hold less.

    The left side is convex and falls with τ, so Newton's steps from below never overshoot. The
    first two levels are lower bounds: one is tight for a large total, the other for a small one.

    Args:
        heights: (n, d), at least 0.
        total: (n,), at least 0.
        weights: (n, d), at least 0; None for 1.
    """
    total = total[:, None]
    above = torch.empty_like(heights)
    if weights is None:
        level = (heights.sum(1, keepdim=True) - total).div_(heights.shape[1])
        level = torch.maximum(level, heights.amax(1, keepdim=True) - total)
    else:
        mass = torch.mul(heights, weights, out=above).sum(1, keepdim=True)
        level = mass.sub_(total).div_(weights.sum(1, keepdim=True).clamp_(min=TINY))
    for _ in range(_NEWTON):
        torch.sub(heights, level, out=above).clamp_(min=0)
        if weights is None:
            excess = above.sum(1, keepdim=True).sub_(total)
            slope = above.sign_().sum(1, keepdim=True).clamp_(min=1)
        else:
            excess = torch.linalg.vecdot(above, weights)[:, None].sub_(total)
            slope = above.sign_().mul_(weights).sum(1, keepdim=True).clamp_(min=TINY)
        level = level.addcdiv_(excess, slope)
    return level.squeeze(1).clamp_(min=0)


def boxed_water_level(heights: Tensor, room: Tensor, total: Tensor) -> Tensor:
    """Return the level τ ≥ 0 with Σ min(max(height − τ, 0), room) = total; 0 where all hold less.

    The caps make the left side neither convex nor concave. Newton's steps therefore stay inside a
    shrinking bracket, and a step that leaves it is replaced by the bracket's middle.

    Args:
        heights: (n, d), at least 0.
        room: (n, d), the most that an entry can hold.
        total: (n,), at least 0.
    """
    total = total[:, None]
    level = low = torch.zeros_like(total)
    high = heights.amax(1, keepdim=True)
    held, left = torch.empty_like(heights), torch.empty_like(heights)
    for _ in range(_BRACKETED):
        torch.sub(heights, level, out=held).clamp_(min=0)
        torch.minimum(held, room, out=held)
        excess = held.sum(1, keepdim=True).sub_(total)
        over = excess > 0
        low, high = torch.where(over, level, low), torch.where(over, high, level)
        # The slope is minus the number of entries between 0 and their cap.
        torch.sub(room, held, out=left).sign_()
        slope = held.sign_().mul_(left).sum(1, keepdim=True).clamp_(min=1)
        ahead = torch.addcdiv(level, excess, slope)
        inside = (ahead - low).mul_(high - ahead) >= 0
        level = torch.where(inside, ahead, (low + high).div_(2))
    return level.squeeze(1)


def weight_level(values: Tensor, weights: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return a level for which the entries above it weigh less than `total`, and those at it more.

    An entry counts as at the level if it is less than 2e-5 of the row's largest entry above it. If
    all entries together weigh less than `total`, the level is 0.

    Args:
        values: (n, d), at least 0.
        weights: (n, d), at least 0.
        total: (n,).

    Returns:
        Two tensors (n, 1): the level, and the end of the interval of what counts as at it.
    """
    total = total[:, None]
    level = torch.zeros_like(total)
    top = values.amax(1, keepdim=True)
    part = torch.empty_like(values)
    for k in range(1, _HALVINGS + 1):
        trial = torch.add(level, top, alpha=0.5**k)
        torch.sub(values, trial, out=part).sign_().clamp_(min=0)
        held = part.mul_(weights).sum(1, keepdim=True)
        level = torch.where(held >= total, trial, level)
    return level, torch.add(level, top, alpha=0.5**_HALVINGS)


def nth_largest(values: Tensor, rank: Tensor) -> Tensor:
    """Return the `rank`-th largest entry of each row; 0 if there are not so many.

    The bits of floating numbers ≥ 0 are in the order of their values, and each pass settles some
    bits of the result by counting the entries that share the bits before them. It is exact.

    Args:
        values: (n, d), at least 0.
        rank: (n,), whole numbers, at least 1.
    """
    single = values.dtype == torch.float32
    keys = values.contiguous().view(torch.int32 if single else torch.int64)
    one = keys.new_ones(1, dtype=torch.int32).expand(keys.shape)
    rank, prefix = rank[:, None], keys.new_zeros(len(keys), 1)
    left = 31 if single else 63
    while left:
        bits = min(_DIGIT, left)
        left -= bits
        prefix <<= bits
        # Bin 0 takes the entries below this prefix, the last bin those above it.
        digits = (keys >> left).sub_(prefix).clamp_(-1, 1 << bits).add_(1).long()
        bins = one.new_zeros(len(keys), (1 << bits) + 2).scatter_add_(1, digits, one)
        short = (bins.flip(1).cumsum(1) < rank).sum(1, keepdim=True)
        prefix += ((1 << bits) - short).clamp_(min=0)
    return prefix.view(values.dtype).squeeze(1)


def keep_largest(values: Tensor, count: Tensor) -> Tensor:
    """Return 1 for the `count` largest entries of each row and 0 elsewhere; of equal ones, the first.

    Args:
        values: (n, d), at least 0.
        count: (n,), whole numbers.
    """
    last = nth_largest(values, count.clamp(min=1))
    sides = (values - last[:, None]).sign_()  # 1 above the last value that is kept, 0 at it
    above = sides.clamp(min=0)
    tied = sides.abs_().neg_().add_(1)
    places = (count - above.sum(1))[:, None]  # for those equal to it
    rank = tied.cumsum(1)
    return (places - rank).add_(1).clamp_(0, 1).mul_(tied).add_(above)
