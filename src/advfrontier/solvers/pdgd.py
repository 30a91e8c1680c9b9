"""Primal-Dual Gradient Descent (Matyasko and Chau, 2021), ℓ2.

Minimise λ₀·‖δ‖ + λ₁·softplus(margin) over δ with Adam, while the dual weights λ move towards the margin as long as the
point is not misclassified and towards the norm when it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, adam, length
from advfrontier.threat.norms import TINY


@dataclass
class PrimalDualState:
    """The point with Adam's moments, and the dual weights: their logit and the running mean of the margin's weight."""

    point: Tensor
    first: Tensor
    second: Tensor
    dual_logit: Tensor
    margin_weight: Tensor  # λ̄₁; λ̄₀ = 1 − λ̄₁


@dataclass(frozen=True)
class PrimalDual:
    """What PDGD and PDPGD share: the dual, and the schedules of both step sizes."""

    primal_rate: float = 0.1
    primal_decrease: float = 0.01
    dual_rate: float | None = None  # 0.07 in ℓ∞, 0.1 elsewhere
    dual_decrease: float = 0.1
    dual_mean: float = 0.9
    dual_ratio: float = 0.01  # norm's weight over margin's weight at the start
    dual_ratio_least: float = 1e-6
    least_margin: float = 1.0  # 0: the published loss

    def start(self, problem: Problem) -> PrimalDualState:
        """Almost all weight on the margin."""
        point = problem.starts.clone()
        logit = torch.full_like(problem.boundary, -math.log(self.dual_ratio))
        return PrimalDualState(
            point, torch.zeros_like(point), torch.zeros_like(point), logit, logit.sigmoid()
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the margin."""
        return "margin"

    def _slope(self, problem: Problem, margin: Tensor) -> Tensor:
        """The derivative of the softplus, taken of margins scaled so that the input's is `least_margin` at least.

        Weight and margin balance where softplus′ = λ₀/λ₁ over the margin's slope, so one unit of the dual's logit moves
        that point by 2 in the margin. Where the input's own margin is smaller than that, the point swings to and fro
        across the boundary and settles neither in length nor in direction.
        """
        stretch = (self.least_margin / problem.margin.clamp(min=TINY)).clamp_(min=1)
        return stretch.mul_(margin).sigmoid_()

    def _rate(self, problem: Problem, i: int) -> float:
        return float(self.primal_rate * self.primal_decrease ** (i / problem.steps))

    def _dual_step(self, problem: Problem, state: PrimalDualState, i: int, margin: Tensor) -> None:
        left = (problem.steps - 1 - i) / max(problem.steps - 1, 1)
        rate = (
            self.dual_rate
            if self.dual_rate is not None
            else 0.07
            if problem.norm.name == "Linf"
            else 0.1
        )
        θ = rate * (left * (1 - self.dual_decrease) + self.dual_decrease)
        bound = -math.log(self.dual_ratio_least)
        state.dual_logit = (state.dual_logit + θ * margin.sign()).clamp_(-bound, bound)
        state.margin_weight = torch.lerp(
            state.dual_logit.sigmoid(), state.margin_weight, self.dual_mean
        )


@dataclass(frozen=True)
class Pdgd(PrimalDual):
    """Both terms in the gradient."""

    facts: ClassVar[SolverFacts] = CATALOGUE["pdgd"]

    least_margin: float = 2.0

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """One Adam step on the Lagrangian, one sign step on the dual."""
        λ = state.margin_weight
        δ = state.point - problem.inputs
        g = answer.gradient.mul_((λ * self._slope(problem, answer.loss))[:, None])
        g.addcmul_(δ, ((1 - λ) / length(δ))[:, None])  # the gradient of ‖δ‖, and 0 at δ = 0
        scale, factor = adam(state.first, state.second, g, i)
        rate = factor * self._rate(problem, i)
        state.point = torch.addcdiv(state.point, state.first, scale, value=-rate).clamp_(0, 1)
        self._dual_step(problem, state, i, answer.loss)
