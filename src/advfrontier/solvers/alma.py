"""Augmented Lagrangian Method for Adversarial attacks (Rony et al., 2021), ℓ1 and ℓ2.

Minimise the distance plus a penalty on the difference of logits ratio s, whose multiplier μ follows the penalty's slope
and whose weight ρ grows while s does not fall; RMSprop steps with momentum, decaying from the first success on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, random_where_lost, unit

_DOUBLINGS, _BISECTIONS = 60, 20


class Usual(NamedTuple):
    """What None stands for in a norm."""

    distance: float
    rate_decrease: float
    keep_momentum: bool


# In ℓ2 rate and momentum are as published, because the departures of ℓ1 do not help there.
BY_NORM = {"L1": Usual(0.5, 0.003, keep_momentum=False), "L2": Usual(0.1, 0.01, keep_momentum=True)}


@dataclass
class AlmaState:
    """The point with RMSprop's averages, its step size, and the multiplier and weight of the penalty."""

    point: Tensor
    square: Tensor
    momentum: Tensor
    rate: Tensor
    μ: Tensor
    ρ: Tensor
    checked: Tensor  # s at the last check
    first_success: Tensor  # step of the first s < 0, beyond the horizon before it


@dataclass(frozen=True)
class Alma:
    """`distance` is how far the first step goes, as published; 0 uses the plain `rate` instead, as adv-lib does.

    None stands for the norm's own value, which the table above holds.
    """

    facts: ClassVar[SolverFacts] = CATALOGUE["alma"]

    distance: float | None = None
    rate: float = 0.1
    rate_decrease: float | None = None  # published: 0.01
    check_steps: int = 10
    tau: float = 0.95
    gamma: float = 1.2
    alpha: float = 0.9
    keep_momentum: bool | None = (
        None  # True is as published: also momentum that pushes against the box
    )
    loss_name: str = "dlr_plus"  # plain_dlr_plus: the published tolerance, and no measure of our own for few classes

    def start(self, problem: Problem) -> AlmaState:
        """Multiplier and weight of one, and a running square of ones."""
        point = problem.starts.clone()
        one = torch.ones_like(problem.boundary)
        never = torch.full_like(one, problem.steps + 1)
        square, momentum = torch.ones_like(point), torch.zeros_like(point)
        return AlmaState(
            point, square, momentum, one * self.rate, one, one.clone(), one.clone(), never
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Always the difference of logits ratio with ALMA's tolerance."""
        return self.loss_name

    def step(self, problem: Problem, state: AlmaState, i: int, answer: Answer) -> None:
        """Adapt the penalty, then one step on distance plus penalty."""
        s, g = answer.loss, answer.gradient
        usual = BY_NORM[problem.norm.name]
        if i == 0:
            state.checked = s.clone()
        elif (i + 1) % self.check_steps == 0:
            falling = (state.first_success < problem.steps) | (s < self.tau * state.checked)
            state.ρ = torch.where(falling, state.ρ, self.gamma * state.ρ)
            state.checked = s.clone()
        if i > 0:
            state.μ = torch.lerp(_slope(s, state.ρ, state.μ), state.μ, self.alpha).clamp_(
                1e-6, 1e12
            )
        succeeded = (s < 0) & (state.first_success > problem.steps)
        state.first_success = torch.where(succeeded, i, state.first_success)

        g.mul_(_slope(s, state.ρ, state.μ)[:, None])
        if i == 0:
            random_where_lost(problem, answer, i)
            self._first_step(
                problem, state, g, usual.distance if self.distance is None else self.distance
            )
        else:
            δ = state.point - problem.inputs
            g.add_(δ.sign_() if problem.norm.name == "L1" else unit(δ))
        state.square.lerp_(g * g, 1 - self.alpha)
        state.momentum.mul_(self.alpha).add_(g.div_(state.square.sqrt().add_(1e-8)))
        waited = (i - state.first_success).clamp_(min=0) / (problem.steps - state.first_success)
        rate = (
            state.rate
            * (usual.rate_decrease if self.rate_decrease is None else self.rate_decrease) ** waited
        )
        state.point = torch.addcmul(state.point, state.momentum, -rate[:, None]).clamp_(0, 1)
        if not (usual.keep_momentum if self.keep_momentum is None else self.keep_momentum):
            # What pushes against the box would keep the feature there long after its gradient has turned.
            free = (
                (state.point - state.momentum.sign()).clamp_(0, 1).sub_(state.point).abs_().sign_()
            )
            state.momentum.mul_(free)

    @staticmethod
    def _first_step(problem: Problem, state: AlmaState, g: Tensor, wanted: float) -> None:
        """Choose each sample's step size so that the first plain gradient step moves it by the wanted distance."""
        if wanted == 0:
            return

        def moved(rate: Tensor) -> Tensor:
            point = (problem.inputs - rate[:, None] * g).clamp_(0, 1)
            return problem.norm.distance(point, problem.inputs)

        # No more than half of what the box allows in that direction, which no rate can pass.
        most = problem.norm.distance((problem.inputs - g.sign()).clamp_(0, 1), problem.inputs)
        goal = (most / 2).clamp_(max=wanted)
        high = torch.ones_like(state.rate)
        for _ in range(_DOUBLINGS):
            short = moved(high) <= goal
            if not short.any():
                break
            high = torch.where(short, 2 * high, high)
        low = torch.zeros_like(high)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            beyond = moved(middle) > goal
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        state.rate = (low + high) / 2


def _slope(s: Tensor, ρ: Tensor, μ: Tensor) -> Tensor:
    """Derivative of the penalty P2: μs + μρs² + ρ²s³/6 for s ≥ 0, μs/(1 − ρs) below."""
    return torch.where(s >= 0, μ + 2 * μ * ρ * s + ρ * ρ * s * s / 2, μ / (1 - ρ * s).square())
