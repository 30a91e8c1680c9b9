"""Primal-Dual Proximal Gradient Descent (Matyasko and Chau, 2021), ℓ0, ℓ1, ℓ2 and ℓ∞.

As PDGD, but the norm is taken care of by its proximal step, in the metric that Adam uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.pdgd import PrimalDual, PrimalDualState
from advfrontier.solvers.protocol import Adam, Answer, Problem


@dataclass(frozen=True)
class Pdpgd(PrimalDual):
    """`proximal_steps` bounds the inner iteration, which a row leaves once it changes by less than `proximal_tolerance`."""

    facts: ClassVar[SolverFacts] = CATALOGUE["pdpgd"]

    proximal_steps: int = 5
    proximal_tolerance: float = 1e-2

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """One Adam step on the margin, the proximal step of the norm, one sign step on the dual."""
        g = answer.gradient.mul_(answer.loss.sigmoid()[:, None])
        direction, scale = Adam(state.first, state.second).direction(g, i)
        rate = self._rate(problem, i)
        δ = state.point.sub(direction, alpha=rate).clamp_(0, 1).sub_(problem.inputs)
        ratio = (1 - state.margin_weight) / state.margin_weight
        state.point = (problem.inputs + self._proximal(problem, δ, ratio * rate, scale)).clamp_(0, 1)
        self._dual_step(problem, state, i, answer.loss)

    def _proximal(self, problem: Problem, anchor: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        """Minimise weight·‖z‖ + ½·Σ scale·(z − anchor)² inside the box, by proximal gradient steps from the anchor."""
        largest = scale.amax(1)
        metric = scale / largest[:, None]
        μ = weight / largest
        low, high = -problem.inputs, 1 - problem.inputs
        z, moving = anchor, torch.ones_like(μ, dtype=torch.bool)
        for k in range(self.proximal_steps):
            ahead = anchor if k == 0 else z - metric * (z - anchor)
            proposal = problem.norm.prox(ahead, μ).clamp_(low, high)
            change = torch.linalg.vector_norm(proposal - z, 2, dim=1) / torch.linalg.vector_norm(proposal, 2, dim=1)
            z = torch.where(moving[:, None], proposal, z)
            moving = moving & (change > self.proximal_tolerance)
            if not moving.any():
                break
        return z
