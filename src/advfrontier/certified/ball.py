"""The least value of linear functions over the images within a radius, cut off by the box [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.threat.norms import TINY

_PASSES = 6  # towards the best multiplier in L2; every one on the way gives a bound that holds


@dataclass(frozen=True)
class Ball:
    """Samples with a radius each: images (samples, features) in float64, radii (samples,)."""

    norm: str
    images: Tensor
    radii: Tensor

    def hull(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value that each feature can take."""
        reach = self.radii[:, None]
        return (self.images - reach).clamp_(min=0), (self.images + reach).clamp_(max=1)

    def falls(self, slopes: Tensor, owners: Tensor, columns: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Each ⟨slopes, image⟩, and by how much it can fall inside the ball of the sample that owns the row.

        Feature k lowers the product by |slope_k| for each unit it moves, and has room up to the end of the box. With
        `columns` the slopes are those of these features, and zero for all others.
        """
        images = self.images[owners] if columns is None else self.images[owners[:, None], columns]
        room = torch.where(slopes > 0, images, 1 - images)
        fall = {"L1": _l1, "L2": _l2, "Linf": _linf}[self.norm](slopes.abs(), room, self.radii[owners])
        return _products(slopes, images), fall


def _products(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ of each row."""
    out: Tensor = torch.linalg.vecdot(a, b)
    return out


def _linf(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """Every feature as far as it can go."""
    return _products(steepness, torch.minimum(room, radii[:, None]))


def _l1(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """The steepest features first, each as far as it can go."""
    ranked, order = steepness.sort(dim=1, descending=True)
    room = room.gather(1, order)
    left = radii[:, None] - (room.cumsum(1) - room)
    return _products(ranked, left.clamp_(min=0).minimum(room))


def _l2(steepness: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """The Lagrangian bound Σ(steepness·u − λu²/2) + λr²/2 with u = min(steepness/λ, room), which holds for any λ > 0.

    The first λ leaves the box out and gives radius·‖steepness‖; every next one lets the features that have met the box
    stay there and shares the rest of the radius among the others.
    """
    squares = radii.square()
    level = torch.linalg.vector_norm(steepness, dim=1) / radii.clamp(min=TINY)
    least: Tensor = radii * torch.linalg.vector_norm(steepness, dim=1)
    for _ in range(_PASSES):
        level = level.clamp(min=TINY)
        move = torch.minimum(steepness / level[:, None], room)
        value = _products(steepness, move) + level / 2 * (squares - _products(move, move))
        least = torch.minimum(least, value)
        stopped = move >= room
        left = (squares - (room.square() * stopped).sum(1)).clamp(min=TINY)
        level = ((steepness.square() * ~stopped).sum(1) / left).sqrt()
    return least
