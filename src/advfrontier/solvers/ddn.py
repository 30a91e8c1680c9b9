"""Decoupled Direction and Norm (Rony et al., 2019), ℓ2.

Ascend the cross-entropy along the unit gradient, then rescale onto a sphere whose radius shrinks by a constant factor
while the point is misclassified and grows by it while it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine, length, random_where_lost


@dataclass
class DdnState:
    """Where the search stands and on which sphere."""

    point: Tensor
    radius: Tensor


@dataclass(frozen=True)
class Ddn:
    """`levels=256` rounds every point to 8-bit images, as the published code does; None leaves it continuous.

    `loss_name="plain_ce"` is the published loss.
    """

    facts: ClassVar[SolverFacts] = CATALOGUE["ddn"]

    gamma: float = 0.05
    radius: float = 1.0
    levels: int | None = None
    loss_name: str = "ce"

    def start(self, problem: Problem) -> DdnState:
        """From the input, with the given radius."""
        return DdnState(problem.starts.clone(), torch.full_like(problem.boundary, self.radius))

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the cross-entropy."""
        return self.loss_name

    def step(self, problem: Problem, state: DdnState, i: int, answer: Answer) -> None:
        """Turn towards the gradient, change the radius, rescale."""
        α = cosine(1.0, 0.01, i, problem.steps)
        random_where_lost(problem, answer, i)
        δ = (state.point - problem.inputs).addcmul_(answer.gradient, (-α / answer.length)[:, None])
        nearer, farther = (1 - self.gamma) * state.radius, (1 + self.gamma) * state.radius
        state.radius = torch.where(answer.misclassified, nearer, farther).minimum(problem.largest)
        point = torch.addcmul(problem.inputs, δ, (state.radius / length(δ))[:, None]).clamp_(0, 1)
        if self.levels is not None:
            point = (point * (self.levels - 1)).round_().div_(self.levels - 1)
        state.point = point
