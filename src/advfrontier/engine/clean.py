"""Setup: one clean forward and backward pass per sample, shared by all runs.

It tells which samples are classified correctly, the wrong classes that are likeliest or, of many,
nearest, and roughly how far the boundary is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.checks import check_finite, check_labels
from advfrontier.engine.expectation import ask, clearly_misclassified, mean
from advfrontier.engine.margins import margin_to_go
from advfrontier.pool import TARGETS
from advfrontier.threat.criteria import Aim, gap_of
from advfrontier.threat.norms import TINY
from advfrontier.threat.random import sample_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.criteria import Criterion
    from advfrontier.threat.norms import Norm

_CANDIDATES = 20  # likeliest wrong classes of which the nearest are looked for


@dataclass(frozen=True)
class CleanPass:
    """Results of the clean pass, per sample, on the CPU.

    Args:
        labels: True classes, int64 (n,).
        ids: (n,) uint64, hashes of the images' contents.
        logits: (n, classes).
        correct: (n,) bool, classified correctly.
        targets: (n, up to 9) int64, wrong classes, the likeliest or of many the nearest first.
        boundary: (n,), first-order estimate of the distance to the boundary.
    """

    labels: Tensor
    ids: NDArray[np.uint64]
    logits: Tensor
    correct: Tensor
    targets: Tensor
    boundary: Tensor

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return int(self.logits.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Return hexadecimal ids, which identify samples across records; copies get a number."""
        seen: Counter[int] = Counter()
        names = []
        for key in self.ids.tolist():
            seen[key] += 1
            names.append(f"{key:016x}" if seen[key] == 1 else f"{key:016x}-{seen[key]}")
        return tuple(names)

    def rows(self, rows: Tensor) -> CleanPass:
        """Return the clean pass of these samples only.

        Args:
            rows: Indices of samples, int64 (k,), or a mask (n,).
        """
        columns = (self.logits, self.correct, self.targets, self.boundary)
        return CleanPass(
            self.labels[rows], self.ids[rows.numpy()], *(column[rows] for column in columns)
        )

    def attacked(self, first: int, count: int) -> Tensor:
        """Return the rows of a shard that are classified correctly, which are attacked.

        Args:
            first: First row of the shard.
            count: Number of its rows.
        """
        return self.correct[first : first + count].nonzero().squeeze(1) + first

    @classmethod
    def join(cls, parts: Sequence[CleanPass]) -> CleanPass:
        """Return the samples of all parts, one after the other.

        Args:
            parts: Clean passes of consecutive samples.
        """
        columns = zip(
            *((p.labels, p.logits, p.correct, p.targets, p.boundary) for p in parts), strict=True
        )
        labels, *others = (torch.cat(column) for column in columns)
        return cls(labels, np.concatenate([part.ids for part in parts]), *others)


