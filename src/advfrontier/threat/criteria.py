"""What counts as a success: misclassified, taken for a class, beyond the k likeliest, or accepted.

Each criterion turns logits into a view of them in which success is plain misclassification: the
view's first column is what has to lose, the others are what may win. Margins and ratios of
untargeted attacks then work on the view; the cross-entropy has a smooth form for each criterion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

import torch
from torch import Tensor

from advfrontier.errors import FrontierError, whole_number
from advfrontier.threat.losses import LEAST_MARGIN, LOSSES, margin
from advfrontier.threat.names import UNTARGETED
from advfrontier.threat.thresholds import TINY

# The ratio is replaced by the cross-entropy of logits that are stretched so that the gap at the
# input is this at least. On linear models, in ℓ∞, 4k ends 0.2 % above the optimum of targets with
# it, and 0.9 % with the ratio of the view.
_SHARP = 40.0


class Criterion(ABC):
    """A rule for success that is not plain misclassification."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name that records keep; equal names stand for equal rules."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Return the rule as a reader sees it, such as `taken for class 3`."""

    @abstractmethod
    def check(self, labels: Tensor, goals: Tensor | None, classes: int) -> None:
        """Raise if the rule makes no sense for these labels, goals and number of classes.

        Args:
            labels: (n,), the true classes.
            goals: (n,), the classes to reach; None for rules without any.
            classes: Number of classes of the model.
        """

    def aim(self, labels: Tensor, first: Tensor) -> Aim:
        """Return the aim of samples that are attacked.

        Args:
            labels: (n,), the true classes.
            first: (n,), the first of the classes that `ordered` put in order.
        """
        del first
        return Aim(self, labels)

    def ordered(self, wrong: Tensor, goals: Tensor | None) -> Tensor:
        """Return scores of the wrong classes: runs towards a class take the largest first.

        Args:
            wrong: (n, classes), the logits; -inf for the label.
            goals: (n,), the classes to reach; None for rules without any.
        """
        del goals
        return wrong

    @abstractmethod
    def view(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return (n, m): what has to lose in column 0, what may win in the others.

        Args:
            logits: (n, classes).
            labels: (n,), the true classes.
            goals: (n,), a class that must be among those that win; None to leave that open.
        """

    @abstractmethod
    def smooth(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return a smooth stand-in for the gap, the cross-entropy of the rule: (n,).

        Where several conditions must hold at once, the gap's gradient sees the worst of them alone,
        and a search swings between two. The smooth one weighs them. Arguments as in `view`.

        Args:
            logits: (n, classes).
            labels: (n,), the true classes.
            goals: (n,), a class that must be among those that win; None to leave that open.
        """


@dataclass(frozen=True, eq=False)
class Targeted(Criterion):
    """Success: the model takes the sample for the class that was chosen for it.

    Args:
        classes: One class for all samples, or one per sample. With one class for all, samples of
            this class are left out.
        every: Number of classes of the model, in place of `classes`: each sample is attacked
            towards each of the other classes, as a sample of its own.
    """

    classes: int | Tensor | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        if (self.classes is None) == (self.every is None):
            raise FrontierError(
                "Targeted takes either classes or every: expected Targeted(3), Targeted(tensor of "
                "one class per sample) or Targeted(every=10)"
            )
        if self.every is not None:
            whole_number(self.every, "every", least=2)
        elif isinstance(self.classes, Tensor):
            if self.classes.ndim != 1 or self.classes.is_floating_point():
                raise FrontierError(
                    f"targets have the shape {tuple(self.classes.shape)} and type "
                    f"{self.classes.dtype}: expected one whole number per sample"
                )
        else:
            whole_number(self.classes, "the target", least=0)

    @property
    def name(self) -> str:
        """Return the targets, or a digest of them."""
        if self.every is not None:
            return f"targeted-each-{self.every}"
        if isinstance(self.classes, Tensor):
            numbers = self.classes.long().cpu().contiguous().numpy().tobytes()
            return f"targeted-per-sample-{blake2b(numbers, digest_size=8).hexdigest()}"
        return f"targeted-{self.classes}"

    @property
    def words(self) -> str:
        """Return the rule as a reader sees it."""
        if self.every is not None:
            return "taken for a chosen class, each of the others in turn"
        if isinstance(self.classes, Tensor):
            return "taken for the class chosen for the sample"
        return f"taken for class {self.classes}"

    def rows(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return which samples are attacked, towards which classes: (m,) each.

        Args:
            labels: (n,), the true classes.
        """
        places = torch.arange(len(labels))
        if isinstance(self.classes, Tensor):
            if len(self.classes) != len(labels):
                raise FrontierError(
                    f"{len(self.classes)} targets for {len(labels)} samples: expected one each"
                )
            return places, self.classes.long().cpu()
        if self.every is None:
            kept = torch.ne(labels, int(self.classes or 0)).nonzero().squeeze(1)
            return kept, torch.full_like(kept, int(self.classes or 0))
        goals = torch.arange(self.every).repeat(len(labels))
        rows = places.repeat_interleave(self.every)
        other = goals != labels[rows]
        return rows[other], goals[other]

    def check(self, labels: Tensor, goals: Tensor | None, classes: int) -> None:
        """Raise if a target is no class of the model, or the sample's own class."""
        if goals is None:
            raise FrontierError(f"no targets for {self.name}: expected one class per sample")
        if not 0 <= int(goals.min()) <= int(goals.max()) < classes:
            raise FrontierError(
                f"targets from {int(goals.min())} to {int(goals.max())} with {classes} classes: "
                f"expected classes from 0 to {classes - 1}"
            )
        if own := int((goals == labels).sum()):
            raise FrontierError(
                f"{own} samples have their own class as target: expected another class, or leave "
                "these samples out"
            )

    def aim(self, labels: Tensor, first: Tensor) -> Aim:
        """Return the aim at the targets, which `ordered` has put first."""
        return Aim(self, labels, first)

    def ordered(self, wrong: Tensor, goals: Tensor | None) -> Tensor:
        """Return the scores with the target first."""
        assert goals is not None  # noqa: S101  # `check` has seen them
        return wrong.scatter(1, goals[:, None], torch.inf)

    def view(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the best other logit and the target's."""
        del labels
        assert goals is not None  # noqa: S101  # `check` has seen them
        others = logits.scatter(1, goals[:, None], -torch.inf).amax(1)
        return torch.stack([others, logits.gather(1, goals[:, None]).squeeze(1)], dim=1)

    def smooth(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return minus the log-odds of the target."""
        del labels
        assert goals is not None  # noqa: S101  # `check` has seen them
        others = logits.scatter(1, goals[:, None], -torch.inf).logsumexp(1)
        return others - logits.gather(1, goals[:, None]).squeeze(1)


@dataclass(frozen=True)
class TopK(Criterion):
    """Success: the label is not among the k likeliest classes.

    Args:
        k: Number of classes, at least 1.
    """

    k: int

    def __post_init__(self) -> None:
        whole_number(self.k, "k", least=1)

    @property
    def name(self) -> str:
        """Return `top-K`."""
        return f"top-{self.k}"

    @property
    def words(self) -> str:
        """Return the rule as a reader sees it."""
        return f"label not among the {self.k} likeliest classes"

    def check(self, labels: Tensor, goals: Tensor | None, classes: int) -> None:
        """Raise if all classes are among the k likeliest."""
        del labels, goals
        if self.k >= classes:
            raise FrontierError(
                f"with {classes} classes the label is always among the {self.k} likeliest: "
                f"expected a k of at most {classes - 1}"
            )

    def view(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the label's logit, and the others without their k − 1 largest.

        With goals, the label's and the least of the k that have to be above it.
        """
        own = logits.gather(1, labels[:, None])
        if goals is not None:
            return torch.cat([own, self._above(logits, labels, goals).amin(1, keepdim=True)], dim=1)
        others = logits.scatter(1, labels[:, None], -torch.inf)
        ranked = others.sort(dim=1, descending=True, stable=True).values
        return torch.cat([own, ranked[:, self.k - 1 : -1]], dim=1)

    def _above(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the k logits that are nearest to being above the label's: (n, k)."""
        others = logits.scatter(1, labels[:, None], -torch.inf)
        if goals is None:
            return others.topk(self.k, dim=1).values
        chosen = logits.gather(1, goals[:, None])
        rest = others.scatter(1, goals[:, None], -torch.inf)
        return torch.cat([chosen, rest.topk(self.k - 1, dim=1).values], dim=1)

    def smooth(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the smooth maximum of how far the label is above each of the k largest others."""
        above = self._above(logits, labels, goals)
        return logits.gather(1, labels[:, None]).squeeze(1) + above.neg().logsumexp(1)


@dataclass(frozen=True)
class Rejecting(Criterion):
    """Success: misclassified and accepted, by a model one of whose classes means "reject".

    Models that answer with a score beside their logits get such a class from
    `advfrontier.threat.rejection`.

    Args:
        reject: The class that means "reject"; -1 for the last one.
    """

    reject: int = -1

    def __post_init__(self) -> None:
        whole_number(self.reject, "the class that rejects", least=-1)

    @property
    def name(self) -> str:
        """Return `reject-CLASS`."""
        return "reject-last" if self.reject < 0 else f"reject-{self.reject}"

    @property
    def words(self) -> str:
        """Return the rule as a reader sees it."""
        return "misclassified and not rejected"

    def check(self, labels: Tensor, goals: Tensor | None, classes: int) -> None:
        """Raise if there is no such class, or samples are labelled with it."""
        del goals
        if self.reject >= classes or classes < 3:
            raise FrontierError(
                f"the class that rejects is {self.reject}, with {classes} classes: expected one of "
                "them, and two others at least"
            )
        if own := int((labels == self.reject % classes).sum()):
            raise FrontierError(
                f"{own} samples are labelled with the class that rejects: expected labels of the "
                "other classes"
            )

    def ordered(self, wrong: Tensor, goals: Tensor | None) -> Tensor:
        """Return the scores with the rejecting class last."""
        del goals
        scores = wrong.clone()
        lowest = torch.finfo(wrong.dtype).min  # the label's is -inf
        scores[:, self.reject % wrong.shape[1]] = lowest
        return scores

    def view(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the larger of the label's logit and the rejecting one, and all others."""
        place = self.reject % logits.shape[1]
        own = torch.maximum(logits.gather(1, labels[:, None]).squeeze(1), logits[:, place])
        if goals is not None:
            return torch.stack([own, logits.gather(1, goals[:, None]).squeeze(1)], dim=1)
        lost = torch.full_like(labels, place)
        others = logits.scatter(1, torch.stack([labels, lost], dim=1), -torch.inf)
        ranked = others.sort(dim=1, descending=True, stable=True).values
        return torch.cat([own[:, None], ranked[:, :-2]], dim=1)

    def smooth(self, logits: Tensor, labels: Tensor, goals: Tensor | None) -> Tensor:
        """Return the log-odds of the label and the rejecting class together."""
        lost = torch.stack([labels, torch.full_like(labels, self.reject % logits.shape[1])], dim=1)
        if goals is not None:
            return logits.gather(1, lost).logsumexp(1) - logits.gather(1, goals[:, None]).squeeze(1)
        others = logits.scatter(1, lost, -torch.inf).logsumexp(1)
        return logits.gather(1, lost).logsumexp(1) - others


@dataclass(frozen=True, eq=False)
class Aim:
    """A criterion for n samples.

    Args:
        criterion: Rule that decides what counts as a success.
        labels: (n,), the true classes.
        goals: (n,), the classes to reach, or that must be among those that win; None for neither.
    """

    criterion: Criterion
    labels: Tensor
    goals: Tensor | None = None

    def gap(self, logits: Tensor) -> Tensor:
        """Return what is negative exactly where the criterion holds: (n,).

        Args:
            logits: (n, classes).
        """
        return self.loss("margin", logits)

    def loss(self, name: str, logits: Tensor, input_margin: Tensor | None = None) -> Tensor:
        """Return a loss of `threat.losses` on the view: (n,).

        Args:
            name: Name of the loss.
            logits: (n, classes).
            input_margin: (n,), the gap at the unperturbed inputs.
        """
        if name in {"ce", "plain_ce", "dlr"} and input_margin is not None:
            least = _SHARP if name == "dlr" else LEAST_MARGIN
            stretch = (least / input_margin.clamp(min=TINY)).clamp_(min=1)
            logits = logits * stretch[:, None]
        if name in {"ce", "plain_ce", "dlr"}:
            return self.criterion.smooth(logits, self.labels, self.goals)
        seen = self.criterion.view(logits, self.labels, self.goals)
        first = torch.zeros_like(self.labels)
        return LOSSES[name](seen, first, None, input_margin)

    def select(self, rows: Tensor) -> Self:
        """Return the aim of these samples only.

        Args:
            rows: Indices of samples, int64 (k,).
        """
        goals = None if self.goals is None else self.goals.index_select(0, rows)
        return replace(self, labels=self.labels.index_select(0, rows), goals=goals)


def gap_of(aim: Aim | None, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the gap of an aim, or without one the margin: negative exactly at a success.

    Args:
        aim: Criterion with its labels; None for misclassification.
        logits: (n, classes).
        labels: True classes, int64 (n,).
    """
    return margin(logits, labels) if aim is None else aim.gap(logits)


def read_criterion(name: str) -> Criterion | None:
    """Return the criterion that a record's name stands for; None for `untargeted`.

    Targets per sample are known by a digest alone: the record holds them beside the logits.

    Args:
        name: Name in a record, such as `untargeted` or `top-5`.
    """
    if name == UNTARGETED:
        return None
    kind, _, rest = name.partition("-")
    if kind == "top" and rest.isdecimal():
        return TopK(int(rest))
    if kind == "reject" and (rest == "last" or rest.isdecimal()):
        return Rejecting(-1 if rest == "last" else int(rest))
    if kind == "targeted" and rest.isdecimal():
        return Targeted(int(rest))
    if rest.startswith("each-") and rest.removeprefix("each-").isdecimal():
        return Targeted(every=int(rest.removeprefix("each-")))
    if kind == "targeted" and rest.startswith("per-sample-"):
        return StoredTargets(torch.zeros(0, dtype=torch.long), stored=name)
    raise FrontierError(
        f"unknown criterion {name!r}: expected {UNTARGETED}, targeted-3, targeted-each-10, top-5 "
        "or reject-last"
    )


@dataclass(frozen=True, eq=False)
class StoredTargets(Targeted):
    """Targets per sample of a record, which are in its clean pass.

    Args:
        stored: Name of the criterion in the record.
    """

    stored: str = ""

    @property
    def name(self) -> str:
        """Return the name in the record."""
        return self.stored
