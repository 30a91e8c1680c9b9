"""Distances near the resolution of the working precision, which read too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine.margins import safety
from advfrontier.flags import Flag, Kind
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import make_norm

if TYPE_CHECKING:
    from advfrontier.threat.domain import Space

PERCENT = 0.01  # possible relative errors above this are flagged
RARE = 0.01  # share of samples up to which they are not: a few lie near the boundary by chance
_SAFETIES = 2  # solvers aim at twice the margin that counts


def possible_excess(
    logits: Tensor,
    labels: Tensor,
    distances: NDArray[np.float64],
    *,
    norm: str,
    shape: tuple[int, ...],
    space: Space | None = None,
) -> NDArray[np.float64]:
    """Return by which share each distance may read too large.

    A point counts once its margin exceeds what rounding can undo: this is compared with the margin
    of the unperturbed image. Every value of a point is rounded, by up to half a unit in the last
    place: the size of that is compared with the distance. In a norm that counts, rounding changes
    no size.

    Args:
        logits: (n, classes) of the unperturbed images, in the model's precision.
        labels: (n,), their classes.
        distances: (n,), 0 where misclassified, inf where unbroken.
        norm: Name of the norm of the distances.
        shape: Shape of one image.
        space: The domain; None for [0, 1].

    Returns:
        (n,), 0 where there is no distance.
    """
    gap = margin(logits, labels).abs().double()
    by_margin = _SAFETIES * safety(logits).double() / gap.clamp(min=torch.finfo(torch.float32).tiny)
    eps = torch.finfo(torch.float64 if logits.dtype == torch.float64 else torch.float32).eps
    measure = make_norm(norm, shape)
    half_unit = torch.full((1, torch.Size(shape).numel()), eps / 4, dtype=torch.float64)
    if space is not None:
        largest = torch.maximum(space.lower.abs(), space.upper.abs())
        half_unit *= (space.weights * largest * space.moves).flatten()
    size = float(measure.size(half_unit))
    if size == float(measure.size(2 * half_unit)):
        return np.zeros(len(distances))
    excess = np.zeros(len(distances))
    known = (distances > 0) & np.isfinite(distances)
    excess[known] = by_margin.numpy()[known] + size / distances[known]
    return excess


def resolution_flag(excess: NDArray[np.float64], attacked: int, dtype: torch.dtype) -> Flag | None:
    """Return a flag if more than a few distances may read more than 1 % too large.

    Args:
        excess: (n,), as `possible_excess` returns it.
        attacked: Number of attacked samples.
        dtype: Precision of the model's logits.
    """
    count = int((excess > PERCENT).sum())
    if count <= RARE * attacked:
        return None
    precision = str(dtype).removeprefix("torch.")
    text = (
        f"{count} of {attacked} distances are near the resolution of {precision} and may read more "
        f"than {PERCENT:.0%} too large, the worst of them up to {excess.max():.0%}"
    )
    cure = "" if dtype == torch.float64 else "; model.double() resolves smaller ones"
    return Flag(Kind.RESOLUTION, text + cure)
