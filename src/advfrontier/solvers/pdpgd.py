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
from advfrontier.solvers.protocol import Answer, Problem, adam, length
from advfrontier.threat.thresholds import wide


@dataclass(frozen=True)
class Pdpgd(PrimalDual):
    """`proximal_steps` bounds the inner iteration, which rows leave once they change by less than the tolerance."""

    facts: ClassVar[SolverFacts] = CATALOGUE["pdpgd"]

    proximal_steps: int = 5
    proximal_tolerance: float = 1e-2
    local_minimum: bool = (
        False  # ℓ0, as published: an entry stays where the proximal step has a local minimum off 0
    )

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """One Adam step on the margin, the proximal step of the norm, one sign step on the dual."""
        g = answer.gradient.mul_(self._slope(problem, answer.loss)[:, None])
        scale, factor = adam(state.first, state.second, g, i)
        rate = factor * self._rate(problem, i)
        δ = (
            torch.addcdiv(state.point, state.first, scale, value=-rate)
            .clamp_(0, 1)
            .sub_(problem.inputs)
        )
        largest = scale.amax(1)
        ratio = (1 - state.margin_weight) / state.margin_weight
        μ = ratio * self._rate(problem, i) * math.sqrt(1 - 0.999 ** (i + 1)) / largest
        metric = scale.div_(largest[:, None])
        state.point = self._proximal(problem, δ, μ, metric).add_(problem.inputs).clamp_(0, 1)
        self._dual_step(problem, state, i, answer.loss)

    def _proximal(self, problem: Problem, anchor: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        """Minimise μ·‖z‖ + ½·Σ metric·(z − anchor)² by proximal gradient steps from the anchor, until a row settles.

        Every proximal step shrinks entries towards 0, so nothing ever leaves the box that the anchor is in.
        """
        prox = prox_local if self.local_minimum and problem.norm.name == "L0" else problem.norm.prox
        z = here = prox(anchor, μ)
        rows = torch.arange(len(z), device=z.device)
        moving = self._moving(z, anchor)
        for left in reversed(range(self.proximal_steps - 1)):
            left_over = moving.nonzero().squeeze(1)
            if len(left_over) < len(rows):
                rows, here, anchor, metric, μ = (
                    t.index_select(0, left_over) for t in (rows, here, anchor, metric, μ)
                )
            if not len(rows):
                break
            ahead = prox(torch.lerp(here, anchor, metric), μ)
            if len(rows) == len(z):
                z = ahead
            else:
                z.index_copy_(0, rows, ahead)
            if left:
                here, moving = ahead, self._moving(ahead, here)
        return z

    def _moving(self, new: Tensor, old: Tensor) -> Tensor:
        return length(new - old) > self.proximal_tolerance * length(new)


def prox_local(v: Tensor, weight: Tensor) -> Tensor:
    """The local minimum of ½(u − v)² + weight·|u|^{2/3} that is not 0, entry by entry; 0 where there is none.

    It exists from |v| = 4·(2·weight/9)^{3/4} on, a little before it is lower than 0 is. Its closed form is exact where
    it is taken with hyperbolic functions, in float64.
    """
    a, κ = wide(v.abs()), 2 * wide(weight)[:, None]
    κ.clamp_(min=torch.finfo(κ.dtype).tiny ** 0.5)
    ratio = 27 / 16 * a.square() * κ**-1.5
    φ = 2 / math.sqrt(3) * κ**0.25 * ratio.clamp(min=1).acosh_().div_(3).cosh_().sqrt_()
    u = ((φ + (2 * a / φ - φ.square()).clamp_(min=0).sqrt_()) / 2) ** 3
    return torch.where(ratio >= 1, u, 0).to(v.dtype).copysign_(v)
