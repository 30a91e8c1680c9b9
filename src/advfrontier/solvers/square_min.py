"""Square search with a shrinking radius, ℓ∞, black box: only logits are asked for.

After the Square Attack (Andriushchenko et al., 2020): the perturbation is ± the radius everywhere, a random square
gets new signs, and the change stays if it lowers the margin. A success shrinks the radius, as in FMN; the same signs
are then tried at the new radius, which either succeeds again or gives the margin to improve on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine
from advfrontier.threat.random import uniform

# When the patch's area halves, in ten-thousandths of the horizon. The Square Attack also halves it at 10: with a fifth
# of its queries, larger patches for longer reach smaller distances.
_HALVINGS = (50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass
class SquareMinState:
    """The signs kept so far with their margin at this radius, and the signs being tried."""

    point: Tensor
    radius: Tensor
    signs: Tensor
    margin: Tensor  # inf where the signs have not been tried at this radius
    trial: Tensor
    draws: Tensor  # (n, steps, 2 + channels) in (0, 1): where each step's patch goes, and its signs


@dataclass(frozen=True)
class SquareMin:
    """γ is the relative shrinking of the radius; `area` the share of the image that the first patches cover."""

    facts: ClassVar[SolverFacts] = CATALOGUE["square_min"]

    reach: float = 2.0  # the first radius, over the first-order estimate of the boundary
    gamma: float = 0.015
    gamma_final: float = 0.001
    area: float = 0.8

    def start(self, problem: Problem) -> SquareMinState:
        """Vertical stripes of random sign, at a radius that should succeed, but at most half the box."""
        channels, height, width = _image(problem.shape)
        stripes = _signs(problem, "stripes", channels * width).view(-1, channels, 1, width)
        signs = stripes.expand(-1, channels, height, width).flatten(1).contiguous()
        radius = (self.reach * problem.boundary).clamp_(max=0.5)
        point = (problem.inputs + signs * radius[:, None]).clamp_(0, 1)
        drawn = uniform(problem.seed, problem.ids, "patches", problem.steps * (2 + channels))
        draws = torch.from_numpy(drawn).to(point).view(-1, problem.steps, 2 + channels)
        return SquareMinState(point, radius, signs, torch.full_like(radius, torch.inf), signs.clone(), draws)

    def loss(self, i: int) -> None:  # noqa: ARG002
        """None: this solver needs no gradient."""
        return

    def step(self, problem: Problem, state: SquareMinState, i: int, answer: Answer) -> None:
        """Keep what lowered the margin, shrink the radius on success, try the next patch."""
        better = answer.margin < state.margin
        rows = better.nonzero().squeeze(1)
        state.signs.index_copy_(0, rows, state.trial.index_select(0, rows))
        γ = cosine(self.gamma, self.gamma_final, i, problem.steps)
        success = answer.misclassified
        # Without any success yet the radius grows; after one, failing at this radius only means to go on searching.
        grown = torch.where(answer.found, state.radius, torch.minimum((1 + γ) * state.radius, problem.largest))
        state.radius = torch.where(success, (1 - γ) * answer.best_distance, grown)
        state.margin = torch.where(success, torch.inf, torch.minimum(answer.margin, state.margin))
        state.trial = self._patched(problem, state, i, ~success)
        state.point = torch.addcmul(problem.inputs, state.trial, state.radius[:, None]).clamp_(0, 1)

    def _patched(self, problem: Problem, state: SquareMinState, i: int, chosen: Tensor) -> Tensor:
        """The signs kept so far, with new ones on a random square in the chosen rows: one sign per channel."""
        channels, height, width = _image(problem.shape)
        progress = 10_000 * i / problem.steps
        share = self.area / 2 ** sum(progress > limit for limit in _HALVINGS)
        side = max(round(math.sqrt(share * height * width)), 1)
        rows, columns = min(side, height), min(side, width)
        draw = state.draws[:, i]
        top, left = (draw[:, :1] * (height - rows + 1)).long(), (draw[:, 1:2] * (width - columns + 1)).long()
        square = _square(channels, height, width, rows, columns).to(draw.device)
        places = (top * width + left) + square
        new = (draw[:, 2:] - 0.5).sign().repeat_interleave(rows * columns, dim=1)
        return state.signs.scatter(1, places, torch.where(chosen[:, None], new, state.signs.gather(1, places)))


@cache
def _square(channels: int, height: int, width: int, rows: int, columns: int) -> Tensor:
    """Where the entries of a square in the top left corner are in a flattened image, channel by channel."""
    image = torch.arange(channels * height * width).view(channels, height, width)
    return image[:, :rows, :columns].flatten()


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; samples that are not images count as one row of one channel."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    return 1, 1, math.prod(shape)


def _signs(problem: Problem, stream: str, count: int) -> Tensor:
    return (torch.from_numpy(uniform(problem.seed, problem.ids, stream, count)) - 0.5).sign().to(problem.inputs)
