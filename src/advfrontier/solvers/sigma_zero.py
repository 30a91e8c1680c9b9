"""σ-zero (Cinà et al., 2025), ℓ0.

Adam on the clipped margin plus a smooth surrogate of ℓ0, with gradients scaled to unit ℓ∞ size; after each step the
features below an adaptive threshold are set back to their original value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, adam, cosine
from advfrontier.threat.norms import TINY


@dataclass
class SigmaZeroState:
    """The point with Adam's moments, and the threshold of each sample."""

    point: Tensor
    first: Tensor
    second: Tensor
    threshold: Tensor


@dataclass(frozen=True)
class SigmaZero:
    """η is the learning rate, σ the width of the surrogate, τ the threshold, `t` how fast it moves."""

    facts: ClassVar[SolverFacts] = CATALOGUE["sigma_zero"]

    eta: float = 1.0
    sigma: float = 5e-4
    tau: float = 0.3
    t: float = 0.01

    def start(self, problem: Problem) -> SigmaZeroState:
        """Moments of zero, the threshold high."""
        point = problem.starts.clone()
        threshold = torch.full_like(problem.boundary, self.tau)
        return SigmaZeroState(point, torch.zeros_like(point), torch.zeros_like(point), threshold)

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the margin."""
        return "margin"

    def step(self, problem: Problem, state: SigmaZeroState, i: int, answer: Answer) -> None:
        """One Adam step, then the threshold."""
        δ = state.point - problem.inputs
        width = (δ * δ).add_(self.sigma)
        surrogate = δ.mul_(2 * self.sigma / δ.shape[1]).div_(
            width.square_()
        )  # ∇ of (1/d)·Σ δ²/(δ² + σ)
        g = answer.gradient.mul_((answer.loss >= 0).to(δ.dtype)[:, None]).add_(surrogate)
        g.div_(g.abs().amax(1, keepdim=True).clamp_(min=TINY))
        scale, factor = adam(state.first, state.second, g, i)
        rate = factor * self._rate(problem, i)
        point = torch.addcdiv(state.point, state.first, scale, value=-rate).clamp_(0, 1)
        move = self.t * self._rate(problem, i + 1)
        moved = torch.where(answer.misclassified, state.threshold + move, state.threshold - move)
        state.threshold = moved.clamp_(0, 1)
        kept = (point - problem.inputs).abs_().sub_(state.threshold[:, None]).sign_().clamp_(min=0)
        state.point = torch.lerp(
            problem.inputs, point, kept
        )  # exact for weights of 0 and 1, and faster than where

    def _rate(self, problem: Problem, i: int) -> float:
        return cosine(self.eta, self.eta / 10, i, problem.steps)
