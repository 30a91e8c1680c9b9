"""Augmented Lagrangian Method for Adversarial attacks (ALMA), ℓ1 and ℓ2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, random_where_lost
from advfrontier.threat.thresholds import TINY

_DOUBLINGS = 60.0  # what the box may take from the first step is made up for by 2^60 at most
_BISECTIONS = 26  # of these 60, to a relative precision of 1e-6


class Defaults(NamedTuple):
    """Defaults of ALMA's parameters in a norm.

    Args:
        distance: How far the first step moves, in the norm.
        rate_decrease: Share of the first step size that is left at the last step.
        releases: Whether the momentum of features that the box stops is dropped.
    """

    distance: float
    rate_decrease: float
    releases: bool


_BY_NORM = {"L1": Defaults(0.5, 0.003, releases=True)}
_ELSEWHERE = Defaults(0.1, 0.01, releases=False)


@dataclass
class ALMAState:
    """State of ALMA.

    Args:
        point: (n, d), the point to evaluate.
        square: (n, d), RMSprop's running mean of the squared gradient.
        momentum: (n, d), running sum of the scaled gradients.
        rate: (n,), step size before it decays.
        μ: (n,), multiplier of the penalty.
        ρ: (n,), weight of the penalty.
        checked: (n,), value of the constraint at the last check.
        first_success: (n,), step at which the constraint held first; beyond the last step before.
    """

    point: Tensor
    square: Tensor
    momentum: Tensor
    rate: Tensor
    μ: Tensor
    ρ: Tensor
    checked: Tensor
    first_success: Tensor


@dataclass(frozen=True)
class ALMA:
    """Minimise the distance plus a penalty on a constraint, the difference of logits ratio s < 0.

    The multiplier μ of the penalty follows its slope, and its weight ρ grows while s does not fall.
    The steps are RMSprop's with momentum, and decay from the first success on.

    Rony, Granger, Pedersoli and Ben Ayed, "Augmented Lagrangian Adversarial Attacks", ICCV 2021,
    arXiv 2011.11857.

    Args:
        distance: How far the first step moves, in the norm; 0 takes `rate` as it is. By default 0.5
            in ℓ1 and 0.1 elsewhere.
        rate: Step size where the first step cannot be measured.
        rate_decrease: Share of the first step size that is left at the last step. By default 0.003
            in ℓ1 and 0.01 elsewhere.
        check_steps: Steps between two checks of s.
        tau: Factor by which s has to fall between two checks, or ρ grows.
        gamma: Factor by which ρ grows.
        alpha: Share that the running means of μ, square and momentum keep in a step.
    """

    distance: float | None = None
    rate: float = 0.1
    rate_decrease: float | None = None
    check_steps: int = 10
    tau: float = 0.95
    gamma: float = 1.2
    alpha: float = 0.9

    def start(self, problem: Problem) -> ALMAState:
        """Start from the input, with μ, ρ and the mean of the squared gradient at one."""
        point = problem.starts.clone()
        one = torch.ones_like(problem.boundary)
        return ALMAState(
            point=point,
            square=torch.ones_like(point),
            momentum=torch.zeros_like(point),
            rate=self.rate * one,
            μ=one,
            ρ=one.clone(),
            checked=one.clone(),
            first_success=torch.full_like(one, problem.steps + 1),
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the difference of logits ratio, plus a small tolerance."""
        return "dlr_plus"

    def step(self, problem: Problem, state: ALMAState, i: int, answer: Answer) -> None:
        """Adapt the penalty, then step on distance plus penalty."""
        s = answer.loss
        self._adapt_penalty(problem, state, i, s)
        succeeded = (s < 0) & (state.first_success > problem.steps)
        state.first_success = torch.where(succeeded, i, state.first_success)

        gradient = answer.gradient
        if i == 0:
            gradient, _ = random_where_lost(problem, answer, i)
        gradient = gradient.mul_(slope(s, state.ρ, state.μ)[:, None])
        if i == 0:
            state.rate = self._first_rate(problem, gradient)
        else:
            gradient.add_(problem.norm.subgradient(state.point - problem.inputs))

        state.square.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        scaled = gradient.div_(state.square.sqrt().add_(1e-8))
        state.momentum.mul_(self.alpha).add_(scaled)
        rate = self._rate(problem, state, i)
        ahead = torch.addcmul(state.point, state.momentum, -rate[:, None])
        state.point = problem.norm.clamp_(ahead)
        if self._defaults(problem).releases:
            self._release(problem, state)

    def _adapt_penalty(self, problem: Problem, state: ALMAState, i: int, s: Tensor) -> None:
        """Raise ρ where s did not fall since the last check, and let μ follow the slope."""
        if i == 0:
            state.checked = s.clone()
            return
        if (i + 1) % self.check_steps == 0:
            falling = (state.first_success < problem.steps) | (s < self.tau * state.checked)
            state.ρ = torch.where(falling, state.ρ, self.gamma * state.ρ)
            state.checked = s.clone()
        μ = torch.lerp(slope(s, state.ρ, state.μ), state.μ, self.alpha)
        state.μ = μ.clamp_(1e-6, 1e12)

    def _first_rate(self, problem: Problem, gradient: Tensor) -> Tensor:
        """Return the step size at which a plain gradient step moves each sample by `distance`.

        The distance grows with the step size, so its exponent is bisected: at least the step size
        without the box. Where the box has no room for that distance, the step goes half as far as
        the box allows.
        """
        x, norm = problem.inputs, problem.norm
        usual = torch.full_like(problem.boundary, self.rate)
        wanted = self._defaults(problem).distance if self.distance is None else self.distance
        if wanted == 0:
            return usual
        most = norm.distance(norm.clamp_(x - gradient.sign()), x)
        goal = (most / 2).clamp_(max=wanted)
        unbounded = goal / norm.size(gradient).clamp(min=TINY)
        low, high = torch.zeros_like(goal), torch.full_like(goal, _DOUBLINGS)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            rate = unbounded * middle.exp2()
            ahead = norm.clamp_(torch.addcmul(x, gradient, -rate[:, None]))
            moved = norm.distance(ahead, x)
            beyond = moved > goal
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        return torch.where(goal > 0, unbounded * ((low + high) / 2).exp2(), usual)

    def _rate(self, problem: Problem, state: ALMAState, i: int) -> Tensor:
        """Return the step size, which decays exponentially from the first success to the end."""
        decrease = self.rate_decrease
        if decrease is None:
            decrease = self._defaults(problem).rate_decrease
        waited = (i - state.first_success).clamp_(min=0) / (problem.steps - state.first_success)
        return state.rate * torch.pow(decrease, waited)

    def _release(self, problem: Problem, state: ALMAState) -> None:
        """Drop momentum that pushes against the box.

        It would keep a feature at the end of the box long after its gradient has changed sign.
        """
        ahead = problem.norm.clamp_(state.point - state.momentum.sign())
        state.momentum.mul_(ahead.sub_(state.point).abs_().sign_())

    @staticmethod
    def _defaults(problem: Problem) -> Defaults:
        return _BY_NORM.get(problem.norm.name, _ELSEWHERE)


def slope(s: Tensor, ρ: Tensor, μ: Tensor) -> Tensor:
    """Return the slope of the penalty P2: μs + μρs² + ρ²s³/6 for s ≥ 0, μs/(1 − ρs) below.

    Args:
        s: (n,), value of the constraint, negative where it holds.
        ρ: (n,), weight of the penalty.
        μ: (n,), multiplier of the penalty.
    """
    above = μ + 2 * μ * ρ * s + ρ * ρ * s * s / 2
    below = μ / (1 - ρ * s.clamp(max=0)).square()
    return torch.where(s >= 0, above, below)
