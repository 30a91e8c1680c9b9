"""Moves of the square search in ℓ1 and ℓ2: empty one random window, and give what it held to another one.

Perturbations are over the radius, so that their size is at most 1; what the box has taken from them is given away as
well. In ℓ2 the filled window is the Square Attack's (Andriushchenko et al., 2020): a bright and a dark half that fade
from their middles. In ℓ1 it is filled from its middle outwards, every feature as far as the box allows.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from advfrontier.threat.norms import TINY, euclidean

Shape = tuple[int, int, int]  # channels, height, width

DRAWS = 5  # random numbers that a move takes, beside one per channel

_TILES = 5  # in a row and a column of the first perturbation


def tiles(shape: Shape, draws: Tensor) -> Tensor:
    """The first perturbation: a grid of windows, each with a sign of its own in every channel.

    `draws` are (samples, features) in (0, 1), and the signs come from one per tile.
    """
    height, width = shape[1:]
    rows, columns = max(height // _TILES, 1), max(width // _TILES, 1)
    image = (
        _pattern(rows, columns, across=True)
        .to(draws)
        .repeat(-(-height // rows), -(-width // columns))
    )
    signs = (draws.view(-1, *shape)[:, :, ::rows, ::columns] - 0.5).sign()
    signs = signs.repeat_interleave(rows, 2).repeat_interleave(columns, 3)
    return (image * signs)[:, :, :height, :width].flatten(1)


def move(shape: Shape, kept: Tensor, side: int, draw: Tensor) -> Tensor:
    """The ℓ2 move; the result has size 1.

    Args:
        shape: of an image.
        kept: (samples, features), of size 1 or less.
        side: of the windows, as far as the image is as large.
        draw: (samples, DRAWS + channels) in (0, 1).

    """
    rows, columns = min(side, shape[1]), min(side, shape[2])
    filled, emptied = _windows(shape, rows, columns, draw)
    rest = kept.scatter(1, emptied, 0)
    old = rest.gather(1, filled).view(-1, shape[0], rows * columns)
    mass = kept.gather(1, emptied).view_as(old).square().sum(2) + old.square().sum(2)
    mass += (1 - kept.square().sum(1, keepdim=True)).clamp_(min=0) / shape[0]
    patterns = torch.stack([_pattern(rows, columns, across=across) for across in (False, True)]).to(
        kept
    )
    fresh = (
        patterns[(draw[:, 4] > 0.5).long()].flatten(1)[:, None]
        * (draw[:, DRAWS:, None] - 0.5).sign()
    )
    fresh += old / old.norm(dim=2, keepdim=True).clamp_(min=TINY)
    fresh *= (mass.sqrt() / fresh.norm(dim=2).clamp_(min=TINY))[:, :, None]
    moved = rest.scatter(1, filled, fresh.flatten(1))
    return moved / euclidean(moved).clamp_(min=TINY)[:, None]


def pour(
    shape: Shape, kept: Tensor, side: int, draw: Tensor, *, inputs: Tensor, radius: Tensor
) -> Tensor:
    """The ℓ1 move; the result has size 1, or less where the window cannot hold it all.

    Args:
        shape: of an image.
        kept: (samples, features), of size 1 or less.
        side: of the windows, as far as the image is as large.
        draw: (samples, DRAWS + channels) in (0, 1).
        inputs: (samples, features), in the box.
        radius: (samples,), of the perturbations.

    """
    rows, columns = min(side, shape[1]), min(side, shape[2])
    filled, emptied = _windows(shape, rows, columns, draw)
    outwards = _rings(rows, columns).flatten().repeat(shape[0]).argsort(stable=True)
    filled = filled[:, outwards.to(filled.device)]
    rest = kept.scatter(1, emptied, 0).scatter_(1, filled, 0)
    signs = (draw[:, DRAWS:] - 0.5).sign()[:, outwards // (rows * columns)]
    x = inputs.gather(1, filled)
    room = torch.where(signs > 0, 1 - x, x) / radius.clamp(min=TINY)[:, None]
    left = 1 - rest.abs().sum(1, keepdim=True) - (room.cumsum(1) - room)
    return rest.scatter(1, filled, signs * torch.minimum(left.clamp_(min=0), room))


@cache
def corner(shape: Shape, rows: int, columns: int) -> Tensor:
    """Where the entries of a window in the top left corner are in a flattened image, channel by channel."""
    channels, height, width = shape
    return torch.arange(channels * height * width).view(shape)[:, :rows, :columns].flatten()


def _windows(shape: Shape, rows: int, columns: int, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Where the entries of two random windows are: the one to fill, the one to empty."""
    _channels, height, width = shape
    free = torch.tensor([height - rows + 1, width - columns + 1] * 2, device=draw.device)
    top, left, other_top, other_left = (draw[:, :4] * free).long().unbind(1)
    first = corner(shape, rows, columns).to(draw.device)
    return (top * width + left)[:, None] + first, (other_top * width + other_left)[:, None] + first


def _rings(rows: int, columns: int) -> Tensor:
    """How far every entry of a window is from its middle."""
    down, right = (
        (torch.arange(rows) - rows // 2).abs(),
        (torch.arange(columns) - columns // 2).abs(),
    )
    return torch.maximum(down[:, None], right[None, :])


@cache
def _pattern(rows: int, columns: int, *, across: bool) -> Tensor:
    """A window of size 1: a half and its negative, side by side (where there is room for that) or one above the other.

    Ring k around the middle of a half is Σ 1/j² from j = k + 1 on, and the sum ends with the outermost ring.
    """
    across = rows == 1 or (across and columns > 1)
    halves: list[Tensor] = []
    for share in (
        (columns // 2, columns - columns // 2) if across else (rows // 2, rows - rows // 2)
    ):
        rings = _rings(rows, share) if across else _rings(share, columns)
        rank = 1.0 + rings
        outermost = int(rank.max()) if rank.numel() else 1
        halves.append(torch.stack([(rank <= j) / j**2 for j in range(1, outermost + 1)]).sum(0))
    whole = torch.cat([halves[0], -halves[1]], 1 if across else 0)
    length: Tensor = whole.norm()
    return whole / length
