"""Square search with a shrinking radius, ℓ1, ℓ2 and ℓ∞, black box: only logits are asked for.

After the Square Attack (Andriushchenko et al., 2020): the perturbation changes on a random square, and the change stays
if it lowers the margin. In ℓ∞ it is ± the radius everywhere, and the square gets new signs; `windows` has the moves of
ℓ1 and ℓ2. A success shrinks the radius, as in FMN; the same perturbation is then tried at the new radius, which either
succeeds again or gives the margin to improve on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine, keep_rows, margin_found
from advfrontier.solvers.windows import DRAWS, corner, move, pour, tiles
from advfrontier.threat.norms import TINY
from advfrontier.threat.random import uniform

# When the square's area halves, in ten-thousandths of the horizon. The Square Attack's own times are those of ten times
# as many queries: with fewer, larger squares for longer reach smaller distances.
_HALVINGS: dict[str, tuple[int, ...]] = {
    "Linf": (50, 200, 500, 1000, 2000, 4000, 6000, 8000),
    "L2": (100, 500, 2000, 5000),
    "L1": (100, 500, 2000, 5000),
}
# A run that polishes begins where the area has been halved so often, and halves it three times more.
_HALVED = {"Linf": 6, "L2": 5, "L1": 3}


@dataclass
class SquareMinState:
    """The perturbation kept so far with its margin at this radius, and the one being tried; both over the radius."""

    point: Tensor
    radius: Tensor
    kept: Tensor
    margin: Tensor  # inf where the perturbation has not been tried at this radius
    trial: Tensor
    draws: Tensor  # (n, steps, numbers a step takes) in (0, 1)


@dataclass(frozen=True)
class SquareMin:
    """γ is the relative shrinking of the radius; `area` the share of the image that the first squares cover."""

    facts: ClassVar[SolverFacts] = CATALOGUE["square_min"]

    reach: float | None = (
        None  # the first radius, over the first-order estimate of the boundary: 2 in ℓ∞, 1 elsewhere
    )
    gamma: float = 0.015
    gamma_final: float = 0.001
    area: float = 0.8

    def start(self, problem: Problem) -> SquareMinState:
        """Stripes (ℓ∞) or tiles of random sign, at most half as far as the box goes; or what is to be improved on."""
        channels, height, width = shape = _image(problem.shape)
        numbers = channels + (2 if problem.norm.name == "Linf" else DRAWS)
        if problem.norm.name == "Linf":
            stripes = (
                _draws(problem, "stripes", channels * width)
                .sub_(0.5)
                .sign_()
                .view(-1, channels, 1, width)
            )
            kept = stripes.expand(-1, channels, height, width).flatten(1).contiguous()
            radius = ((self.reach or 2.0) * problem.boundary).clamp_(max=0.5)
        else:
            kept = tiles(shape, _draws(problem, "tiles", channels * height * width))
            kept = kept.div_(problem.norm.size(kept)[:, None])
            radius = torch.minimum((self.reach or 1.0) * problem.boundary, problem.largest / 2)
        if problem.polishes:
            size = problem.norm.distance(problem.starts, problem.inputs)
            found = (
                size > 0
            )  # where nothing was found before there is nothing to improve on: the search begins anew
            own = (problem.starts - problem.inputs).div_(size.clamp(min=TINY)[:, None])
            kept = torch.where(found[:, None], own, kept)
            radius = torch.where(found, (1 - self._gamma(problem, 0)) * size, radius)
        point = torch.addcmul(problem.inputs, kept, radius[:, None]).clamp_(0, 1)
        draws = _draws(problem, "patches", problem.steps * numbers).view(-1, problem.steps, numbers)
        return SquareMinState(
            point, radius, kept, torch.full_like(radius, torch.inf), kept.clone(), draws
        )

    def loss(self, i: int) -> None:  # noqa: ARG002
        """None: this solver needs no gradient."""
        return

    def step(self, problem: Problem, state: SquareMinState, i: int, answer: Answer) -> None:
        """Keep what lowered the margin, shrink the radius on success, try the next square."""
        success = answer.misclassified
        tried = state.trial
        if (
            problem.norm.name != "Linf"
        ):  # what the box has left of it, of size 1 again where the radius follows
            size = torch.where(success, answer.distance, state.radius).clamp_(min=TINY)
            tried = (state.point - problem.inputs).div_(size[:, None])
        margin = margin_found(answer)
        keep_rows(margin < state.margin, (state.kept, tried))
        γ = self._gamma(problem, i)
        # Without any success yet the radius grows; after one, failing at this radius only means to go on searching.
        grown = torch.where(
            answer.found, state.radius, torch.minimum((1 + γ) * state.radius, problem.largest)
        )
        state.radius = torch.where(success, (1 - γ) * answer.best_distance, grown)
        state.margin = torch.where(success, torch.inf, torch.minimum(margin, state.margin))
        changed = self._changed(problem, state, i)
        state.trial = torch.where(success[:, None], state.kept, changed)
        state.point = torch.addcmul(problem.inputs, state.trial, state.radius[:, None]).clamp_(0, 1)

    def _changed(self, problem: Problem, state: SquareMinState, i: int) -> Tensor:
        """The perturbation kept so far with a random square changed; in ℓ∞ to one new sign per channel."""
        _channels, height, width = shape = _image(problem.shape)
        side = self._side(problem, i, height * width)
        draw = state.draws[:, i]
        if problem.norm.name == "L1":
            return pour(shape, state.kept, side, draw, inputs=problem.inputs, radius=state.radius)
        if problem.norm.name == "L2":
            return move(
                shape, state.kept, max(side, 3) // 2 * 2 + 1, draw
            )  # odd, so that there is a middle
        rows, columns = min(side, height), min(side, width)
        top, left = (
            (draw[:, :1] * (height - rows + 1)).long(),
            (draw[:, 1:2] * (width - columns + 1)).long(),
        )
        places = (top * width + left) + corner(shape, rows, columns).to(draw.device)
        return state.kept.scatter(
            1, places, (draw[:, 2:] - 0.5).sign().repeat_interleave(rows * columns, dim=1)
        )

    def _gamma(self, problem: Problem, i: int) -> float:
        γ = cosine(self.gamma, self.gamma_final, i, problem.steps)
        return γ / 4 if problem.polishes else γ

    def _side(self, problem: Problem, i: int, pixels: int) -> int:
        if problem.polishes:
            halvings = _HALVED[problem.norm.name] + 4 * i // problem.steps
        else:
            halvings = sum(
                10_000 * i / problem.steps > limit for limit in _HALVINGS[problem.norm.name]
            )
        share = self.area / 2**halvings
        return max(round(math.sqrt(share * pixels)), 1)


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; samples that are not images count as one row of one channel."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    return 1, 1, math.prod(shape)


def _draws(problem: Problem, stream: str, count: int) -> Tensor:
    """Numbers in (0, 1): below 1 also when rounded to float32, or a window would leave the image."""
    drawn = torch.from_numpy(uniform(problem.seeds, problem.ids, stream, count)).to(problem.inputs)
    return drawn.clamp_(max=1 - torch.finfo(drawn.dtype).eps)
