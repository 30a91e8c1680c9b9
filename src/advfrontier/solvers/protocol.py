"""Contract between a solver and the engine, and the pieces that several solvers share.

A solver never sees the model. The engine evaluates `state.point`, keeps the best misclassified
point and hands the solver an `Answer`; the solver moves `state.point`. A run can be stopped after
any step and resumed, because everything that changes is in the state, a dataclass of tensors with
one row per sample. Schedules are functions of the step's index and are never accumulated.

Nothing here or in a solver's `step` reads a tensor on the host: a GPU runs a whole step without
waiting for Python.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from advfrontier.threat.losses import LOSSES
from advfrontier.threat.norms import TINY, euclidean
from advfrontier.threat.random import Draws

if TYPE_CHECKING:
    from advfrontier.threat.criteria import Aim
    from advfrontier.threat.norms import Norm

_ROLL = 7919  # features by which the shared random direction moves from step to step


@dataclass(frozen=True)
class Problem:
    """Everything a run starts from, for n samples of d features each.

    Args:
        inputs: (n, d), the unperturbed samples in the norm's box: [0, 1], or [0, top] in a domain.
        labels: (n,), their classes.
        targets: (n,), the classes to reach; None for an untargeted run.
        norm: The norm to minimise; it knows the shape and the box of a sample.
        steps: Number of steps of the whole run. Schedules end there, even if the run stops before.
        starts: (n, d) in the box: the inputs, a random point of a restart, or the point to refine.
            Only `start` finds them there; afterwards they are the inputs.
        margin: (n,), margin at the inputs; of a targeted run, the margin towards the target.
        boundary: (n,), first-order estimate of the distance to the boundary.
        largest: (n,), largest distance inside the box.
        shape: Shape of one sample before flattening.
        seed: Seed of the run's random numbers.
        keys: (n, 2) int32, identifies each sample to the random number generator.
        refines: Whether `starts` are misclassified points near the boundary, to be improved on.
        aim: Criterion of success, which margins and losses are of; None for misclassification.
    """

    inputs: Tensor
    labels: Tensor
    targets: Tensor | None
    norm: Norm
    steps: int
    starts: Tensor
    margin: Tensor
    boundary: Tensor
    largest: Tensor
    shape: tuple[int, ...]
    seed: int
    keys: Tensor
    refines: bool = False
    aim: Aim | None = None

    def loss(self, name: str, logits: Tensor) -> Tensor:
        """Return the loss of each row, by its name in `threat.losses`."""
        if self.aim is not None:
            return self.aim.loss(name, logits, self.margin)
        return LOSSES[name](logits, self.labels, self.targets, self.margin)

    def uniform(self, stream: str, count: int) -> Tensor:
        """Draw (n, count) numbers from the open interval (0, 1), equal on every device.

        Args:
            stream: Name of the random numbers; other streams are independent.
            count: Numbers per sample.
        """
        return Draws(self.seed, self.keys).uniform(stream, count).to(self.inputs.dtype)

    def normal(self, stream: str, count: int) -> Tensor:
        """Draw (n, count) standard normal numbers.

        Args:
            stream: Name of the random numbers; other streams are independent.
            count: Numbers per sample.
        """
        return Draws(self.seed, self.keys).normal(stream, count).to(self.inputs.dtype)

    def select(self, rows: Tensor) -> Problem:
        """Return the problem of these rows only.

        Args:
            rows: Indices of samples, int64 (k,), on the device.
        """
        parts: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                parts[name] = value.index_select(0, rows)
        if self.aim is not None:
            parts["aim"] = self.aim.select(rows)
        return replace(self, **parts)


@dataclass(frozen=True)
class Answer:
    """Answer of the engine at `state.point`, for n samples.

    Args:
        logits: (n, classes).
        loss: (n,), the loss that the solver asked for; the margin if it asked for none.
        gradient: (n, d), gradient of that loss, zero where it is not finite; (n, 0) for a
            black-box solver. The solver may overwrite it.
        length: (n,), Euclidean length of the gradient, at least TINY.
        margin: (n,), untargeted margin.
        misclassified: (n,) bool, by a margin that another batch layout cannot undo.
        distance: (n,), distance of the point from the input.
        improved: (n,) bool, misclassified and nearer than every point of this run before.
        best_point: (n, d), nearest misclassified point of this run so far.
        best_distance: (n,), its distance; inf before the first success.
    """

    logits: Tensor
    loss: Tensor
    gradient: Tensor
    length: Tensor
    margin: Tensor
    misclassified: Tensor
    distance: Tensor
    improved: Tensor
    best_point: Tensor
    best_distance: Tensor

    @property
    def found(self) -> Tensor:
        """Return which rows have had a success, now or before: (n,) bool."""
        return self.best_distance < math.inf


class Solver(Protocol):
    """Contract of a solver; hyper-parameters are the fields of a frozen dataclass."""

    def start(self, problem: Problem) -> Any:
        """Return the state before step 0: a dataclass of tensors with `point` inside the box.

        Args:
            problem: Samples, norm, starting points and number of steps.
        """

    def loss(self, i: int) -> str | None:
        """Return the loss to differentiate at step i; None for a black-box solver.

        Args:
            i: Index of the step, from 0.
        """

    def step(self, problem: Problem, state: Any, i: int, answer: Answer) -> None:
        """Move `state` from step i to step i + 1.

        Args:
            problem: Samples, norm, starting points and number of steps.
            state: State of step i, whose tensors may be replaced or changed in place.
            i: Index of the step, from 0.
            answer: Logits, loss, gradient and distance at `state.point`, and the best point so far.
        """


def cosine(first: float, last: float, i: int, steps: int) -> float:
    """Return the value at step i of a cosine schedule from `first` to `last`.

    Args:
        first: Value at step 0.
        last: Value at the last step.
        i: Number of the step.
        steps: Number of steps.
    """
    return last + (first - last) * (1 + math.cos(math.pi * i / steps)) / 2


def length(v: Tensor) -> Tensor:
    """Return the Euclidean length of each row, at least TINY so that it can be divided by.

    Args:
        v: Rows, (n, d).
    """
    return euclidean(v).clamp_(min=TINY)


def unit(v: Tensor) -> Tensor:
    """Scale every row to Euclidean length 1; rows of zeros stay.

    Args:
        v: Rows, (n, d).
    """
    return v / length(v)[:, None]


def where_rows(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Take the rows of `yes` where `mask` (n,) holds, else those of `no`; both must be finite.

    A linear interpolation with weights 0 and 1 is exact and four times as fast as torch.where.

    Args:
        mask: Condition per row, (n,).
        yes: Rows, (n, d).
        no: Rows, (n, d).
    """
    return torch.lerp(no, yes, mask.to(yes.dtype)[:, None])


