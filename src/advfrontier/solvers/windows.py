"""Moves of the square search: what a step changes inside random windows of the image.

Perturbations are over the radius, so that their size is at most 1. In ℓ∞ a window gets a new sign
per channel. In ℓ1 and ℓ2 one window is emptied, and another one takes what it held and what the box
has taken. In ℓ2 the window is filled as in the Square Attack (Andriushchenko et al., 2020): with
a bright and a dark half that fade from their middles. In ℓ1 it is filled from its middle outwards,
every feature as far as the box allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from advfrontier.solvers.protocol import length
from advfrontier.threat.thresholds import TINY

Shape = tuple[int, int, int]  # channels, height, width

DRAWS = 5  # random numbers that a move takes, beside one per channel

_TILES = 5  # in a row and a column of the first perturbation


@dataclass(frozen=True)
class Canvas:
    """Start of a move.

    Args:
        shape: Shape of an image.
        kept: (n, d), the perturbation over the radius, of size 1 or less.
        inputs: (n, d), the unperturbed images.
        radius: (n,), radius of the perturbations.
        draw: (n, DRAWS + channels), random numbers in (0, 1).
        top: (1, d), the upper ends of the box; None for 1.
    """

    shape: Shape
    kept: Tensor
    inputs: Tensor
    radius: Tensor
    draw: Tensor
    top: Tensor | None = None

    @property
    def signs(self) -> Tensor:
        """Return one random sign per channel: (n, channels, 1, 1)."""
        return (self.draw[:, DRAWS:] - 0.5).sign_()[:, :, None, None]

    def corners(self, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Return top and left of two random windows of this size: (n, 2) each, whole numbers.

        Args:
            rows: Height of the windows, in pixels.
            columns: Width of the windows, in pixels.
        """
        tops = (self.draw[:, 0:4:2] * (self.shape[1] - rows + 1)).floor_()
        lefts = (self.draw[:, 1:4:2] * (self.shape[2] - columns + 1)).floor_()
        return tops, lefts


def stripes(shape: Shape, draws: Tensor) -> Tensor:
    """Return the first perturbation in ℓ∞: vertical stripes, each with a sign of its own.

    Args:
        shape: Shape of an image.
        draws: (n, d), random numbers in (0, 1), of which one per stripe and channel is used.
    """
    signs = (draws.view(-1, *shape)[:, :, :1] - 0.5).sign_()
    return signs.expand(-1, *shape).flatten(1).contiguous()


