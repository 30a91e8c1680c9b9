"""What results say about themselves: signs that labels are wrong, or that gradient attacks were led astray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import bdtrc

from advfrontier.engine.expectation import clearly_misclassified
from advfrontier.flags import Flag, Kind
from advfrontier.threat.norms import make_norm
from advfrontier.threat.random import Draws, sample_keys

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

    from advfrontier.engine.oracle import Oracle

# Clean accuracy: 0 is told from so many samples on, accuracy that chance explains from so many.
_NONE_RIGHT, _NEAR_CHANCE = 5, 20
_CHANCE = 0.05  # of being that good by guessing

# A point is clearly nearer than another at so much of its distance, and that is no accident on at least two samples
# and such a share of those attacked. Measured in ℓ∞ with square_min at 1000 queries against the best of four gradient
# runs: on eleven honest nets no sample is at 0.9 of their distance if they have 500 queries each, and up to 8 % if they
# have 100; with shattered gradients 90 to 100 % are. A single gradient run can be beaten on an honest net too, and then
# its distances are too large all the same. Noise breaks no sample of honest nets after 400 queries of one run, but for
# ℓ0 (up to 8 %); after 100 queries more, where the run is far from its end.
_NEARER = 0.9
_LEAST = 2
_SHARE_BEATEN, _SHARE_NOISE = 0.2, 0.1
_DRAWS = 4


def accuracy_flag(correct: Tensor, classes: int) -> Flag | None:
    """A flag if so few clean samples are classified correctly that the labels or images may not be the model's."""
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
        f"{found} among {classes} classes: look at the labels and their order, the order of channels (RGB or BGR), and "
        "the normalisation, which belongs inside the model",
    )


def beaten(gradient: ArrayLike, black_box: ArrayLike, *, norm: str) -> Flag | None:
    """A flag if runs without gradients are clearly nearer than those with them on a clear share of the samples.

    Both are the best distance per sample, of all runs of their kind: 0 for samples that were not attacked, inf for
    those never broken. In ℓ0 one feature is no clear difference: on an honest net a race finds a fifth of the samples
    that much nearer without gradients.
    """
    with_them, without = (
        np.asarray(gradient, dtype=np.float64),
        np.asarray(black_box, dtype=np.float64),
    )
    attacked = (with_them > 0) & (without > 0)
    least = 1 if make_norm(norm, ()).counts else 0
    nearer = attacked & (without < _NEARER * with_them) & (without < with_them - least)
    if nearer.sum() < max(_LEAST, _SHARE_BEATEN * attacked.sum()):
        return None
    return Flag(
        Kind.BEATEN,
        f"attacks without gradients are nearer than those with them on {nearer.sum()} of {attacked.sum()} samples: "
        "distances may be too large; the model's gradients mislead, or more gradient runs are needed",
    )


@torch.no_grad()
def noise_check(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    distances: ArrayLike,
    *,
    norm: str,
    seed: int,
    batch_size: int = 100,
) -> Flag | None:
    """A flag if random noise, smaller by a tenth than the distances found, breaks a clear share of these samples.

    A single sample that noise breaks proves its distance too large; for samples never broken the noise is as large as
    the box allows. It takes 4 forward passes for every sample that was attacked, charged to verification.
    """
    oracle.purpose = "verification"
    threat = make_norm(norm, tuple(images.shape[1:]))
    found = torch.from_numpy(np.asarray(distances, dtype=np.float64))
    attacked = (found > 0).nonzero().squeeze(1)
    broken = 0
    for rows in torch.split(attacked, batch_size) if len(attacked) else ():
        x, y = oracle.images(images[rows]).detach(), oracle.labels(labels[rows])
        flat = x.flatten(1)
        # Other draws for every sample: which does not matter.
        keys = sample_keys(rows.numpy().astype(np.uint64)).to(x.device)
        radius = torch.minimum(_NEARER * found[rows].to(flat), threat.largest(flat))
        if threat.counts:
            radius = radius.floor()
        wrong = torch.zeros(len(rows), dtype=torch.bool, device=x.device)
        for draw in range(_DRAWS):
            noisy = threat.random_start(flat, radius, Draws(seed + draw, keys)).view_as(x)
            wrong |= clearly_misclassified(oracle, noisy, y, "noise")
        broken += int(wrong.sum())
    if broken < max(_LEAST, _SHARE_NOISE * len(attacked)):
        return None
    return Flag(
        Kind.BEATEN,
        f"random noise a tenth smaller than the distances found breaks {broken} of {len(attacked)} samples: distances "
        "are too large; the model's gradients mislead, or the attacks need more queries",
    )