def random_where_lost(problem: Problem, answer: Answer, i: int) -> tuple[Tensor, Tensor]:
    """Return gradient and length, with a random direction of length 1 where the gradient vanishes.

    The direction is shared by all samples and changes with the step and the seed.

    Args:
        problem: Samples, norm and random numbers.
        answer: The engine's answer at step i.
        i: Number of the step.
    """
    gradient = answer.gradient
    lost = answer.length <= TINY
    direction = _shared_direction(problem.seed, gradient.shape[1], gradient.dtype, gradient.device)
    direction = direction.roll(_ROLL * i, 1).expand_as(gradient)
    gradient = where_rows(lost, direction, gradient)
    return gradient, torch.where(lost, 1.0, answer.length)


@lru_cache(maxsize=8)
def _shared_direction(seed: int, features: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return random signs over √d: (1, features), of Euclidean length 1."""
    keys = torch.zeros((1, 2), dtype=torch.int32, device=device)
    signs = (Draws(seed, keys).uniform("lost gradient", features) - 0.5).sign_()
    return signs.to(dtype) / math.sqrt(features)


def margin_found(answer: Answer) -> Tensor:
    """Return the margin, and inf where the model's logits are not finite.

    Args:
        answer: The engine's answer.
    """
    finite = answer.logits.isfinite().all(1)
    return torch.where(finite, answer.margin, torch.inf)


def adam(first: Tensor, second: Tensor, gradient: Tensor, i: int) -> tuple[Tensor, float]:
    """Update Adam's moments in place; return D and a factor, so that the step is factor·first/D.

    D is √v̂ + 1e-8 up to the factor 1/(1 − 0.999^{i+1})^½, which `factor` contains, to save passes
    over the data. The moments are part of the solver's state; torch.optim would hide them.

    Args:
        first: Mean of gradients, (n, d).
        second: Mean of their squares, (n, d).
        gradient: Gradient, (n, d).
        i: Number of the step.
    """
    first.lerp_(gradient, 0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    bias = math.sqrt(1 - 0.999 ** (i + 1))
    return second.sqrt().add_(1e-8 * bias), bias / (1 - 0.9 ** (i + 1))
