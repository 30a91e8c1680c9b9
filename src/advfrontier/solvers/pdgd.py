"""Primal-Dual Gradient Descent, ℓ2.

Minimise λ₀·‖δ‖ + λ₁·softplus(margin) over δ with Adam, while the dual weights λ move towards the
margin as long as the point is not misclassified, and towards the norm when it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, adam
from advfrontier.threat.norms import TINY

_DUAL_RATE = {"Linf": 0.07}  # 0.1 elsewhere


@dataclass
class PrimalDualState:
    """Point with Adam's moments (n, d), and the dual variable (n,).

    Args:
        point: (n, d), the point to evaluate.
        first: (n, d), Adam's mean of gradients.
        second: (n, d), Adam's mean of their squares.
        dual_logit: (n,), logit of the margin's weight: the dual variable.
        margin_weight: (n,), λ₁, running mean of the margin's weight; the norm has λ₀ = 1 − λ₁.
    """

    point: Tensor
    first: Tensor
    second: Tensor
    dual_logit: Tensor
    margin_weight: Tensor


@dataclass(frozen=True)
class PrimalDual:
    """Dual variable and schedules of the two primal-dual attacks.

    Args:
        primal_rate: First rate of Adam.
        primal_decrease: Last rate of Adam over the first; it falls geometrically.
        dual_rate: First rate of the dual variable. Default: 0.07 in ℓ∞, 0.1 elsewhere.
        dual_decrease: Last rate of the dual variable over the first; it falls linearly.
        dual_mean: Share of the running mean that a step keeps.
        dual_ratio: Weight of the norm over weight of the margin, at the start.
        dual_ratio_least: The least that this ratio can become.
        least_margin: Margins are scaled so that the margin at the input is this at least.
    """

    primal_rate: float = 0.1
    primal_decrease: float = 0.01
    dual_rate: float | None = None
    dual_decrease: float = 0.1
    dual_mean: float = 0.9
    dual_ratio: float = 0.01
    dual_ratio_least: float = 1e-6
    least_margin: float = 1.0

    def start(self, problem: Problem) -> PrimalDualState:
        """Start with almost all weight on the margin."""
        point = problem.starts.clone()
        logit = torch.full_like(problem.boundary, -math.log(self.dual_ratio))
        return PrimalDualState(
            point, torch.zeros_like(point), torch.zeros_like(point), logit, logit.sigmoid()
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Descend the margin."""
        return "margin"

    def _slope(self, problem: Problem, margin: Tensor) -> Tensor:
        """Return the derivative of the softplus at the scaled margins: (n,).

        Weight and margin balance where softplus′ = λ₀/λ₁ over the margin's slope, so that one unit
        of the dual's logit moves that point by 2 in the margin. Where the margin at the input is
        smaller, the point swings across the boundary and settles in neither length nor direction.
        """
        stretch = (self.least_margin / problem.margin.clamp(min=TINY)).clamp_(min=1)
        return stretch.mul_(margin).sigmoid_()

    def _rate(self, problem: Problem, i: int) -> float:
        """Return Adam's rate at step i."""
        return float(self.primal_rate * self.primal_decrease ** (i / problem.steps))

    def _dual_step(self, problem: Problem, state: PrimalDualState, i: int, margin: Tensor) -> None:
        """Move the dual variable by the sign of the margin, and its running mean."""
        rate = self.dual_rate
        if rate is None:
            rate = _DUAL_RATE.get(problem.norm.name, 0.1)
        left = (problem.steps - 1 - i) / max(problem.steps - 1, 1)
        θ = rate * (left * (1 - self.dual_decrease) + self.dual_decrease)
        bound = -math.log(self.dual_ratio_least)
        state.dual_logit = torch.add(state.dual_logit, margin.sign(), alpha=θ)
        state.dual_logit.clamp_(-bound, bound)
        weight = state.dual_logit.sigmoid()
        state.margin_weight = weight.lerp_(state.margin_weight, self.dual_mean)


@dataclass(frozen=True)
class PDGD(PrimalDual):
    """Primal-Dual Gradient Descent: both terms are in Adam's gradient.

    Matyasko and Chau: PDPGD: Primal-Dual Proximal Gradient Descent Adversarial Attack, 2021,
    arXiv:2106.01538. Scaling small margins is ours.

    Args:
        least_margin: Margins are scaled so that the margin at the input is this at least. The
            other parameters are those of `PrimalDual`.
    """

    least_margin: float = 2.0

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """Take one step of Adam on the weighted sum, and one sign step on the dual variable."""
        λ = state.margin_weight
        δ = state.point - problem.inputs
        g = answer.gradient.mul_((λ * self._slope(problem, answer.loss))[:, None])
        g.addcmul_(problem.norm.subgradient(δ), (1 - λ)[:, None])
        scale, factor = adam(state.first, state.second, g, i)
        rate = factor * self._rate(problem, i)
        ahead = torch.addcdiv(state.point, state.first, scale, value=-rate)
        state.point = problem.norm.clamp_(ahead)
        self._dual_step(problem, state, i, answer.loss)
