"""Losses on logits. Every one of them falls as a sample comes closer to being misclassified.

All take (logits, labels, targets, input's margin) and return one value per sample. With targets the loss pulls towards
that class instead of away from the label. The margin at the unperturbed input tells the scale of the logits to losses
that depend on it; without it they are the published ones. All are defined for any number of classes from two on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from advfrontier.threat.thresholds import TINY

Loss = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]

LEAST_MARGIN = 3.0  # to which the cross-entropy stretches the input's margin where it is smaller
DLR_TOLERANCE = 1e-4  # how far beyond the boundary ALMA aims: over the spread, or as published in units of the logits


def margin(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Label's logit minus the best other one; with targets, the best other logit minus the target's."""
    if targets is None:
        return _logit(logits, labels) - _best_other(logits, labels)
    return _best_other(logits, targets) - _logit(logits, targets)


def plain_ce(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Minus the cross-entropy of the label; with targets, the cross-entropy of the target."""
    if targets is None:
        return -cross_entropy(logits, labels, reduction="none")
    return cross_entropy(logits, targets, reduction="none")


def ce(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor | None = None,
    input_margin: Tensor | None = None,
) -> Tensor:
    """The cross-entropy as log-odds, of logits stretched for each sample so that the input's margin is LEAST_MARGIN.

    Log-odds order points as the cross-entropy does and have its gradient's direction, but never saturate. The gradient
    is a mean over all rivals, weighted by their probabilities: with flat logits it would point at none of them.
    """
    if input_margin is not None:
        logits = logits * (LEAST_MARGIN / input_margin.clamp(min=TINY)).clamp_(min=1)[:, None]
    classes = labels if targets is None else targets
    odds = _logit(logits, classes) - logits.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
    return odds if targets is None else -odds


def difference(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """The margin; with targets, label's minus target's logit, whatever the others are."""
    return (
        margin(logits, labels)
        if targets is None
        else _logit(logits, labels) - _logit(logits, targets)
    )


def dlr(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor | None = None,
    input_margin: Tensor | None = None,
) -> Tensor:
    """Difference of logits ratio: the margin (with targets: label minus target), free of the logits' scale."""
    return difference(logits, labels, targets) / _spread(
        logits, input_margin, targeted=targets is not None
    )


def dlr_plus(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor | None = None,
    input_margin: Tensor | None = None,
) -> Tensor:
    """ALMA's variant: the margin over the same spread, plus a small tolerance."""
    return (
        margin(logits, labels, targets)
        / _spread(logits, input_margin, targeted=targets is not None)
        + DLR_TOLERANCE
    )


def plain_dlr(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """The published ratio; with fewer classes than it is defined for, the bare difference of logits."""
    return difference(logits, labels, targets) / _spread(logits, None, targeted=targets is not None)


def plain_dlr_plus(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """ALMA's variant as published: the tolerance is added to the margin, 1e-8 to the spread."""
    spread = _spread(logits, None, targeted=targets is not None, least=1e-8)
    return (margin(logits, labels, targets) + DLR_TOLERANCE) / spread


def _logit(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).squeeze(1)


def _best_other(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.scatter(1, classes[:, None], -torch.inf).amax(1)


def _spread(
    logits: Tensor, input_margin: Tensor | None, *, targeted: bool, least: float = 1e-12
) -> Tensor | float:
    """z₍₁₎ − z₍₃₎, or with targets z₍₁₎ − ½(z₍₃₎ + z₍₄₎).

    Two classes have no third logit. With targets and three classes the third may be the target itself, and the ratio a
    constant. There the input's margin is the measure, as far as it is known.
    """
    classes = logits.shape[1]
    if classes < (4 if targeted else 3):
        return 1.0 if input_margin is None else input_margin.clamp(min=TINY)
    ranked = logits.topk(min(classes, 4), dim=1).values
    lower = (ranked[:, 2] + ranked[:, 3]) / 2 if targeted else ranked[:, 2]
    return ranked[:, 0] - lower + least


_ALL: tuple[Loss, ...] = (
    margin,
    difference,
    ce,
    plain_ce,
    dlr,
    plain_dlr,
    dlr_plus,
    plain_dlr_plus,
)
LOSSES: dict[str, Loss] = {loss.__name__: loss for loss in _ALL}
