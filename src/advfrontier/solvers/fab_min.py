"""Fast Adaptive Boundary attack, ℓ1, ℓ2 and ℓ∞.

Take the boundary for the hyperplane on which the linearised margin vanishes, project both the
present point and the input onto it inside the box, and go a little beyond a mean of the two. A
misclassified point is first taken back towards the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, random_where_lost, where_rows
from advfrontier.threat.norms import TINY

_BEYOND = 2e-5  # of the largest logit: twice the margin that a misclassification needs


@dataclass
class FABMinState:
    """State of FAB: its point (n, d), and steps since it was last misclassified (n,).

    Args:
        point: (n, d), the point to evaluate.
        waited: (n,), steps since the point was last misclassified.
    """

    point: Tensor
    waited: Tensor


@dataclass(frozen=True)
class FABMin:
    """Fast Adaptive Boundary attack with one hyperplane: of the margin, or towards the target.

    Croce and Hein: Minimally distorted Adversarial Examples with a Fast Adaptive Boundary Attack,
    ICML 2020, arXiv:1907.02044. The fading of α is ours: the pull of the input can hold the search
    inside the boundary for ever.

    Args:
        eta: How far to go, over the way to the hyperplane.
        alpha: Largest weight of the input's projection in the mean.
        beta: Share of its way from the input that a misclassified point keeps.
        fading: Factor by which α falls with every step that is not misclassified; 1 is published.
    """

    eta: float = 1.05
    alpha: float = 0.1
    beta: float = 0.9
    fading: float = 1.1

    def start(self, problem: Problem) -> FABMinState:
        """Start from the input, or half-way to the restart's point."""
        point = torch.lerp(problem.inputs, problem.starts, 0.5)
        return FABMinState(point, torch.zeros_like(problem.boundary))

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Descend the margin; towards a target, the label's logit minus the target's."""
        return "difference"

    def step(self, problem: Problem, state: FABMinState, i: int, answer: Answer) -> None:
        """Go back if misclassified, project onto the hyperplane, mix in the input's projection."""
        norm, x = problem.norm, problem.inputs
        gradient, length = random_where_lost(problem, answer, i)
        slope = gradient.div_(length[:, None])
        logits = answer.logits.abs().amax(1)
        known = logits < torch.inf  # else the model failed here: only go back
        gap = (answer.loss + _BEYOND * logits.nan_to_num(0, 0, 0)) / length

        kept = torch.where(answer.misclassified | ~known, self.beta, 1.0).to(gap.dtype)
        point = torch.lerp(x, state.point, kept[:, None])  # exact for a weight of 1
        # The gaps at both points, to first order around the point that was evaluated.
        here = torch.linalg.vecdot(point - state.point, slope).add_(gap)
        there = torch.linalg.vecdot(x - state.point, slope).add_(gap)
        own = norm.move_onto_hyperplane(point, slope, here)
        other = norm.move_onto_hyperplane(x, slope, there)

        state.waited = torch.where(answer.misclassified, 0, state.waited + 1)
        a, b = norm.size(own), norm.size(other)
        α = torch.minimum(a / (a + b).clamp_(min=TINY), self.alpha * self.fading**-state.waited)
        ahead = torch.add(point, own, alpha=self.eta)
        aim = norm.clamp_(ahead.lerp_(torch.add(x, other, alpha=self.eta), α[:, None]))
        state.point = where_rows(known, aim, point)
