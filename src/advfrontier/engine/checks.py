"""Checks before queries are spent: errors for impossible results, flags for doubtful ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from scipy.special import bdtrc
from torch import Tensor

from advfrontier.engine.diagnose import diagnose, unusable_gradients
from advfrontier.engine.expectation import judged
from advfrontier.engine.margins import spread
from advfrontier.engine.oracle import in_unit_box
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.threat.losses import margin

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.domain import Space

_TOLERANCE = 1e-6  # how far an input may stand outside [0, 1] before it is more than rounding

# One rounding of the logits over the margin at the clean images, from which on a flag says so: a
# distance is too large by about this share. Ordinary nets are below 1e-5; an offset of 1e4 on
# logits of order one comes to 1e-3.
_COARSE = 5e-4

# Samples from which on a clean accuracy of 0, or one that guessing explains, is flagged.
_NONE_RIGHT, _NEAR_CHANCE = 5, 20
_CHANCE = 0.05  # probability of being that good by guessing

_NORMALISED = (
    "if they are normalised, undo it (images * std + mean) and put the normalisation inside the "
    "model: from advfrontier.sources import Normalised; model = Normalised(model, mean, std)"
)

TRAINING = Flag(
    Kind.TRAINING,
    "the model, or a part of it, was in train mode: evaluated in eval mode, and set back "
    "afterwards",
)
PROBABILITIES = Flag(
    Kind.PROBABILITIES,
    "the model returns probabilities, not logits: gradients vanish where it is sure; remove the "
    "softmax",
)
RANDOM = Flag(
    Kind.RANDOM,
    "the model is random: two passes over the same images differ, and so will distances; let "
    "every query be the mean of some passes: --eot 20 (eot=20)",
)
BATCH_DEPENDENT = Flag(
    Kind.BATCH, "the model's answer for an image depends on the other images of the batch"
)


def check_images(images: Tensor, source: str = "") -> Tensor:
    """Return the images, clamped to [0, 1] where rounding took them outside.

    Args:
        images: Images of any shape, finite.
        source: Name of the images, for messages.
    """
    which = f"{source}: images" if source else "images"
    if not images.is_floating_point():
        raise FrontierError(
            f"{which} are {images.dtype}: expected floats in [0, 1]; type images / 255"
        )
    if images.ndim < 2 or not images.numel():
        raise FrontierError(
            f"{which} have shape {tuple(images.shape)}: expected at least one, as (samples, "
            "channels, height, width)"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
        cure = "if they are 8-bit, divide by 255" if low >= 0 and high > 2 else _NORMALISED
        if not images.isfinite().all():
            cure = "leave out those that hold numbers that are not finite"
        raise FrontierError(f"{which} range from {low:g} to {high:g}: expected [0, 1]; {cure}")
    return images.clamp(0, 1) if low < 0 or high > 1 else images


def check_data(images: Tensor, labels: Tensor, space: Space | None = None) -> Tensor:
    """Return the images as `check_images` does; refuse labels that do not belong to them.

    Args:
        images: (n, …) in [0, 1], or in the domain.
        labels: True classes, integers (n,).
        space: Domain that images must be in; None for [0, 1].
    """
    if not isinstance(images, Tensor) or not isinstance(labels, Tensor):
        raise FrontierError(
            f"images and labels must be tensors: found {type(images).__name__}, "
            f"{type(labels).__name__}"
        )
    images = check_images(images) if space is None else space.check(images)
    if labels.shape != images.shape[:1]:
        raise FrontierError(
            f"{len(images)} images but labels of shape {tuple(labels.shape)}: expected one label "
            "per image"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise FrontierError(f"labels are {labels.dtype}: expected class numbers as integers")
    return images


def check_model(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    *,
    gradients: bool = True,
    space: Space | None = None,
) -> list[Flag]:
    """Try the model on a few samples, up to 39 queries each, charged to checks; return flags.

    Args:
        oracle: Model on its device; its passes are counted as checks.
        images: (n, …) in [0, 1], or in the domain, a few samples.
        labels: True classes, int64 (n,).
        gradients: Whether any run needs gradients; they are diagnosed then.
        space: Domain, in which a pixel's change is a share of its feature's box; None for [0, 1].
    """
    oracle, images = in_unit_box(oracle, images, space)
    oracle.purpose = "checks"
    flags = [TRAINING] if oracle.was_training else []
    x, y = oracle.images(images).detach(), oracle.labels(labels)
    logits = oracle.logits(x)
    check_finite(logits)
    check_labels(y, logits.shape[1])
    again = oracle.logits(x)
    alone = oracle.logits(
        x.flip(0)[: (len(x) + 1) // 2]
    )  # in other company: half of the batch, in reverse
    if _looks_like_probabilities(logits):
        flags.append(PROBABILITIES)
    rounding = torch.finfo(oracle.logits_dtype).eps * logits.abs().amax()
    allowed = torch.maximum(1e-3 * spread(logits).amax(), 4 * rounding)
    random = not torch.equal(logits, again)
    mixed = not random and bool((alone - logits.flip(0)[: len(alone)]).abs().amax() > allowed)
    if random:
        flags.append(RANDOM if oracle.eot == 1 else _averaged(oracle.eot))
    elif mixed:
        flags.append(BATCH_DEPENDENT)
    flags += _check_precision(logits, y, oracle.logits_dtype)
    if gradients and (random or mixed):
        # Where logits change by themselves, their changes say nothing about the gradient.
        flags += unusable_gradients(oracle, x, y)
    elif gradients:
        flags += diagnose(oracle, x, y)
    return flags


def _averaged(eot: int) -> Flag:
    text = (
        f"the model is random: every query is the mean of {eot} passes, and a point counts if "
        f"{judged(eot)}"
    )
    return Flag(Kind.EOT, text)


def check_finite(logits: Tensor, first: int | None = None) -> None:
    """Raise if logits of clean images are not finite; `first` is the first sample's number.

    Args:
        logits: (n, classes) of clean images.
        first: Number of the first sample, for the message; None if the rows are not numbered.
    """
    bad = (~logits.isfinite().all(1)).nonzero().squeeze(1)
    if len(bad):
        where = "" if first is None else f" (sample {first + int(bad[0])} is the first)"
        raise FrontierError(
            f"the model returned logits that are not finite on clean images{where}: expected "
            "finite ones"
        )


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that the model has no class for.

    Args:
        labels: True classes, int64 (n,).
        classes: Number of classes of the model.
    """
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise FrontierError(
            f"labels range from {low} to {high}, but the model has {classes} classes: 0 to "
            f"{classes - 1}"
        )