def clean_pass(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    *,
    batch_size: int,
    gradients: bool = True,
    ids: NDArray[np.uint64] | None = None,
    first: int = 0,
    criterion: Criterion | None = None,
    goals: Tensor | None = None,
) -> CleanPass:
    """Evaluate every clean sample once: 2 queries each, charged to setup; with EOT votes too.

    With more than TARGETS + 1 classes, each of the likeliest wrong ones takes another 2 queries.

    Without `gradients` (the model has none, and only black-box runs follow) it is 1 query, and the
    boundary is unknown: taken for as far as the box goes. `first` is what messages call the first
    sample. In a domain, which the norm's frame knows, boundaries are in the user's own units.

    Args:
        oracle: Model on its device; its passes are charged to setup.
        images: (n, …) in [0, 1], or in the domain.
        labels: True classes, int64 (n,).
        norm: Norm of the estimated distance to the boundary.
        batch_size: Samples per batch.
        gradients: Whether a backward pass estimates the distance to the boundary.
        ids: (n,) uint64, hashes of the images' contents; computed if they are not given.
        first: Number of the first sample, for messages.
        criterion: Criterion of success; None for misclassification.
        goals: (n,), the classes to reach; None if the attack is untargeted.
    """
    oracle.purpose = "setup"
    parts = []
    for start in range(0, len(images), batch_size):
        rows = slice(start, start + batch_size)
        x = oracle.images(images[rows]).detach().requires_grad_(gradients)
        y = oracle.labels(labels[rows])
        aim = None
        if criterion is not None:
            aim = Aim(criterion, y, None if goals is None else oracle.labels(goals[rows]))
        reply = ask(oracle, x, partial(_margin, labels=y, first=first + start, aim=aim))
        z, flat = mean(reply.passes), x.detach().flatten(1)
        if norm.frame is not None:
            flat = norm.frame.enter(flat)
        boundary = norm.largest(flat)
        if reply.gradient is not None:
            slope = reply.gradient.flatten(1).nan_to_num_(0, 0, 0)
            if norm.frame is not None:
                slope.mul_(norm.frame.stretch)
            boundary = norm.boundary(margin_to_go(z, y, aim=aim), slope, flat)
            # On logits that are all 0 it is nought, and a radius that begins there never grows.
            boundary = torch.where(boundary > TINY, boundary, 1e-6 * norm.largest(flat))
        if norm.frame is not None:
            boundary = boundary * norm.frame.unit
        correct = (
            z.argmax(1) == y
            if oracle.eot == 1
            else ~clearly_misclassified(oracle, x.detach(), y, "clean")
        )
        wrong = z.scatter(1, y[:, None], -torch.inf)
        if aim is not None:  # success is what the criterion says
            correct = aim.gap(z) >= 0
            wrong = aim.criterion.ordered(wrong, aim.goals)
        targets = wrong.topk(min(TARGETS, z.shape[1] - 1), dim=1).indices
        if gradients and aim is None and z.shape[1] > TARGETS + 1:
            targets = _nearest_classes(oracle, x, wrong, y, norm)
        parts.append(tuple(t.cpu() for t in (z, correct, targets, boundary)))
    ids = sample_ids(images.float().cpu().numpy()) if ids is None else ids
    return CleanPass(
        labels.long().cpu(), ids, *(torch.cat(column) for column in zip(*parts, strict=True))
    )


def _nearest_classes(
    oracle: Oracle, x: Tensor, wrong: Tensor, labels: Tensor, norm: Norm
) -> Tensor:
    """Return the wrong classes with the nearest linearised boundaries, in order: (n, TARGETS).

    Melamed, Yehudai and Shamir: MALT Powers Up Adversarial Attacks, NeurIPS 2024,
    arXiv:2407.02240, divide the difference of two logits by the length of its gradient. Classes
    that are equally near stay in the order of their logits.

    Args:
        oracle: Model on its device; its passes are charged to its purpose.
        x: (n, …), the inputs, which require gradients.
        wrong: (n, classes), the logits; -inf for the label.
        labels: (n,), the true classes.
        norm: Norm in which a boundary is near, in its own frame.
    """
    candidates = wrong.topk(min(_CANDIDATES, wrong.shape[1] - 1), dim=1).indices
    flat = x.detach().flatten(1)
    if norm.frame is not None:
        flat = norm.frame.enter(flat)
    distances = []
    for classes in candidates.unbind(1):
        reply = ask(oracle, x, partial(_difference, labels=labels, classes=classes))
        assert reply.gradient is not None  # noqa: S101  # the inputs require gradients
        slope = reply.gradient.flatten(1).nan_to_num_(0, 0, 0)
        if norm.frame is not None:
            slope.mul_(norm.frame.stretch)
        distances.append(norm.boundary(reply.loss, slope, flat))
    order = torch.stack(distances, dim=1).sort(dim=1, stable=True).indices
    return candidates.gather(1, order[:, :TARGETS])


def _difference(logits: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
    """Return the label's logit minus that of another class: (n,)."""
    pair = logits.gather(1, torch.stack([labels, classes], dim=1))
    return pair[:, 0] - pair[:, 1]


def _margin(logits: Tensor, labels: Tensor, first: int, aim: Aim | None = None) -> Tensor:
    """Validate labels and logits, then return the margins."""
    check_labels(labels, logits.shape[1])
    check_finite(logits, first=first)
    if aim is not None:
        aim.criterion.check(labels, aim.goals, logits.shape[1])
    return gap_of(aim, logits, labels)
