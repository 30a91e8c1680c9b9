"""Losses on logits. Every one of them falls as a sample comes closer to being misclassified.

All take (logits, labels, targets) and return one value per sample; with targets the loss pulls towards that class
instead of away from the label. They are defined for any number of classes from two on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]

DLR_TOLERANCE = 1e-4  # how far beyond the boundary ALMA aims


def margin(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Label's logit minus the best other one; with targets, the best other logit minus the target's."""
    if targets is None:
        return _logit(logits, labels) - _best_other(logits, labels)
    return _best_other(logits, targets) - _logit(logits, targets)


def ce(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Minus the cross-entropy of the label; with targets, the cross-entropy of the target."""
    if targets is None:
        return -cross_entropy(logits, labels, reduction="none")
    return cross_entropy(logits, targets, reduction="none")


def dlr(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Difference of logits ratio: the margin (with targets: label minus target), free of the logits' scale."""
    difference = margin(logits, labels) if targets is None else _logit(logits, labels) - _logit(logits, targets)
    return difference / _spread(logits, targeted=targets is not None)


def dlr_plus(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """ALMA's variant: the margin plus a small tolerance, over the same spread."""
    return (margin(logits, labels, targets) + DLR_TOLERANCE) / _spread(logits, targeted=targets is not None)


def _logit(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).squeeze(1)


def _best_other(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.scatter(1, classes[:, None], -torch.inf).amax(1)


def _spread(logits: Tensor, *, targeted: bool) -> Tensor | float:
    """z₍₁₎ − z₍₃₎, or with targets z₍₁₎ − ½(z₍₃₎ + z₍₄₎), as far as there are that many classes; 1 for two classes."""
    classes = logits.shape[1]
    if classes == 2:
        return 1.0
    ranked = logits.topk(min(classes, 4), dim=1).values
    if targeted and classes >= 4:
        return ranked[:, 0] - (ranked[:, 2] + ranked[:, 3]) / 2 + 1e-12
    return ranked[:, 0] - ranked[:, 2] + 1e-12


LOSSES: dict[str, Loss] = {"margin": margin, "ce": ce, "dlr": dlr, "dlr_plus": dlr_plus}