def accuracy_flag(correct: Tensor, classes: int) -> Flag | None:
    """Return a flag if so few clean samples are classified correctly that guessing explains it.

    Args:
        correct: (n,) bool, which clean samples are classified correctly.
        classes: Number of classes of the model.
    """
    right, n = int(correct.sum()), len(correct)
    if right == 0 and n >= _NONE_RIGHT:
        found = f"none of the {n} clean samples is classified correctly"
    elif n >= _NEAR_CHANCE and bdtrc(right - 1, n, 1 / classes) > _CHANCE:
        found = (
            f"{right} of the {n} clean samples are classified correctly, no more than by guessing"
        )
    else:
        return None
    return Flag(
        Kind.CLEAN_ACCURACY,
        f"{found} among {classes} classes: look at the labels and their order, the order of "
        "channels (RGB or BGR), and the normalisation, which belongs inside the model",
    )


def _looks_like_probabilities(logits: Tensor) -> bool:
    total = logits.sum(1)
    return bool((logits >= 0).all() and (logits <= 1).all() and ((total - 1).abs() < 1e-3).all())


def _check_precision(logits: Tensor, labels: Tensor, dtype: torch.dtype) -> list[Flag]:
    """Return a flag if coarse logits make points count as misclassified late."""
    rounding = float(torch.finfo(dtype).eps * logits.abs().amax(1).median())
    gap = float(margin(logits, labels).abs().median())
    if dtype.itemsize < torch.float32.itemsize:
        text = (
            f"the model returns {dtype} logits, rounded to {rounding:.1g} where the margin is "
            f"{gap:.2g}: distances may be too large; let it compute in float32"
        )
    elif rounding > _COARSE * gap:
        text = (
            f"the logits are rounded to {rounding:.1g} where the margin is {gap:.2g}, as they "
            "share a large offset: distances may be too large; subtract it, or let the model "
            "compute in float64"
        )
    else:
        return []
    return [Flag(Kind.PRECISION, text)]
