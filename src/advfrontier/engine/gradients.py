"""Does the margin move as its gradient says? Asked at the clean images, before gradient attacks rely on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.engine.margins import safety, spread
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import TINY

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle

# Steps against the sign of the gradient, as shares of what would bring the margin to zero if the model were linear.
# The first is short enough for kinks and curvature to matter little; the longer ones are there for models that round
# their input, which do not move at all before. The last is at least one level of an 8-bit image.
_STEPS = (0.01, 0.1, 1.0, 1.0)
_LEVEL = 1 / 255

# Agreement is the smaller of (observed ÷ predicted change) and its inverse, at the first step that moves the margin.
# Measured on 64 images each: 25 honest nets (plain and robustly trained, on MNIST, CIFAR-10 and Fashion-MNIST) have a
# median of at least 0.96 and no sample below 0.49. With pixels rounded to 255 levels no sample is below 0.33; with
# bfloat16 logits up to 14 % of a net's samples are below 0.25, for want of digits. The same nets with negated,
# shattered or random gradients have 88 to 100 % of their samples below 0.25, most below 0.01.
_AGREEMENT = 0.25
_SHARE = 0.2

_INFORMATIVE = (
    8  # roundings that a predicted change must exceed to be compared with an observed one
)
_VISIBLE = 2  # roundings that an observed change must exceed to be one


def check_gradients(oracle: Oracle, x: Tensor, y: Tensor, *, steady: bool = True) -> list[Flag]:
    """Flags for gradients that vanish, are not finite, or mislead: 6 queries a sample, 2 if the model is not steady."""
    probe = x.clone().requires_grad_()
    logits = oracle.logits(probe)
    with torch.enable_grad():
        gap = margin(logits, y)
    gradient = oracle.gradient(gap, probe)
    length = torch.linalg.vector_norm(gradient.flatten(1), 2, dim=1)
    finite = length.isfinite()
    flags = []
    if not finite.all():
        text = (
            "the margin's gradient is not finite on {:.0%} of the checked samples: taken for zero"
        )
        flags.append(Flag(Kind.BAD_GRADIENTS, text.format(_share(~finite))))
    if (length < TINY).any():
        text = "the margin has no gradient on {:.0%} of the checked samples: gradient attacks will overrate the model"
        kind = Kind.NO_GRADIENTS if (length < TINY).all() else Kind.ZERO_GRADIENTS
        flags.append(Flag(kind, text.format(_share(length < TINY))))
    usable = finite & (length >= TINY)
    if steady and usable.any():
        agreed = agreement(oracle, x, y, logits.detach(), gradient)[usable.cpu()]
        misled = agreed[~agreed.isnan()] < _AGREEMENT
        if len(misled) and _share(misled) >= _SHARE:
            text = (
                "on {:.0%} of the checked samples the margin does not move as its gradient says: gradient attacks will "
                "overrate the model; look for detach(), rounding or a backward pass of its own in the model"
            )
            flags.append(Flag(Kind.MISLEADING_GRADIENTS, text.format(_share(misled))))
    return flags


def has_surrogate(oracle: Oracle, images: Tensor, labels: Tensor) -> bool:
    """Whether surrogate gradients lead anywhere on most of these samples: 2 queries each."""
    x, y = oracle.images(images).detach().requires_grad_(), oracle.labels(labels)
    oracle.surrogate = True
    try:
        logits = oracle.logits(x)
        with torch.enable_grad():
            gap = margin(logits, y)
        size = torch.linalg.vector_norm(oracle.gradient(gap, x).flatten(1), 2, dim=1)
    except (
        FrontierError
    ):  # compiled models do not take it, and what leaves PyTorch cannot be followed
        return False
    finally:
        oracle.surrogate = False
    return _share(size.isfinite() & (size >= TINY)) > 1 / 2


def agreement(oracle: Oracle, x: Tensor, y: Tensor, logits: Tensor, gradient: Tensor) -> Tensor:
    """How well the gradient predicts the margin: 1 exactly, 0 not at all, below 0 the wrong way; NaN if unknown.

    One forward pass a step. The prediction is made for the change inside the box, as rounded; changes that rounding
    could explain are no changes.
    """
    rounding = (
        torch.maximum(safety(logits), torch.finfo(oracle.logits_dtype).eps * logits.abs().amax(1))
        .cpu()
        .double()
    )
    gap = margin(logits, y)
    direction = gradient.sign()
    # On a tie the margin has nothing to fall to: a step is then measured by the spread of the logits.
    whole = torch.maximum(gap.abs(), 0.05 * spread(logits)) / gradient.abs().flatten(1).sum(
        1
    ).clamp(min=TINY)
    slopes = gradient.flatten(1).cpu().double()
    found = torch.full((len(x),), torch.nan, dtype=torch.float64)
    settled = torch.zeros(len(x), dtype=torch.bool)
    for number, step in enumerate(_STEPS):
        size = step * whole if number + 1 < len(_STEPS) else (step * whole).clamp(min=_LEVEL)
        moved = (x - size.to(x).view(-1, *[1] * (x.ndim - 1)) * direction).clamp(0, 1)
        predicted = ((moved - x).flatten(1).cpu().double() * slopes).sum(1)
        observed = (margin(oracle.logits(moved), y) - gap).cpu().double()
        informative = predicted.abs() > _INFORMATIVE * rounding
        visible = observed.abs() > _VISIBLE * rounding
        # It moves far although the gradient says that it should stay: that is no agreement either.
        unforeseen = ~informative & (observed.abs() > _INFORMATIVE / _AGREEMENT * rounding)
        ratio = observed / predicted
        told = informative & visible & ~settled
        found[told] = torch.where(ratio > 0, torch.minimum(ratio, 1 / ratio), ratio)[told]
        found[(informative & ~visible | unforeseen) & ~settled] = 0
        settled |= told | unforeseen
    return found


def _share(rows: Tensor) -> float:
    return float(rows.float().mean())
