"""Checks before queries are spent: errors where no result could be right, flags where one is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import TINY

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle

_TOLERANCE = 1e-6  # how far an input may stand outside [0, 1] before it is more than rounding

TRAINING = "the model was in train mode: evaluated in eval mode, and set back afterwards"
PROBABILITIES = "the model returns probabilities, not logits: gradients vanish where it is sure; remove the softmax"
RANDOM = "the model is random: two passes over the same images differ, and so will distances"
BATCH_DEPENDENT = "the model's answer for an image depends on the other images of the batch"
ZERO_GRADIENTS = (
    "the margin has no gradient on {share:.0%} of the checked samples: gradient attacks will overrate the model"
)
BAD_GRADIENTS = "the margin's gradient is not finite on {share:.0%} of the checked samples: taken for zero"


def check_data(images: Tensor, labels: Tensor) -> Tensor:
    """Return the images, clamped to [0, 1] where rounding took them outside; refuse what cannot be evaluated."""
    if not isinstance(images, Tensor) or not isinstance(labels, Tensor):
        raise FrontierError(
            f"images and labels must be tensors: found {type(images).__name__}, {type(labels).__name__}"
        )
    if not images.is_floating_point():
        raise FrontierError(f"images are {images.dtype}: expected floats in [0, 1]; divide 8-bit images by 255")
    if images.ndim < 2 or len(images) == 0:
        raise FrontierError(
            f"images have shape {tuple(images.shape)}: expected at least one, as (samples, channels, height, width)"
        )
    if labels.shape != images.shape[:1]:
        raise FrontierError(
            f"{len(images)} images but labels of shape {tuple(labels.shape)}: expected one label per image"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise FrontierError(f"labels are {labels.dtype}: expected class numbers as integers")
    low, high = float(images.min()), float(images.max())
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
        cause = "divide by 255" if high > 2 else "put the normalisation inside the model"
        raise FrontierError(f"images range from {low:g} to {high:g}: expected [0, 1]; {cause}")
    return images.clamp(0, 1) if low < 0 or high > 1 else images


def check_model(oracle: Oracle, images: Tensor, labels: Tensor, *, gradients: bool = True) -> list[str]:
    """Try the model on a few samples, up to 5 queries each, charged to checks; `gradients` if any run needs them."""
    oracle.purpose = "checks"
    flags = [TRAINING] if getattr(oracle, "was_training", False) else []
    x = images.to(oracle.device, oracle.dtype)
    y = labels.to(oracle.device).long()
    try:
        logits = oracle.logits(x)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise FrontierError(
            f"the model cannot take images of shape {tuple(x.shape)} ({type(error).__name__}: {error}): expected one "
            "from such images, (samples, channels, height, width) in [0, 1], to logits"
        ) from error
    _check_logits(logits, len(x), y)
    again = oracle.logits(x)
    alone = oracle.logits(x.flip(0)[: (len(x) + 1) // 2])  # in other company: half of the batch, in reverse
    if _looks_like_probabilities(logits):
        flags.append(PROBABILITIES)
    scale = logits.abs().amax()
    if not torch.equal(logits, again):
        flags.append(RANDOM)
    elif (alone - logits.flip(0)[: len(alone)]).abs().amax() > 1e-3 * scale:
        flags.append(BATCH_DEPENDENT)
    return flags + (_check_gradients(oracle, x, y) if gradients else [])


def _check_logits(logits: Tensor, rows: int, labels: Tensor) -> None:
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise FrontierError(
            f"the model returned {found} for {rows} images: expected logits of shape ({rows}, classes ≥ 2)"
        )
    if not logits.isfinite().all():
        raise FrontierError("the model returned logits that are not finite on clean images: expected finite ones")
    check_labels(labels, logits.shape[1])


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that the model has no class for."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise FrontierError(
            f"labels range from {low} to {high}, but the model has {classes} classes: 0 to {classes - 1}"
        )


def _looks_like_probabilities(logits: Tensor) -> bool:
    total = logits.sum(1)
    return bool((logits >= 0).all() and (logits <= 1).all() and ((total - 1).abs() < 1e-3).all())


def _check_gradients(oracle: Oracle, x: Tensor, y: Tensor) -> list[str]:
    probe = x.clone().requires_grad_()
    logits = oracle.logits(probe)
    with torch.enable_grad():
        gap = margin(logits, y)
    if not gap.requires_grad:
        raise FrontierError(
            "the model's logits have no gradient with respect to the images: gradient attacks cannot run; "
            "remove torch.no_grad() or .detach() from the model, or ask for black-box runs only (square_min)"
        )
    length = torch.linalg.vector_norm(oracle.gradient(gap, probe).flatten(1), 2, dim=1)
    finite = length.isfinite()
    flags = []
    if not finite.all():
        flags.append(BAD_GRADIENTS.format(share=float((~finite).float().mean())))
    if (length < TINY).any():
        flags.append(ZERO_GRADIENTS.format(share=float((length < TINY).float().mean())))
    return flags
