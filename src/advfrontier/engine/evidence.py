"""What results say about themselves: signs that labels are wrong, or that gradient attacks were led astray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import bdtrc

from advfrontier.engine.margins import robustly_misclassified
from advfrontier.flags import Flag, Kind
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import get_norm

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from advfrontier.engine.oracle import Oracle

# Clean accuracy: 0 is told from so many samples on, accuracy that chance explains from so many.
_NONE_RIGHT, _NEAR_CHANCE = 5, 20
_CHANCE = 0.05  # of being that good by guessing

# A point is clearly nearer than another at so much of its distance. It is no accident on two samples and such a share
# of those attacked.
_NEARER = 0.9
_LEAST = 2
_SHARE_BEATEN, _SHARE_NOISE = 0.1, 0.05
_DRAWS = 4


def accuracy_flag(correct: Tensor, classes: int) -> Flag | None:
    """A flag if so few clean samples are classified correctly that the labels or images may not be the model's."""
    right, n = int(correct.sum()), len(correct)
    if right == 0 and n >= _NONE_RIGHT:
        found = f"none of the {n} clean samples is classified correctly"
    elif n >= _NEAR_CHANCE and bdtrc(right - 1, n, 1 / classes) > _CHANCE:
        found = f"{right} of the {n} clean samples are classified correctly, no more than by guessing"
    else:
        return None
    return Flag(
        Kind.CLEAN_ACCURACY,
        f"{found} among {classes} classes: look at the labels and their order, the order of channels (RGB or BGR), and "
        "the normalisation, which belongs inside the model",
    )


def beaten(gradient: ArrayLike, black_box: ArrayLike) -> Flag | None:
    """A flag if runs without gradients are clearly nearer than those with them on a clear share of the samples.

    Both are the best distance per sample, of all runs of their kind: 0 for samples that were not attacked, inf for
    those never broken.
    """
    with_them, without = np.asarray(gradient, dtype=np.float64), np.asarray(black_box, dtype=np.float64)
    attacked = (with_them > 0) & (without > 0)
    nearer = attacked & (without < _NEARER * with_them)
    if nearer.sum() < max(_LEAST, _SHARE_BEATEN * attacked.sum()):
        return None
    return Flag(
        Kind.BEATEN,
        f"attacks without gradients are nearer than those with them on {nearer.sum()} of {attacked.sum()} samples: the "
        "model's gradients mislead, and its distances may be too large",
    )


@torch.no_grad()
def noise_check(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    ids: NDArray[np.uint64],
    distances: ArrayLike,
    *,
    norm: str,
    seed: int,
    batch_size: int = 100,
) -> Flag | None:
    """A flag if random noise, smaller by a tenth than the distances found, breaks a clear share of these samples.

    It takes 4 forward passes a sample, charged to verification. A single sample that noise breaks proves its distance
    too large.
    """
    oracle.purpose = "verification"
    threat, radius = get_norm(norm), _NEARER * np.asarray(distances, dtype=np.float64)
    radius = np.floor(radius) if threat.name == "L0" else radius
    broken = 0
    for part in torch.arange(len(radius)).split(batch_size):
        x, y = oracle.images(images[part]).detach(), oracle.labels(labels[part])
        size = torch.from_numpy(radius)[part]
        wrong = torch.zeros(len(part), dtype=torch.bool, device=x.device)
        for draw in range(_DRAWS):
            noisy = threat.random_start(x.flatten(1), size, seed=seed + draw, ids=ids[part.numpy()]).view_as(x)
            logits = oracle.logits(noisy)
            wrong |= robustly_misclassified(logits, margin(logits, y))
        broken += int(wrong.sum())
    if broken < max(_LEAST, _SHARE_NOISE * len(radius)):
        return None
    return Flag(
        Kind.BEATEN,
        f"random noise a tenth smaller than the distances found breaks {broken} of {len(radius)} samples: these "
        "distances are too large, as are likely the others; the model's gradients mislead",
    )
