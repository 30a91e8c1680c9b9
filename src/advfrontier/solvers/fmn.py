"""Fast Minimum-Norm attack (Pintor et al., 2021), ℓ0, ℓ1, ℓ2 and ℓ∞.

Ascend the loss by a step of fixed Euclidean length, then project onto a ball whose radius shrinks while the point is
misclassified and grows while it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine, length
from advfrontier.threat.norms import TINY


@dataclass
class FmnState:
    """Where the search stands and how far it may go."""

    point: Tensor
    radius: Tensor


@dataclass(frozen=True)
class Fmn:
    """α is the step length, γ the relative change of the radius; both fall along a cosine."""

    facts: ClassVar[SolverFacts] = CATALOGUE["fmn"]

    alpha: float | None = None  # 10 in ℓ∞, where a unit step is 1/√d per feature; 1 elsewhere
    gamma: float = 0.05
    gamma_final: float = 0.001
    strict: bool = False  # the published radius before the first success, which can stall just inside the boundary
    plain_step: bool = False  # the published step, of which the box may leave little

    def start(self, problem: Problem) -> FmnState:
        """Before the first success the radius is unknown, except in ℓ0, where it starts at one feature."""
        point = problem.starts.clone()
        if problem.norm.name == "L0":
            return FmnState(point, problem.norm.distance(point, problem.inputs).clamp_(min=1))
        return FmnState(point, torch.full_like(problem.boundary, torch.inf))

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the margin."""
        return "margin"

    def step(self, problem: Problem, state: FmnState, i: int, answer: Answer) -> None:
        """Adapt the radius, take the step, project."""
        norm = problem.norm
        alpha = self.alpha if self.alpha is not None else 10.0 if norm.name == "Linf" else 1.0
        gamma, gamma_final = self.gamma, self.gamma_final
        if (
            problem.polishes and norm.name != "L0"
        ):  # the boundary is near: finer in the end, and in ℓ∞ all along
            gamma_final /= 10
            if norm.name == "Linf":
                alpha, gamma = alpha / 4, gamma / 2.5
        α = cosine(alpha, alpha / 100, i, problem.steps)
        γ = cosine(gamma, gamma_final, i, problem.steps)
        rule = self._features if norm.name == "L0" else self._radius
        state.radius = torch.minimum(rule(problem, state, answer, γ), problem.largest)
        step = answer.gradient.mul_((α / answer.length)[:, None])
        if not self.plain_step:
            step = self._fit(problem, state, answer, step, α)
        δ = (state.point - problem.inputs).sub_(step)
        state.point = norm.project(δ, state.radius).add_(problem.inputs).clamp_(0, 1)

    @staticmethod
    def _fit(problem: Problem, state: FmnState, answer: Answer, step: Tensor, α: float) -> Tensor:
        """What the box leaves of the step, at the full length.

        Entries at the end of the box take their share of the length and then cannot move, which stalls the search. ℓ0
        does better with the published step, except where every feature may change already and that was not enough.
        """
        if problem.norm.name != "L0":
            return _inside_box(state.point, step, α)
        if (stuck := ~answer.found & (state.radius >= problem.largest)).any():
            step[stuck] = _inside_box(state.point[stuck], step[stuck], α)
        return step

    def _radius(self, problem: Problem, state: FmnState, answer: Answer, γ: float) -> Tensor:
        ε = state.radius
        shrunk = torch.minimum(ε * (1 - γ), answer.best_distance)
        if answer.found.all():
            return torch.where(answer.misclassified, shrunk, ε * (1 + γ))
        estimate = answer.distance + answer.loss.abs() / problem.norm.dual_size(
            answer.gradient
        ).clamp_(min=TINY)
        if not self.strict:
            # The estimate alone can approach the boundary from inside for ever; let the radius grow as well. On a tie
            # it is zero, and so it must not begin there.
            grown = torch.where(ε < torch.inf, ε * (1 + γ), problem.boundary / 2)
            estimate = torch.maximum(estimate, grown)
        missed = torch.where(answer.found, ε * (1 + γ), estimate)
        return torch.where(answer.misclassified, shrunk, missed)

    @staticmethod
    def _features(problem: Problem, state: FmnState, answer: Answer, γ: float) -> Tensor:  # noqa: ARG004
        ε = state.radius
        fewer = torch.minimum(torch.minimum(ε - 1, (ε * (1 - γ)).floor()), answer.best_distance)
        more = torch.maximum(ε + 1, (ε * (1 + γ)).floor())
        return torch.where(answer.misclassified, fewer, more).clamp_(min=1)


def _inside_box(point: Tensor, step: Tensor, α: float) -> Tensor:
    """What the box leaves of a step down from the point, stretched to length α."""
    step = point - (point - step).clamp_(0, 1)
    return step.mul_((α / length(step))[:, None])
