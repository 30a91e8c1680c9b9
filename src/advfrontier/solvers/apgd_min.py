"""APGD_min: Auto-PGD (Croce and Hein, 2020; ℓ1: 2021) with a radius that adapts to the sample, ℓ1, ℓ2 and ℓ∞.

APGD's projected steps, momentum and checkpoints, but inside a ball whose radius follows FMN's rule: it starts from a
first-order estimate, shrinks towards the best distance while the point is misclassified and grows while it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine, keep_rows, unit
from advfrontier.threat.norms import L1, TINY
from advfrontier.threat.thresholds import largest


@dataclass
class ApgdMinState:
    """Everything per sample; `lowest_…` is the point with the lowest loss, used until there is a success."""

    point: Tensor
    previous: Tensor
    radius: Tensor
    relative_step: Tensor  # step size over radius
    best_gradient: Tensor
    lowest_point: Tensor
    lowest_gradient: Tensor
    lowest_loss: Tensor
    last_loss: Tensor
    falls: Tensor  # steps in this window on which the loss fell
    reduced: Tensor  # at the last checkpoint
    checked_loss: Tensor  # lowest loss and best distance at the last checkpoint
    checked_distance: Tensor
    sparsity: Tensor  # ℓ1: share of features that the step moves
    features: Tensor  # ℓ1: features changed at the last checkpoint


@dataclass(frozen=True)
class ApgdMin:
    """`loss_name` is ce (plain_ce: as published) or dlr; γ is the relative change of the radius, along a cosine."""

    facts: ClassVar[SolverFacts] = CATALOGUE["apgd_min"]

    loss_name: str = "dlr"
    gamma: float = 0.05
    gamma_final: float = 0.001
    step_size: float | None = None  # over the radius: 2, or 1 in ℓ1
    momentum: float = 0.75

    def start(self, problem: Problem) -> ApgdMinState:
        """From the input (or the restart's point), with the largest step."""
        point, one = problem.starts.clone(), torch.ones_like(problem.boundary)
        size = (
            self.step_size
            if self.step_size is not None
            else 1.0
            if problem.norm.name == "L1"
            else 2.0
        )
        return ApgdMinState(
            point=point,
            previous=point.clone(),
            radius=problem.boundary.clone(),
            relative_step=one * size,
            best_gradient=torch.zeros_like(point),
            lowest_point=point.clone(),
            lowest_gradient=torch.zeros_like(point),
            lowest_loss=one * torch.inf,
            last_loss=one * torch.inf,
            falls=torch.zeros_like(one),
            reduced=torch.ones_like(one, dtype=torch.bool),
            checked_loss=one * torch.inf,
            checked_distance=one * torch.inf,
            sparsity=one * 0.2,
            features=one * point.shape[1],
        )

    def loss(self, i: int) -> str:
        """The margin at step 0, since only its gradient gives a distance to the boundary; then the run's own loss."""
        return "margin" if i == 0 else self.loss_name

    def step(self, problem: Problem, state: ApgdMinState, i: int, answer: Answer) -> None:
        """Take in the answer, adapt radius and step size, move."""
        g = answer.gradient
        self._record(problem, state, i, answer)
        state.radius = self._radius(problem, state, i, answer)
        window = _window(i, problem)
        if window is not None:
            if problem.norm.name == "L1":
                g = self._check_sparsity(problem, state, answer, g)
            else:
                g = self._check_progress(state, answer, g, window)
        self._move(problem, state, i, g)

    def _record(self, problem: Problem, state: ApgdMinState, i: int, answer: Answer) -> None:
        loss = answer.loss if i > 0 else problem.loss(self.loss_name, answer.logits)
        keep_rows(answer.improved, (state.best_gradient, answer.gradient))
        lower = (
            loss < state.lowest_loss
        ) & ~answer.found  # after a success the lowest loss is not gone back to
        keep_rows(
            lower, (state.lowest_point, state.point), (state.lowest_gradient, answer.gradient)
        )
        state.lowest_loss = torch.minimum(loss, state.lowest_loss)
        if i > 0:
            state.falls = state.falls + (loss < state.last_loss)
        state.last_loss = loss

    def _radius(self, problem: Problem, state: ApgdMinState, i: int, answer: Answer) -> Tensor:
        if i == 0:
            boundary = answer.loss.abs() / problem.norm.dual_size(answer.gradient).clamp_(min=TINY)
            further = torch.maximum(
                answer.distance + boundary, problem.boundary / 2
            )  # which on a tie is not zero
            ε = torch.where(answer.misclassified, answer.distance, further)
        else:
            γ = cosine(self.gamma, self.gamma_final, i, problem.steps)
            shrunk = torch.minimum((1 - γ) * state.radius, answer.best_distance)
            ε = torch.where(answer.misclassified, shrunk, (1 + γ) * state.radius)
        return torch.clamp(ε, 1e-8 * problem.largest, problem.largest)

    def _check_progress(
        self, state: ApgdMinState, answer: Answer, g: Tensor, window: int
    ) -> Tensor:
        """Halve the step and go back to the best point where the loss rarely fell or nothing was gained since."""
        nearer = answer.best_distance < (1 - 1e-4) * state.checked_distance
        gained = torch.where(answer.found, nearer, state.lowest_loss < state.checked_loss)
        state.reduced = (state.falls <= 0.75 * window) | (~state.reduced & ~gained)
        state.relative_step = torch.where(
            state.reduced, state.relative_step / 2, state.relative_step
        )
        state.falls = torch.zeros_like(state.falls)
        state.checked_loss, state.checked_distance = state.lowest_loss, answer.best_distance
        g = self._return(state, answer, g, state.reduced)
        state.previous = torch.where(
            state.reduced[:, None], state.point, state.previous
        )  # drop the momentum
        return g

    def _check_sparsity(
        self, problem: Problem, state: ApgdMinState, answer: Answer, g: Tensor
    ) -> Tensor:
        """Where the best point has become sparser, go back to it with the largest step; else shorten the step."""
        reference = torch.where(answer.found[:, None], answer.best_point, state.lowest_point)
        features = (reference != problem.inputs).to(g.dtype).sum(1).clamp_(min=1)
        sparser = features < 0.95 * state.features
        state.sparsity = features / (1.5 * g.shape[1])
        state.relative_step = torch.where(sparser, 1.0, (state.relative_step / 1.5).clamp_(min=0.1))
        state.features = features
        return self._return(state, answer, g, sparser)

    @staticmethod
    def _return(state: ApgdMinState, answer: Answer, g: Tensor, rows: Tensor) -> Tensor:
        """Set rows back to the smallest misclassified point (before any: to the lowest loss), with its gradient."""
        found, rows = answer.found[:, None], rows[:, None]
        state.point = torch.where(
            rows, torch.where(found, answer.best_point, state.lowest_point), state.point
        )
        return torch.where(rows, torch.where(found, state.best_gradient, state.lowest_gradient), g)

    def _move(self, problem: Problem, state: ApgdMinState, i: int, g: Tensor) -> None:
        norm, x, ε = problem.norm, problem.inputs, state.radius
        η = (state.relative_step * ε)[:, None]
        if isinstance(norm, L1):
            δ = (state.point - x).addcmul_(_sparse_sign(g, state.sparsity), -η)
            state.point = norm.project_in_box(δ, ε, x).add_(x).clamp_(0, 1)
            return

        def project(point: Tensor) -> Tensor:
            return norm.project(point.sub_(x), ε).add_(x).clamp_(0, 1)

        direction = g.sign_() if norm.name == "Linf" else unit(g)
        ahead = project(torch.addcmul(state.point, direction, -η))
        if i > 0:
            drift = state.point - state.previous
            ahead = project(
                torch.lerp(state.point, ahead, self.momentum).add_(drift, alpha=1 - self.momentum)
            )
        state.previous, state.point = state.point, ahead


def _window(i: int, problem: Problem) -> int | None:
    """The length of the window that ends with step i, or None: APGD's checkpoints, every 4 % of the steps in ℓ1."""
    n = problem.steps
    if problem.norm.name == "L1":
        k = max(int(0.04 * n), 1)
        return k if (i + 1) % k == 0 else None
    k, end = max(int(0.22 * n), 1), 0
    while end <= i:
        end += k
        if end == i + 1:
            return k
        k = max(k - max(int(0.03 * n), 1), int(0.06 * n), 1)
    return None


def _sparse_sign(g: Tensor, share: Tensor) -> Tensor:
    """The signs of each row's largest entries, as many as its share of the features says, over their number."""
    d = g.shape[1]
    rank = (share * d).ceil().long().clamp_(1, d)[:, None]
    magnitude = g.abs()
    last = largest(magnitude, int(rank.amax()) if len(g) else 1).gather(1, rank - 1)
    kept = (
        magnitude.sub_(last).sign_().add_(1).clamp_(max=1)
    )  # 1 from the last kept entry up, 0 below
    signs = kept.mul_(g.sign())
    return signs.div_(signs.abs().sum(1, keepdim=True).clamp_(min=1))
