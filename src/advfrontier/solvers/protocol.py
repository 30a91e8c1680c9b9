"""What a solver is, and the pieces several of them share.

A solver never sees the model. The engine evaluates `state.point`, keeps the best misclassified point, and hands the
solver an `Answer`; the solver moves `state.point`. Everything a run needs to go on later is in its state, a dataclass of
tensors with one row per sample; schedules are computed from the step's index, never accumulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from advfrontier.threat.norms import TINY
from advfrontier.threat.random import normal

if TYPE_CHECKING:
    import numpy as np
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
    starts: Tensor  # (n, d) in [0, 1]: the inputs themselves, or a random point of a restart
    boundary: Tensor  # (n,): first-order estimate of the distance
    largest: Tensor  # (n,): the largest distance the box allows
    shape: tuple[int, ...]  # of one sample, before flattening
    seed: int
    ids: NDArray[np.uint64]


@dataclass(frozen=True)
class Answer:
    """What the engine found at `state.point`. The gradient belongs to the solver, which may overwrite it."""

    logits: Tensor
    loss: Tensor  # the loss that was asked for; the margin if none was
    gradient: Tensor  # of that loss; empty for a black-box solver
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


class State(Protocol):
    """A dataclass of tensors, one row per sample."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    point: Tensor  # what to evaluate next, always inside the box


class Solver(Protocol):
    """The contract. Hyper-parameters are the fields of a frozen dataclass."""

    facts: ClassVar[SolverFacts]

    def start(self, problem: Problem) -> Any:
        """The state before step 0."""

    def loss(self, i: int) -> str | None:
        """The loss to differentiate at step i, by its name in `threat.losses`; None for a black-box solver."""

    def step(self, problem: Problem, state: Any, i: int, answer: Answer) -> None:
        """Move `state` from step i to step i + 1."""


def cosine(first: float, last: float, i: int, steps: int) -> float:
    """Cosine annealing from `first` at step 0 to `last` at the horizon."""
    return last + (first - last) * (1 + math.cos(math.pi * i / steps)) / 2


def unit(gradient: Tensor) -> Tensor:
    """The gradient scaled to Euclidean length 1; (almost) zero rows stay where they are."""
    return gradient / torch.linalg.vector_norm(gradient, 2, dim=1, keepdim=True).clamp_(min=TINY)


def free(gradient: Tensor, point: Tensor) -> Tensor:
    """The gradient without the entries along which descent would leave the box, so that they take no share of a step."""
    blocked = torch.where(gradient > 0, point <= 0, point >= 1)
    return gradient.masked_fill_(blocked, 0)


def unit_or_random(problem: Problem, gradient: Tensor, i: int) -> Tensor:
    """The unit gradient, or a random direction of the sample's own where the gradient vanishes."""
    length = torch.linalg.vector_norm(gradient, 2, dim=1, keepdim=True)
    lost = length < TINY
    direction = gradient / length.clamp_(min=TINY)
    if lost.any():
        noise = torch.from_numpy(normal(problem.seed, problem.ids, f"direction {i}", gradient.shape[1])).to(gradient)
        direction = torch.where(lost, unit(noise), direction)
    return direction


@dataclass
class Adam:
    """Adam with moments per sample: torch.optim keeps one step count for all rows and cannot be cut or resumed by row."""

    first: Tensor
    second: Tensor

    @classmethod
    def like(cls, point: Tensor) -> Adam:
        """Moments of zero."""
        return cls(torch.zeros_like(point), torch.zeros_like(point))

    def direction(self, gradient: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Take in the gradient of step i; return the step for learning rate 1 and its denominator √v̂ + 1e-8."""
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (self.second / (1 - 0.999 ** (i + 1))).sqrt_().add_(1e-8)
        return self.first / (1 - 0.9 ** (i + 1)) / scale, scale
