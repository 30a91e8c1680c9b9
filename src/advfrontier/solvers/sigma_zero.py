"""σ-zero, ℓ0 of features or pixels.

Adam on the clipped margin plus a smooth surrogate of ℓ0, with gradients scaled to dual size 1.
After each step the features below an adaptive threshold are set back to their original value. In
the pixel-wise ℓ0 surrogate and threshold take the Euclidean length of a pixel's change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, adam, cosine
from advfrontier.threat.norms import TINY


@dataclass
class SigmaZeroState:
    """Point with Adam's moments (n, d), and the threshold of each sample (n,).

    Args:
        point: (n, d), the point to evaluate.
        first: (n, d), Adam's mean of gradients.
        second: (n, d), Adam's mean of their squares.
        threshold: (n,), size below which a change is undone.
    """

    point: Tensor
    first: Tensor
    second: Tensor
    threshold: Tensor


@dataclass(frozen=True)
class SigmaZero:
    """σ-zero: gradient-based optimisation of ℓ0-norm adversarial examples.

    Cinà, Villani, Pintor, Schönherr, Biggio and Pelillo: σ-zero: Gradient-based Optimization of
    ℓ0-norm Adversarial Examples, ICLR 2025, arXiv:2402.01879.

    Args:
        eta: First rate of Adam, which falls to a tenth along a cosine.
        sigma: Width σ of the surrogate (1/d)·Σ δ²/(δ² + σ).
        tau: First threshold τ.
        t: Change of the threshold in one step, over Adam's rate.
    """

    eta: float = 1.0
    sigma: float = 5e-4
    tau: float = 0.3
    t: float = 0.01

    def start(self, problem: Problem) -> SigmaZeroState:
        """Start with moments of 0 and a high threshold."""
        point = problem.starts.clone()
        threshold = torch.full_like(problem.boundary, self.tau)
        return SigmaZeroState(point, torch.zeros_like(point), torch.zeros_like(point), threshold)

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Descend the margin."""
        return "margin"

    def step(self, problem: Problem, state: SigmaZeroState, i: int, answer: Answer) -> None:
        """Take one step of Adam, adapt the threshold, and undo the changes below it."""
        δ = state.point - problem.inputs
        norm = problem.norm
        width = norm.spread(norm.squares(δ).add_(self.sigma).square_())
        surrogate = δ.mul_(2 * self.sigma / norm.units).div_(width)  # its gradient
        g = answer.gradient.mul_((answer.loss >= 0)[:, None]).add_(surrogate)
        g.div_(norm.dual_size(g).clamp_(min=TINY)[:, None])
        scale, factor = adam(state.first, state.second, g, i)
        rate = factor * self._rate(problem, i)
        point = norm.clamp_(torch.addcdiv(state.point, state.first, scale, value=-rate))

        move = self.t * self._rate(problem, i + 1)
        higher, lower = state.threshold + move, state.threshold - move
        state.threshold = torch.where(answer.misclassified, higher, lower).clamp_(0, 1)
        change = norm.magnitudes(point - problem.inputs)
        kept = norm.spread(change.sub_(state.threshold[:, None]).sign_().clamp_(min=0))
        state.point = torch.lerp(problem.inputs, point, kept)  # exact for weights of 0 and 1

    def _rate(self, problem: Problem, i: int) -> float:
        """Return Adam's rate at step i."""
        return cosine(self.eta, self.eta / 10, i, problem.steps)
