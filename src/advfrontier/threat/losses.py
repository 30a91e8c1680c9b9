"""Losses on logits, each of which falls as a sample comes closer to being misclassified.

Every loss takes the same arguments and returns one value per sample, (n,):

- logits: (n, classes), of two classes or more.
- labels: (n,), the classes to leave.
- targets: (n,), the classes to reach; None for an untargeted run.
- input_margin: (n,), the margin at the unperturbed inputs, which tells some losses the scale of the
  logits; without it they are as published.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from advfrontier.threat.thresholds import TINY

Loss = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]

LEAST_MARGIN = 3.0  # the cross-entropy scales logits so that the input's margin is this at least
DLR_TOLERANCE = 1e-4  # how far beyond the boundary ALMA aims: of the ratio, or of the margin


def margin(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Return the label's logit minus the best other one.

    With targets, return the best other logit minus the target's.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
    """
    if targets is None:
        return _logit(logits, labels) - _best_other(logits, labels)
    return _best_other(logits, targets) - _logit(logits, targets)


def plain_ce(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Return minus the cross-entropy of the label, or the cross-entropy of the target.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
    """
    if targets is None:
        return -cross_entropy(logits, labels, reduction="none")
    return cross_entropy(logits, targets, reduction="none")


def ce(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor | None = None,
    input_margin: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy as log-odds of scaled logits.

    Log-odds order points as the cross-entropy does and have its gradient's direction, but never
    saturate. Logits are scaled for each sample so that the input's margin is LEAST_MARGIN at least:
    the gradient is a mean over all rivals, weighted by their probabilities, and with flat logits it
    would point at none of them.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
        input_margin: Margin at the inputs, (n,), which scales the loss.
    """
    if input_margin is not None:
        logits = logits * (LEAST_MARGIN / input_margin.clamp(min=TINY)).clamp_(min=1)[:, None]
    classes = labels if targets is None else targets
    odds = _logit(logits, classes) - logits.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
    return odds if targets is None else -odds


def difference(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Return the margin; with targets, the label's logit minus the target's.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
    """
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
    """Return the difference of logits ratio, which does not depend on the logits' scale.

    Croce and Hein: Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
    Parameter-free Attacks, ICML 2020, arXiv:2003.01690.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
        input_margin: Margin at the inputs, (n,), which scales the loss.
    """
    return difference(logits, labels, targets) / _spread(
        logits, input_margin, targeted=targets is not None
    )


def dlr_plus(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor | None = None,
    input_margin: Tensor | None = None,
) -> Tensor:
    """Return ALMA's variant of the ratio: the margin over the same spread, plus a tolerance.

    Rony, Granger, Pedersoli and Ben Ayed: Augmented Lagrangian Adversarial Attacks, ICCV 2021,
    arXiv:2011.11857.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
        input_margin: Margin at the inputs, (n,), which scales the loss.
    """
    return (
        margin(logits, labels, targets)
        / _spread(logits, input_margin, targeted=targets is not None)
        + DLR_TOLERANCE
    )


def plain_dlr(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Return the published ratio; with too few classes for it, the difference of logits.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
    """
    return difference(logits, labels, targets) / _spread(logits, None, targeted=targets is not None)


def plain_dlr_plus(
    logits: Tensor, labels: Tensor, targets: Tensor | None = None, _: Tensor | None = None
) -> Tensor:
    """Return ALMA's ratio as published: tolerance added to the margin, 1e-8 to the spread.

    Args:
        logits: Logits, (n, classes).
        labels: True classes, int64 (n,).
        targets: Target classes, int64 (n,); None in an untargeted run.
    """
    spread = _spread(logits, None, targeted=targets is not None, least=1e-8)
    return (margin(logits, labels, targets) + DLR_TOLERANCE) / spread


def _logit(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the logit of each row's class."""
    return logits.gather(1, classes[:, None]).squeeze(1)


def _best_other(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the largest logit of another class."""
    return logits.scatter(1, classes[:, None], -torch.inf).amax(1)


def _spread(
    logits: Tensor, input_margin: Tensor | None, *, targeted: bool, least: float = 1e-12
) -> Tensor | float:
    """Return z₍₁₎ − z₍₃₎; with targets, z₍₁₎ − ½(z₍₃₎ + z₍₄₎).

    Two classes have no third logit. With targets and three classes, the third may be the target
    itself, and the ratio a constant. There the margin at the input takes its place, if it is known.
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
