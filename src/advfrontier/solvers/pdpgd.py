"""Primal-Dual Proximal Gradient Descent (Matyasko and Chau, 2021), ℓ0, ℓ1, ℓ2 and ℓ∞.

As PDGD, but the norm is taken care of by its proximal step, in the metric that Adam uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.pdgd import PrimalDual, PrimalDualState
from advfrontier.solvers.protocol import Adam, Answer, Problem, length


@dataclass(frozen=True)
class Pdpgd(PrimalDual):
    """`proximal_steps` bounds the inner iteration, which a row leaves once it changes by less than `proximal_tolerance`."""

    facts: ClassVar[SolverFacts] = CATALOGUE["pdpgd"]

    proximal_steps: int = 5
    proximal_tolerance: float = 1e-2

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """One Adam step on the margin, the proximal step of the norm, one sign step on the dual."""
        g = answer.gradient.mul_(answer.loss.sigmoid()[:, None])
        scale, factor = Adam(state.first, state.second).take(g, i)
        rate = factor * self._rate(problem, i)
        δ = torch.addcdiv(state.point, state.first, scale, value=-rate).clamp_(0, 1).sub_(problem.inputs)
        largest = scale.amax(1)
        ratio = (1 - state.margin_weight) / state.margin_weight
        μ = ratio * self._rate(problem, i) * math.sqrt(1 - 0.999 ** (i + 1)) / largest
        metric = scale.div_(largest[:, None])
        state.point = self._proximal(problem, δ, μ, metric).add_(problem.inputs).clamp_(0, 1)
        self._dual_step(problem, state, i, answer.loss)

    def _proximal(self, problem: Problem, anchor: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        """Minimise μ·‖z‖ + ½·Σ metric·(z − anchor)² inside the box, by proximal gradient steps from the anchor."""
        low, high = -problem.inputs, 1 - problem.inputs
        z, moving = anchor, None
        for _ in range(self.proximal_steps):
            ahead = anchor if moving is None else torch.lerp(z, anchor, metric)
            proposal = problem.norm.prox(ahead, μ).clamp_(low, high)
            change = length(proposal - z) / length(proposal)
            z = proposal if moving is None else torch.where(moving[:, None], proposal, z)
            still = change > self.proximal_tolerance
            moving = still if moving is None else moving & still
            if not moving.any():
                break
        return z
