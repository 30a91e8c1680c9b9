"""Fast Minimum-Norm attack, in any norm.

Descend the margin by a step of fixed Euclidean length, then project onto a ball whose radius
shrinks while the point is misclassified and grows while it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, cosine, length, where_rows
from advfrontier.threat.norms import TINY

_ALPHA = {"Linf": 10.0}  # where a step of length 1 moves each feature by 1/√d only; 1 elsewhere


@dataclass
class FMNState:
    """State of FMN: its point (n, d), and the allowed distance from the input (n,).

    Args:
        point: (n, d), the point to evaluate.
        radius: (n,), the allowed distance from the input.
    """

    point: Tensor
    radius: Tensor


@dataclass(frozen=True)
class FMN:
    """Fast Minimum-Norm attack.

    Pintor, Roli, Brendel and Biggio: Fast Minimum-norm Adversarial Attacks through Adaptive Norm
    Constraints, NeurIPS 2021, arXiv:2102.12827. Two rules are ours: a step is what the box leaves
    of it, at full length; and before the first success the radius grows by γ at least.

    Args:
        alpha: Euclidean length of the first step, which falls to a hundredth along a cosine.
            Default: 10 in ℓ∞, 1 elsewhere.
        gamma: First relative change of the radius.
        gamma_final: Last relative change of the radius, at the end of a cosine.
    """

    alpha: float | None = None
    gamma: float = 0.05
    gamma_final: float = 0.001

    def start(self, problem: Problem) -> FMNState:
        """Start with an unknown radius; where sizes are counted, with the size of the start."""
        point = problem.starts.clone()
        if problem.norm.counts:
            size = problem.norm.distance(point, problem.inputs)
            return FMNState(point, size.clamp_(min=1))
        return FMNState(point, torch.full_like(problem.boundary, torch.inf))

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Descend the margin."""
        return "margin"

    def step(self, problem: Problem, state: FMNState, i: int, answer: Answer) -> None:
        """Adapt the radius, take the step, project."""
        α, γ = self._schedule(problem, i)
        resize = self._count if problem.norm.counts else self._radius
        state.radius = torch.minimum(resize(problem, state, answer, γ), problem.largest)
        step = answer.gradient.mul_((α / answer.length)[:, None])
        step = self._fit(problem, state, answer, step, α)
        δ = (state.point - problem.inputs).sub_(step)
        ahead = problem.norm.project(δ, state.radius).add_(problem.inputs)
        state.point = problem.norm.clamp_(ahead)

    def _schedule(self, problem: Problem, i: int) -> tuple[float, float]:
        """Return step length α and relative change γ of the radius at step i."""
        name = problem.norm.name
        alpha = _ALPHA.get(name, 1.0) if self.alpha is None else self.alpha
        gamma, gamma_final = self.gamma, self.gamma_final
        if problem.refines and not problem.norm.counts:  # the boundary is near
            gamma_final /= 10
            if name == "Linf":
                alpha, gamma = alpha / 4, gamma / 2.5
        α = cosine(alpha, alpha / 100, i, problem.steps)
        return α, cosine(gamma, gamma_final, i, problem.steps)

    def _fit(
        self, problem: Problem, state: FMNState, answer: Answer, step: Tensor, α: float
    ) -> Tensor:
        """Clip the step to the box and rescale it to length α.

        Features at an end of the box would take their share of the length and not move, which
        stalls the search. Where sizes are counted, the plain step does better, except on samples
        that may change every feature and are not broken yet.
        """
        inside = state.point - problem.norm.clamp_(state.point - step)
        inside.mul_((α / length(inside))[:, None])
        if not problem.norm.counts:
            return inside
        return where_rows(~answer.found & (state.radius >= problem.largest), inside, step)

    def _radius(self, problem: Problem, state: FMNState, answer: Answer, γ: float) -> Tensor:
        """Return the radius for the next step: (n,)."""
        ε = state.radius
        shrunk = torch.minimum(ε * (1 - γ), answer.best_distance)
        grown = torch.where(answer.found, ε * (1 + γ), self._first(problem, state, answer, γ))
        return torch.where(answer.misclassified, shrunk, grown)

    def _first(self, problem: Problem, state: FMNState, answer: Answer, γ: float) -> Tensor:
        """Return the radius before the first success: the first-order estimate, growing at least.

        The estimate alone can approach the boundary from inside for ever. On a tie it is 0, and so
        the radius starts at half of the estimate at the input.
        """
        ε = state.radius
        grown = torch.where(ε < torch.inf, ε * (1 + γ), problem.boundary / 2)
        return torch.maximum(estimated_distance(problem, answer), grown)

    def _count(self, problem: Problem, state: FMNState, answer: Answer, γ: float) -> Tensor:  # noqa: ARG002
        """Return the radius for the next step where sizes are whole numbers: (n,)."""
        ε = state.radius
        fewer = torch.minimum(torch.minimum(ε - 1, (ε * (1 - γ)).floor()), answer.best_distance)
        more = torch.maximum(ε + 1, (ε * (1 + γ)).floor())
        return torch.where(answer.misclassified, fewer, more).clamp_(min=1)


def estimated_distance(problem: Problem, answer: Answer) -> Tensor:
    """Return a first-order estimate of the boundary's distance from the input: (n,).

    Args:
        problem: Samples and norm.
        answer: Logits' margin and its gradient at the point.
    """
    slope = problem.norm.dual_size(answer.gradient).clamp_(min=TINY)
    return answer.distance + answer.loss.abs() / slope
