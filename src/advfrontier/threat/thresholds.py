"""Water levels: the scalar equations behind the ℓ1 projections and the ℓ∞ proximal step, solved for all rows at once.

Newton's method on a piecewise linear function reaches the exact segment in a handful of passes over the data, where
sorting costs several times a small network's forward pass. A row that has converged is frozen, so its result does not
depend on the rows it shares a batch with.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_LONG = 1024  # features from which a partition pays
_PASSES = 64  # rarely above ten; the bound only guards against rounding that never settles


def largest(values: Tensor, count: int) -> Tensor:
    """The largest entries of every row, in order, largest first.

    On the CPU NumPy sorts them, several times faster than torch; long rows are parted first, so that only what is
    asked for is sorted. Only where very few are asked for is torch's own way the fastest.
    """
    features = values.shape[1]
    count = min(max(count, 1), features)
    if values.device.type != "cpu" or 64 * count <= features:
        return values.topk(count, dim=1).values
    kept, rest = values.numpy(), features - count
    if 2 * count < features and features > _LONG:
        kept, rest = np.partition(kept, rest, axis=1)[:, rest:], 0
    return torch.from_numpy(np.sort(kept, axis=1)[:, rest:]).flip(1)


def ranked(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of every row of values ≥ 0, largest first, and their places; of equal ones the first comes first."""
    features = values.shape[1]
    count = min(count, features)
    if values.device.type != "cpu" or values.dtype != torch.float32:
        kept = values.sort(dim=1, descending=True, stable=True)
        return kept.values[:, :count], kept.indices[:, :count]
    # The bits of a float32 ≥ 0 are in the order of its value. With the place in the lower half, one vectorised sort of
    # 64-bit integers does for both, a third of the time of a stable sort.
    keys = values.numpy().view(np.int32).astype(np.int64) << 32
    keys |= np.arange(features - 1, -1, -1)
    if count < features:
        keys = np.partition(keys, features - count, axis=1)[:, features - count :]
    keys.sort(axis=1)
    keys = keys[:, ::-1]
    places = torch.from_numpy(features - 1 - (keys & 0xFFFFFFFF))
    return torch.from_numpy((keys >> 32).astype(np.int32).view(np.float32)), places


def room_of(points: Tensor, direction: Tensor) -> Tensor:
    """How far every entry can go in this direction before it leaves [0, 1]: 1 − point upwards, else the point itself.

    Arithmetic with signs takes a fraction of the time of comparing and selecting.
    """
    return direction.sign().clamp_(min=0).sub(points).abs_()


def water_level(heights: Tensor, total: Tensor) -> Tensor:
    """The level τ ≥ 0 of each row with Σ max(heights − τ, 0) = total, or 0 where the row holds no more than that.

    The left side is convex and falls with τ, so Newton's steps from below never overshoot; both starting values below
    are lower bounds, the first tight for a large total, the second for a small one.
    """
    level = torch.maximum((heights.sum(1) - total) / heights.shape[1], heights.amax(1) - total).clamp_(min=0)
    precision = 4 * torch.finfo(heights.dtype).eps
    for _ in range(_PASSES):
        above = (heights - level[:, None]).clamp_(min=0)
        excess = above.sum(1) - total
        rise = excess / above.sign_().sum(1).clamp_(min=1)
        moving = rise > precision * level
        if not moving.any():
            break
        level = torch.where(moving, level + rise, level)
    return level


def wide(v: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return v if v.device.type == "mps" else v.double()


def boxed_water_level(v: Tensor, inputs: Tensor, total: Tensor) -> Tensor:
    """The level τ ≥ 0 with Σ min(max(|v| − τ, 0), room) = total, or 0 where the row holds no more.

    `room` is how far each entry may go from its input before it leaves [0, 1]. The caps make the left side neither
    convex nor concave: Newton's steps stay inside a shrinking bracket, and one that leaves it becomes the middle.
    """
    heights = v.abs()
    # Entries of zero hold nothing at any level. In sparse rows it pays to look at the others only.
    most = int(heights.sign().sum(1).amax())
    if 2 * most < heights.shape[1]:
        heights, places = heights.topk(max(most, 1), dim=1)
        v, inputs = v.gather(1, places), inputs.gather(1, places)
    # In float64, so that the order of summation, which depends on the rows beside this one, does not show.
    room = wide(room_of(inputs, v))
    dtype, heights, total = total.dtype, wide(heights), wide(total)
    level = low = torch.zeros_like(total)
    high = heights.amax(1)
    precision = 4 * torch.finfo(heights.dtype).eps
    for _ in range(_PASSES):
        above = (heights - level[:, None]).clamp_(min=0)
        spilled = (above - room).clamp_(min=0)
        excess = above.sum(1) - spilled.sum(1) - total
        low, high = torch.where(excess > 0, level, low), torch.where(excess < 0, level, high)
        # The slope is minus the number of entries between 0 and their cap.
        sloping = above.sign_().sum(1) - spilled.sign_().sum(1)
        ahead = level + excess / sloping
        ahead = torch.where((ahead > low) & (ahead < high), ahead, (low + high) / 2)
        # A row that holds less than the total at level 0 has low = high = 0 and stays there.
        moving = (ahead - level).abs() > precision * high
        if not moving.any():
            break
        level = torch.where(moving, ahead, level)
    return level.to(dtype)
