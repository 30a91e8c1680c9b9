"""Decoupled Direction and Norm (DDN), ℓ2."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, cosine, length, random_where_lost


@dataclass
class DDNState:
    """State of DDN.

    Args:
        point: (n, d), the point to evaluate.
        radius: (n,), radius of the sphere that the point was put on.
    """

    point: Tensor
    radius: Tensor


@dataclass(frozen=True)
class DDN:
    """Step along the unit gradient of the cross-entropy, then rescale onto a sphere.

    The radius of the sphere shrinks by a constant factor while the point is misclassified and grows
    by it while the point is not.

    Rony, Hafemann, Oliveira, Ben Ayed, Sabourin and Granger, "Decoupling Direction and Norm for
    Efficient Gradient-Based L2 Adversarial Attacks and Defenses", CVPR 2019, arXiv 1811.09600.

    Args:
        gamma: Relative change of the radius in a step.
        radius: Radius at the first step.
    """

    gamma: float = 0.05
    radius: float = 1.0

    def start(self, problem: Problem) -> DDNState:
        """Start from the input, with the given radius."""
        return DDNState(problem.starts.clone(), torch.full_like(problem.boundary, self.radius))

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the cross-entropy."""
        return "ce"

    def step(self, problem: Problem, state: DDNState, i: int, answer: Answer) -> None:
        """Step along the gradient, change the radius, rescale."""
        α = cosine(1.0, 0.01, i, problem.steps)
        gradient, size = random_where_lost(problem, answer, i)
        δ = (state.point - problem.inputs).addcmul_(gradient, (-α / size)[:, None])

        smaller, larger = (1 - self.gamma) * state.radius, (1 + self.gamma) * state.radius
        radius = torch.where(answer.misclassified, smaller, larger)
        state.radius = torch.minimum(radius, problem.largest)
        scale = (state.radius / length(δ))[:, None]
        state.point = problem.norm.clamp_(torch.addcmul(problem.inputs, δ, scale))
