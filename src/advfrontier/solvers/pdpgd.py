"""Primal-Dual Proximal Gradient Descent, in any norm.

As PDGD, but Adam descends the margin alone. The norm's proximal step, in the metric that Adam uses,
then makes the perturbation smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.pdgd import PrimalDual, PrimalDualState
from advfrontier.solvers.protocol import Answer, Problem, adam


@dataclass(frozen=True)
class PDPGD(PrimalDual):
    """Primal-Dual Proximal Gradient Descent.

    Matyasko and Chau: PDPGD: Primal-Dual Proximal Gradient Descent Adversarial Attack, 2021,
    arXiv:2106.01538. Scaling small margins is ours, and so is the number of proximal steps, which
    is the same for all samples.

    Args:
        proximal_steps: Number of steps of the inner iteration, in norms that take one. The other
            parameters are those of `PrimalDual`.
    """

    proximal_steps: int = 5

    def step(self, problem: Problem, state: PrimalDualState, i: int, answer: Answer) -> None:
        """Take one step of Adam, the proximal step, and one sign step on the dual variable."""
        g = answer.gradient.mul_(self._slope(problem, answer.loss)[:, None])
        scale, factor = adam(state.first, state.second, g, i)
        rate = self._rate(problem, i)
        δ = torch.addcdiv(state.point, state.first, scale, value=-factor * rate)
        problem.norm.clamp_(δ).sub_(problem.inputs)
        largest = scale.amax(1)
        bias = math.sqrt(1 - 0.999 ** (i + 1))
        ratio = (1 - state.margin_weight) / state.margin_weight
        μ = ratio.mul_(rate * bias).div_(largest)
        metric = scale.div_(largest[:, None])
        # The proximal step only shrinks entries, so nothing leaves the box but by rounding.
        ahead = self._proximal(problem, δ, μ, metric).add_(problem.inputs)
        state.point = problem.norm.clamp_(ahead)
        self._dual_step(problem, state, i, answer.loss)

    def _proximal(self, problem: Problem, δ: Tensor, μ: Tensor, metric: Tensor) -> Tensor:
        """Return a perturbation that lowers μ·‖z‖ + ½·Σ metric·(z − δ)² over z: (n, d)."""
        return problem.norm.prox_in_metric(δ, μ, metric, steps=self.proximal_steps)
