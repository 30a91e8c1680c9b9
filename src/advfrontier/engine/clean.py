"""Setup: one clean forward and backward pass per sample, shared by all runs.

It tells which samples are classified correctly, the likeliest wrong classes, and roughly how far the boundary is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.pool import TARGETS
from advfrontier.threat.losses import margin

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.norms import Norm


@dataclass(frozen=True)
class CleanPass:
    """Per sample, on the CPU."""

    logits: Tensor
    correct: Tensor
    targets: Tensor  # (n, up to 9): wrong classes, likeliest first
    boundary: Tensor  # first-order estimate of the distance

    @property
    def classes(self) -> int:
        """How many classes the model tells apart."""
        return int(self.logits.shape[1])


def clean_pass(oracle: Oracle, images: Tensor, labels: Tensor, norm: Norm, *, batch_size: int) -> CleanPass:
    """Evaluate every clean sample once: 2 queries each, charged to setup."""
    oracle.purpose = "setup"
    parts = []
    for start in range(0, len(images), batch_size):
        rows = slice(start, start + batch_size)
        x = images[rows].to(oracle.device, oracle.dtype).requires_grad_()
        y = labels[rows].to(oracle.device)
        logits = oracle.logits(x)
        gap = margin(logits, y)
        gradient = oracle.gradient(gap, x).flatten(1).nan_to_num_(0, 0, 0)
        z = logits.detach()
        wrong = z.scatter(1, y[:, None], -torch.inf)
        targets = wrong.topk(min(TARGETS, z.shape[1] - 1), dim=1).indices
        boundary = norm.boundary(gap.detach(), gradient, x.detach().flatten(1))
        parts.append(tuple(t.cpu() for t in (z, z.argmax(1) == y, targets, boundary)))
    return CleanPass(*(torch.cat(column) for column in zip(*parts, strict=True)))
