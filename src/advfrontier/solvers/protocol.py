"""What a solver is, and the pieces several of them share.

A solver never sees the model. The engine evaluates `state.point`, keeps the best misclassified point, and hands the
solver an `Answer`; the solver moves `state.point`. Everything a run needs to go on later is in its state, a dataclass
of tensors with one row per sample; schedules are computed from the step's index, never accumulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from advfrontier.threat.losses import LOSSES
from advfrontier.threat.norms import TINY, euclidean
from advfrontier.threat.random import normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.pool import SolverFacts
    from advfrontier.threat.norms import Norm


@dataclass(frozen=True)
class Problem:
    """What a run starts from. Rows are samples, flattened."""

    inputs: Tensor  # (n, d) in [0, 1]
    labels: Tensor  # (n,)
    targets: Tensor | None  # (n,), None for an untargeted run
    norm: Norm
    steps: int  # the horizon in steps: schedules end here, wherever the run is stopped
    starts: Tensor  # (n, d) in [0, 1]: the inputs themselves, a random point of a restart, or what is to be improved on
    margin: Tensor  # (n,): at the inputs; of a targeted run, towards its target
    boundary: Tensor  # (n,): first-order estimate of the distance
    largest: Tensor  # (n,): the largest distance the box allows
    shape: tuple[int, ...]  # of one sample, before flattening
    seeds: NDArray[np.int64]  # (n,): of the random numbers; rows of several restarts may share a batch
    ids: NDArray[np.uint64]
    polishes: bool = False  # whether the run improves on its starts, which are misclassified and near already

    def loss(self, name: str, logits: Tensor) -> Tensor:
        """The loss of each row, by its name in `threat.losses`."""
        return LOSSES[name](logits, self.labels, self.targets, self.margin)

    def select(self, rows: Tensor) -> Problem:
        """The problem of some samples."""
        on_host = rows.cpu().numpy()
        own: dict[str, Any] = {}
        for name, value in self._columns().items():
            own[name] = value.index_select(0, rows) if isinstance(value, Tensor) else value[on_host]
        return replace(self, **own)

    def join(self, others: Sequence[Problem]) -> Problem:
        """The rows of this problem and of others of its kind (norm, steps, with a target or without), in this order."""
        own: dict[str, Any] = {}
        for name, value in self._columns().items():
            parts = [value, *(getattr(other, name) for other in others)]
            own[name] = torch.cat(parts) if isinstance(value, Tensor) else np.concatenate(parts)
        return replace(self, **own)

    def _columns(self) -> dict[str, Any]:
        """What has one row per sample."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor | np.ndarray)}


@dataclass(frozen=True)
class Answer:
    """What the engine found at `state.point`. The gradient belongs to the solver, which may overwrite it."""

    logits: Tensor
    loss: Tensor  # the loss that was asked for; the margin if none was
    gradient: Tensor  # of that loss; empty for a black-box solver
    length: Tensor  # the gradient's Euclidean length, never below TINY
    margin: Tensor  # untargeted
    misclassified: Tensor  # by a margin that survives another batch layout
    distance: Tensor
    improved: Tensor  # misclassified, and nearer than any point before
    best_point: Tensor
    best_distance: Tensor  # inf before the first success

    @property
    def found(self) -> Tensor:
        """Which rows have had a success, now or earlier."""
        return self.best_distance < math.inf


class Solver(Protocol):
    """The contract. Hyper-parameters are the fields of a frozen dataclass."""

    facts: ClassVar[SolverFacts]

    def start(self, problem: Problem) -> Any:
        """The state before step 0: a dataclass of tensors, among them `point`, always inside the box."""

    def loss(self, i: int) -> str | None:
        """The loss to differentiate at step i, by its name in `threat.losses`; None for a black-box solver."""

    def step(self, problem: Problem, state: Any, i: int, answer: Answer) -> None:
        """Move `state` from step i to step i + 1."""


def cosine(first: float, last: float, i: int, steps: int) -> float:
    """Cosine annealing from `first` at step 0 to `last` at the horizon."""
    return last + (first - last) * (1 + math.cos(math.pi * i / steps)) / 2


def length(v: Tensor) -> Tensor:
    """Euclidean length of each row, never below TINY so that it can be divided by."""
    return euclidean(v).clamp_(min=TINY)


def unit(v: Tensor) -> Tensor:
    """Every row scaled to Euclidean length 1; (almost) zero rows stay where they are."""
    return v / length(v)[:, None]


def keep_rows(mask: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """Copy these rows of each pair's second tensor to its first; several times faster than indexing by a mask."""
    rows = mask.nonzero().squeeze(1)
    if len(rows):
        for kept, new in pairs:
            kept.index_copy_(0, rows, new.index_select(0, rows))


def random_where_lost(problem: Problem, answer: Answer, i: int) -> None:
    """Give samples whose gradient vanishes a random direction of their own instead, of length 1."""
    lost = answer.length <= TINY
    if lost.any():
        noise = torch.from_numpy(normal(problem.seeds, problem.ids, f"direction {i}", answer.gradient.shape[1]))
        answer.gradient[lost] = unit(noise.to(answer.gradient))[lost]
        answer.length[lost] = 1


def margin_found(answer: Answer) -> Tensor:
    """The margin, and inf where the model failed: a search must not take such a point for one on the boundary."""
    return torch.where(answer.logits.isfinite().all(1), answer.margin, torch.inf)


def adam(first: Tensor, second: Tensor, gradient: Tensor, i: int) -> tuple[Tensor, float]:
    """Take the gradient of step i into Adam's moments; return a denominator D and a factor: the step is factor·first/D.

    D is √v̂ + 1e-8 up to the factor 1/(1 − 0.999^{i+1})^{½}, which is left to `factor` to save passes over the data. The
    moments are part of a solver's state: torch.optim would keep them elsewhere, and could not be cut by row.
    """
    first.lerp_(gradient, 0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    bias = math.sqrt(1 - 0.999 ** (i + 1))
    return second.sqrt().add_(1e-8 * bias), bias / (1 - 0.9 ** (i + 1))
