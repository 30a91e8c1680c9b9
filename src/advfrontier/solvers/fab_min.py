"""Fast Adaptive Boundary attack (Croce and Hein, 2020), ℓ1, ℓ2 and ℓ∞.

Take the boundary for the hyperplane on which the linearised margin vanishes, project both the present point and the
input onto it inside the box, and go a little beyond a mean of the two. A misclassified point is first taken back
towards the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, keep_rows, random_where_lost
from advfrontier.threat.hyperplanes import move_onto_hyperplane
from advfrontier.threat.norms import TINY

_BEYOND = 2e-5  # of the largest logit: twice the margin below which a point does not yet count as misclassified


@dataclass
class FabMinState:
    """Where the search stands, and for how many steps it has not been misclassified."""

    point: Tensor
    waited: Tensor


@dataclass(frozen=True)
class FabMin:
    """η is how far to go, over the way to the hyperplane; β the share of its way that a misclassified point keeps.

    α is the most weight that the input's projection gets; it falls by `fading` with every step that is not
    misclassified, or the pull of the input can hold the search inside the boundary for ever. 1 is the published rule.
    """

    facts: ClassVar[SolverFacts] = CATALOGUE["fab_min"]

    eta: float = 1.05
    alpha: float = 0.1
    beta: float = 0.9
    fading: float = 1.1

    def start(self, problem: Problem) -> FabMinState:
        """From the input, or half-way to the restart's point."""
        return FabMinState(
            torch.lerp(problem.inputs, problem.starts, 0.5), torch.zeros_like(problem.boundary)
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the margin, and towards a target the label's logit minus the target's."""
        return "difference"

    def step(self, problem: Problem, state: FabMinState, i: int, answer: Answer) -> None:
        """Go back if misclassified, project onto the hyperplane, mix in the input's projection."""
        random_where_lost(problem, answer, i)
        norm, x = problem.norm, problem.inputs
        broken = ~answer.logits.isfinite().all(1)  # nothing is known there: only go back
        size = answer.logits.abs().amax(1).nan_to_num_(0, 0, 0)
        gap = (answer.loss + _BEYOND * size) / answer.length
        slope = answer.gradient.div_(answer.length[:, None])

        kept = torch.where(answer.misclassified | broken, self.beta, torch.ones_like(gap))[:, None]
        point = torch.lerp(x, state.point, kept)  # exact for a weight of 1
        both = torch.stack([point, x])
        gaps = gap + torch.linalg.vecdot(
            both - state.point, slope
        )  # at both points, to first order
        own, other = move_onto_hyperplane(norm, both, slope, gaps)

        state.waited = torch.where(answer.misclassified, 0, state.waited + 1)
        α = self.alpha * self.fading**-state.waited
        a, b = norm.size(own), norm.size(other)
        α = torch.minimum(a / (a + b).clamp_(min=TINY), α)[:, None]
        aim = torch.lerp(point.add(own, alpha=self.eta), x.add(other, alpha=self.eta), α).clamp_(
            0, 1
        )
        keep_rows(broken, (aim, point))
        state.point = aim
