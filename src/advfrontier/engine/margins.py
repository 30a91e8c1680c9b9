"""When a point counts as misclassified: by a margin that rounding cannot undo."""

from __future__ import annotations

import torch
from torch import Tensor

from advfrontier.threat.criteria import Aim
from advfrontier.threat.losses import margin

# A kept point must be misclassified by more than another batch layout can move its logits, or it
# may flip back when it is looked at again. Sums of the size of the logits are moved by up to 1.5e-6
# of them in float32 (12 roundings); an offset that all logits share is added at the end, and costs
# one rounding of the whole: on thirteen nets with offsets of 1e3 to 1e6 the margin moved by one
# unit in the last place, never by two. A margin of more than eps·max|z| is two.
_SAFETY = {torch.float64: 1e-12, torch.float32: 1e-5}
_ROUNDINGS = 8  # of logits in half precision


def spread(logits: Tensor) -> Tensor:
    """Largest minus smallest logit of each row: their scale, whatever offset they share.

    Args:
        logits: (n, classes).
    """
    low, high = torch.aminmax(logits, dim=1)
    return high - low


def safety(
    logits: Tensor, clean_spread: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the margin of each row that another batch layout cannot undo.

    It is measured by the logits' size, but no more of it than their spread: an offset that all
    logits share says nothing about the margin. Near the boundary of few classes the spread itself
    vanishes, and the spread at the unperturbed image has to do.

    Args:
        logits: (n, classes).
        clean_spread: (n,), the spread at the unperturbed images.
        dtype: Precision in which the model computed the logits; by default theirs.
    """
    low, high = torch.aminmax(logits, dim=1)
    size, scale = torch.maximum(high, -low), high - low
    if clean_spread is not None:
        scale = torch.maximum(scale, clean_spread.to(scale))
    dtype = dtype or logits.dtype
    eps = torch.finfo(dtype).eps
    factor = _SAFETY.get(dtype, _ROUNDINGS * eps)
    return torch.maximum(factor * torch.minimum(size, scale), eps * size)


def robustly_misclassified(
    logits: Tensor,
    gap: Tensor,
    clean_spread: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Tell which rows are misclassified by a margin that another batch layout cannot undo.

    Logits that are not finite never count.

    Args:
        logits: (n, classes).
        gap: (n,), their margin.
        clean_spread: (n,), the spread of the logits at the unperturbed images; None if unknown.
        dtype: Precision in which the model computed the logits; None for their own type.
    """
    return gap < -safety(logits, clean_spread, dtype)


def margin_to_go(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, aim: Aim | None = None
) -> Tensor:
    """Return how far the margin has to fall: on a tie, to where the point counts as a success.

    Args:
        logits: (n, classes).
        labels: (n,), the true classes.
        targets: (n,), the classes that the run steers to; None for an untargeted run.
        aim: The criterion of success; None for misclassification.
    """
    gap = margin(logits, labels, targets) if aim is None else aim.gap(logits)
    return gap.abs().clamp(min=2 * safety(logits))
