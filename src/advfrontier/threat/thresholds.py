"""Levels that cut every row of a tensor: how far to shrink it, and which entries are its largest.

Every search takes a fixed number of passes over the data, so a GPU never waits for Python and the
result of a row does not depend on the rows beside it. Sign, clamp and multiplication stand for
comparing and selecting, which take several times as long on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12  # below this a gradient has no direction

_NEWTON = 10  # passes: they suffice for float32, up to 150,528 features and tails of any weight
_HALVINGS = 16  # passes; the first four find the power of 2
_BRACKETED = 8  # passes; 6 suffice for APGD, whose ball holds a third of a row or more


def wide(v: Tensor) -> Tensor:
    """Return the tensor in float64, where the device has it.

    Args:
        v: Tensor of any shape.
    """
    return v if v.device.type == "mps" else v.double()


def room_of(points: Tensor, direction: Tensor, top: Tensor | None = None) -> Tensor:
    """Return how far each entry can go in a direction before it leaves the box.

    Args:
        points: (n, d), inside the box.
        direction: (n, d), of which the signs count.
        top: (1, d), the upper ends of the box, whose lower ends are 0; None for 1.
    """
    end = direction.sign().clamp_(min=0)
    if top is not None:
        end.mul_(top)
    return end.sub_(points).abs_()


def water_level(heights: Tensor, total: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the level τ ≥ 0 with Σ weight·max(height − τ, 0) = total; 0 where all hold less.

    The left side is convex and falls with τ, so Newton's steps from below never overshoot. The
    first two levels are lower bounds: one is tight for a large total, the other for a small one.

    Args:
        heights: (n, d), at least 0.
        total: (n,), at least 0.
        weights: (n, d), at least 0; None for 1.
    """
    above = torch.empty_like(heights)
    if weights is None:
        mass = heights.sum(1, keepdim=True)
        total = torch.minimum(total[:, None], mass)
        level = mass.sub_(total).div_(heights.shape[1])
        level = torch.maximum(level, heights.amax(1, keepdim=True) - total)
    else:
        mass = torch.linalg.vecdot(heights, weights)[:, None]
        total = torch.minimum(total[:, None], mass)
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
        slope = held.sign_().mul_(left).sum(1, keepdim=True)
        ahead = torch.addcdiv(level, excess, slope)  # infinite where the slope is 0
        inside = (ahead - low).mul_(high - ahead) >= 0
        level = torch.where(inside, ahead, (low + high).div_(2))
    return level.squeeze(1)


def level_above(
    values: Tensor, total: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return a narrow interval of values so that the entries above it hold less than `total`.

    Those above its lower end hold `total` or more; the lower end is 0 if there is no such value
    above 2^-16 of the row's largest entry. The search halves an interval of bit patterns, because
    the bits of floating numbers ≥ 0 are in the order of their values. That takes a fraction of the
    time of sorting, and the same time for all values.

    Args:
        values: (n, d), at least 0.
        total: (n,), sum of what lies above the level.
        weights: (n, d), how much an entry holds, at least 0; None for 1.

    Returns:
        The ends of the interval, (n, 1) each, whose ratio is 1 + 2^-12 at most.
    """
    bits, mantissa = (torch.int32, 23) if values.dtype == torch.float32 else (torch.int64, 52)
    span = 1 << (mantissa + 4)  # 16 powers of 2
    total = total[:, None]
    bottom = values.amax(1, keepdim=True).view(bits).clamp(min=span).sub_(span)
    level, part = bottom, torch.empty_like(values)
    for _ in range(_HALVINGS):
        span >>= 1
        trial = level + span
        torch.sub(values, trial.view(values.dtype), out=part).sign_().clamp_(min=0)
        if weights is not None:
            part.mul_(weights)
        level = torch.where(part.sum(1, keepdim=True) >= total, trial, level)
    high = (level + span).view(values.dtype)
    return level.mul_(level > bottom).view(values.dtype), high


def keep_largest(values: Tensor, count: Tensor) -> Tensor:
    """Return 1 for the `count` largest entries of each row, and 0 elsewhere.

    Of entries that are equal, or whose ratio is 1 + 2^-12 at most, the first are kept; so they are
    of entries below 2^-16 of the row's largest. Entries of 0 are never kept.

    Args:
        values: (n, d), at least 0.
        count: (n,), number of entries to keep, whole numbers.
    """
    low, high = level_above(values, count)
    above = (values - high).sign_().clamp_(min=0)
    tied = (values - low).sign_().clamp_(min=0).sub_(above)
    places = count[:, None] - above.sum(1, keepdim=True)
    rank = tied.cumsum(1)
    first = rank.sub_(places).neg_().add_(1).clamp_(0, 1)
    return first.mul_(tied).add_(above)