def tiles(shape: Shape, draws: Tensor) -> Tensor:
    """Return the first perturbation in ℓ1 and ℓ2: a grid of windows with random signs.

    Args:
        shape: Shape of an image.
        draws: (n, d), random numbers in (0, 1), of which one per tile and channel is used.
    """
    height, width = shape[1:]
    rows, columns = max(height // _TILES, 1), max(width // _TILES, 1)
    tile = _pattern(rows, columns, draws.device, across=True).to(draws.dtype)
    image = tile.repeat(-(-height // rows), -(-width // columns))
    signs = (draws.view(-1, *shape)[:, :, ::rows, ::columns] - 0.5).sign_()
    signs = signs.repeat_interleave(rows, 2).repeat_interleave(columns, 3)
    return (image * signs)[:, :, :height, :width].flatten(1)


def repaint(canvas: Canvas, side: int) -> Tensor:
    """Return the perturbation with a random window set to one new sign per channel, for ℓ∞.

    Args:
        canvas: Perturbation, images and random numbers that the move starts from.
        side: Side of the window, cut by the image.
    """
    shape = canvas.shape
    rows, columns = min(side, shape[1]), min(side, shape[2])
    tops, lefts = canvas.corners(rows, columns)
    inside = _inside(shape, rows, columns, tops[:, :1], lefts[:, :1])
    return torch.lerp(canvas.kept.view(-1, *shape), canvas.signs, inside).flatten(1)


def move(canvas: Canvas, side: int) -> Tensor:
    """Return the perturbation with the mass of one window moved to another one, for ℓ2: size 1.

    Args:
        canvas: Perturbation, images and random numbers that the move starts from.
        side: Side of the windows, made odd so that there is a middle, and cut by the image.
    """
    shape, kept = canvas.shape, canvas.kept
    side = max(side, 3) // 2 * 2 + 1
    rows, columns = min(side, shape[1]), min(side, shape[2])
    tops, lefts = canvas.corners(rows, columns)
    rest, mass = _emptied(canvas, _inside(shape, rows, columns, tops[:, 1:], lefts[:, 1:]))
    filled = _corner(shape, rows, columns, kept.device) + _first(shape, tops, lefts)
    old = rest.gather(1, filled).view(-1, shape[0], rows * columns)
    mass += old.square().sum(2)
    mass += (1 - kept.square().sum(1, keepdim=True)).clamp_(min=0) / shape[0]

    upright = _pattern(rows, columns, kept.device, across=False).flatten().to(kept.dtype)
    across = _pattern(rows, columns, kept.device, across=True).flatten().to(kept.dtype)
    turned = (canvas.draw[:, 4:5] - 0.5).sign_().clamp_(min=0)
    pattern = torch.lerp(upright, across, turned)[:, None]
    fresh = old.div_(_lengths(old)).addcmul_(pattern, canvas.signs.squeeze(3))
    fresh.mul_(mass.sqrt()[:, :, None] / _lengths(fresh))
    rest.scatter_(1, filled, fresh.flatten(1))
    return rest.div_(length(rest)[:, None])


def pour(canvas: Canvas, side: int) -> Tensor:
    """Return the perturbation with the mass of one window poured into another one, for ℓ1.

    Its size is 1, or less where the window cannot hold it all.

    Args:
        canvas: Perturbation, images and random numbers that the move starts from.
        side: Side of the windows, cut by the image.
    """
    shape = canvas.shape
    rows, columns = min(side, shape[1]), min(side, shape[2])
    tops, lefts = canvas.corners(rows, columns)
    rest, _ = _emptied(canvas, _inside(shape, rows, columns, tops[:, 1:], lefts[:, 1:]))
    order, channel = _outwards(shape, rows, columns, rest.device)
    places = order + _first(shape, tops, lefts)
    rest.scatter_(1, places, 0)
    signs = canvas.signs.flatten(1).index_select(1, channel)
    room = signs.clamp(min=0)
    if canvas.top is not None:
        room.mul_(canvas.top.expand_as(rest).gather(1, places))
    room.sub_(canvas.inputs.gather(1, places)).abs_()
    room.div_(canvas.radius.clamp(min=TINY)[:, None])
    # What is left for a feature when those further inside are full.
    left = room.cumsum(1).sub_(room).neg_().add_(1 - rest.abs().sum(1, keepdim=True))
    fresh = torch.minimum(left.clamp_(min=0), room, out=left)
    return rest.scatter_(1, places, fresh.mul_(signs))


def _emptied(canvas: Canvas, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Empty a window: return the rest (n, d), and what was squared and summed (n, channels)."""
    image = canvas.kept.view(-1, *canvas.shape)
    taken = image * inside
    return (image - taken).flatten(1), taken.square_().sum((2, 3))


def _lengths(windows: Tensor) -> Tensor:
    """Return the Euclidean length of every window, at least TINY: (n, channels, 1)."""
    size: Tensor = torch.linalg.vector_norm(windows, 2, dim=2, keepdim=True)
    return size.clamp_(min=TINY)


def _inside(shape: Shape, rows: int, columns: int, top: Tensor, left: Tensor) -> Tensor:
    """Return 1 inside a window and 0 outside: (n, 1, height, width)."""
    in_rows, in_columns = _interval(shape[1], top, rows), _interval(shape[2], left, columns)
    return (in_rows[:, :, None] * in_columns[:, None, :])[:, None]


def _interval(size: int, first: Tensor, count: int) -> Tensor:
    """Return 1 from `first` (n, 1) on for `count` places, and 0 elsewhere: (n, size)."""
    place = torch.arange(size, dtype=first.dtype, device=first.device)
    from_middle = (place - first).sub_((count - 1) / 2).abs_()
    return from_middle.neg_().add_(count / 2).sign_().clamp_(min=0)


def _first(shape: Shape, tops: Tensor, lefts: Tensor) -> Tensor:
    """Return where the window to fill begins in a flattened image: (n, 1)."""
    return (tops[:, :1] * shape[2]).add_(lefts[:, :1]).long()


@lru_cache(maxsize=64)
def _corner(shape: Shape, rows: int, columns: int, device: torch.device) -> Tensor:
    """Return where the entries of the top left window are in a flattened image."""
    channels, height, width = shape
    places = torch.arange(channels * height * width, device=device).view(shape)
    return places[:, :rows, :columns].flatten()


@lru_cache(maxsize=64)
def _outwards(shape: Shape, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the same from the middle outwards, all channels together, and the channel of each."""
    order = _rings(rows, columns, device).flatten().repeat(shape[0]).argsort(stable=True)
    places = _corner(shape, rows, columns, device).index_select(0, order)
    return places, order // (rows * columns)


def _rings(rows: int, columns: int, device: torch.device) -> Tensor:
    """Return how far every entry of a window is from its middle: (rows, columns)."""
    down = (torch.arange(rows, device=device) - rows // 2).abs_()
    right = (torch.arange(columns, device=device) - columns // 2).abs_()
    return torch.maximum(down[:, None], right[None, :])


@lru_cache(maxsize=64)
def _pattern(rows: int, columns: int, device: torch.device, *, across: bool) -> Tensor:
    """Return a window of size 1: a bright half and a dark one.

    The halves are side by side, where there is room for that, or one above the other. Ring k around
    the middle of a half is Σ 1/j² from j = k + 1 to the outermost ring.
    """
    across = rows == 1 or (across and columns > 1)
    whole = columns if across else rows
    halves: list[Tensor] = []
    for share in (whole // 2, whole - whole // 2):
        height, width = (rows, share) if across else (share, columns)
        outermost = max(height // 2, width // 2) + 1
        steps = torch.arange(1, outermost + 1, dtype=torch.float32, device=device)
        reached = _rings(height, width, device)[:, :, None] < steps
        halves.append((reached / steps.square()).sum(2))
    pattern = torch.cat([halves[0], -halves[1]], 1 if across else 0)
    size: Tensor = torch.linalg.vector_norm(pattern)
    return pattern / size
