"""Square search with a radius that shrinks, ℓ1, ℓ2 and ℓ∞; black box: it asks for logits only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, cosine, margin_found, where_rows
from advfrontier.solvers.windows import DRAWS, Canvas, Shape, move, pour, repaint, stripes, tiles
from advfrontier.threat.thresholds import TINY


@dataclass(frozen=True)
class Rules:
    """Constants of the search in one norm.

    Args:
        pattern: Makes the first perturbation from the image's shape and random numbers.
        change: Changes a perturbation inside random windows of a given side.
        reach: First radius over the first-order estimate of the distance.
        halvings: Shares of the steps after which the windows' area is halved.
        refined: Halvings that a refinement begins with.
        refills: Whether a change gives away what the box has taken from the perturbation.
    """

    pattern: Callable[[Shape, Tensor], Tensor]
    change: Callable[[Canvas, int], Tensor]
    reach: float
    halvings: tuple[float, ...]
    refined: int
    refills: bool


# The Square Attack halves the area at these times over ten times as many queries: with fewer
# queries, larger windows for longer reach smaller distances.
_LINF = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
_MASS = (0.01, 0.05, 0.2, 0.5)
_BY_NORM = {
    "Linf": Rules(stripes, repaint, 2.0, _LINF, 6, refills=False),
    "L1": Rules(tiles, pour, 1.0, _MASS, 3, refills=True),
}
_ELSEWHERE = Rules(tiles, move, 1.0, _MASS, 5, refills=True)


@dataclass
class SquareMinState:
    """State of the square search; perturbations are over the radius.

    Args:
        point: (n, d), the point to evaluate.
        radius: (n,), radius of the perturbations.
        kept: (n, d), the perturbation kept so far.
        margin: (n,), its margin at this radius; inf where it was not tried at this radius.
        trial: (n, d), the perturbation of `point`.
        draws: (n, steps, numbers a step takes), random numbers in (0, 1).
    """

    point: Tensor
    radius: Tensor
    kept: Tensor
    margin: Tensor
    trial: Tensor
    draws: Tensor


@dataclass(frozen=True)
class SquareMin:
    """Change the perturbation in random windows, and keep changes that lower the margin.

    A success shrinks the radius, as in FMN; the same perturbation is then tried at the new radius,
    which either succeeds again or gives the margin to improve on. Before the first success the
    radius grows.

    After Andriushchenko, Croce, Flammarion and Hein, "Square Attack: a Query-efficient Black-box
    Adversarial Attack via Random Search", ECCV 2020, arXiv 1912.00049.

    Args:
        reach: First radius over the first-order estimate of the distance; by default 2 in ℓ∞ and 1
            elsewhere.
        gamma: Relative change of the radius at the first step; a quarter of it in a refinement.
        gamma_final: Relative change of the radius at the last step, along a cosine.
        area: Share of the image that the first windows cover.
    """

    reach: float | None = None
    gamma: float = 0.015
    gamma_final: float = 0.001
    area: float = 0.8

    def start(self, problem: Problem) -> SquareMinState:
        """Start from a random pattern at most half as far as the box goes, or from a best point."""
        shape, rules = image_shape(problem.shape), _rules_of(problem)
        kept = rules.pattern(shape, problem.uniform("pattern", math.prod(shape)))
        kept = kept / problem.norm.size(kept)[:, None]
        reach = rules.reach if self.reach is None else self.reach
        radius = torch.minimum(reach * problem.boundary, problem.largest / 2)
        if problem.refines:
            # Where nothing was found before there is nothing to refine: the search begins anew.
            size = problem.norm.distance(problem.starts, problem.inputs)
            perturbation = (problem.starts - problem.inputs) / size.clamp(min=TINY)[:, None]
            kept = where_rows(size > 0, perturbation, kept)
            radius = torch.where(size > 0, (1 - self._gamma(problem, 0)) * size, radius)
        numbers = DRAWS + shape[0]
        draws = problem.uniform("windows", problem.steps * numbers)
        return SquareMinState(
            point=problem.norm.clamp_(torch.addcmul(problem.inputs, kept, radius[:, None])),
            radius=radius,
            kept=kept,
            margin=torch.full_like(radius, torch.inf),
            trial=kept.clone(),
            draws=draws.view(-1, problem.steps, numbers),
        )

    def loss(self, i: int) -> None:  # noqa: ARG002
        """Ask for no gradient."""
        return

    def step(self, problem: Problem, state: SquareMinState, i: int, answer: Answer) -> None:
        """Keep a change that lowered the margin, shrink the radius on success, try a change."""
        x, success = problem.inputs, answer.misclassified
        self._keep(problem, state, answer)
        state.radius = self._radius(problem, state, i, answer)
        shape = image_shape(problem.shape)
        canvas = Canvas(shape, state.kept, x, state.radius, state.draws[:, i], problem.norm.top)
        changed = _rules_of(problem).change(canvas, self._side(problem, i, shape[1] * shape[2]))
        state.trial = where_rows(success, state.kept, changed)
        state.point = problem.norm.clamp_(torch.addcmul(x, state.trial, state.radius[:, None]))

    def _keep(self, problem: Problem, state: SquareMinState, answer: Answer) -> None:
        """Keep the perturbation that was tried where it lowered the margin."""
        success, margin = answer.misclassified, margin_found(answer)
        tried = state.trial
        if _rules_of(problem).refills:
            # What the box has left; of size 1 again where the radius follows the distance.
            size = torch.where(success, answer.distance, state.radius).clamp_(min=TINY)
            tried = (state.point - problem.inputs).div_(size[:, None])
        lower = (margin < state.margin).to(tried.dtype)[:, None]
        state.kept.lerp_(tried, lower)
        state.margin = torch.where(success, torch.inf, torch.minimum(margin, state.margin))

    def _radius(self, problem: Problem, state: SquareMinState, i: int, answer: Answer) -> Tensor:
        """Shrink below the best distance on success; grow as long as there was none."""
        γ = self._gamma(problem, i)
        grown = torch.minimum((1 + γ) * state.radius, problem.largest)
        missed = torch.where(answer.found, state.radius, grown)
        return torch.where(answer.misclassified, (1 - γ) * answer.best_distance, missed)

    def _gamma(self, problem: Problem, i: int) -> float:
        γ = cosine(self.gamma, self.gamma_final, i, problem.steps)
        return γ / 4 if problem.refines else γ

    def _side(self, problem: Problem, i: int, pixels: int) -> int:
        """Return the side of the windows at step i; a refinement halves their area three times."""
        rules, done = _rules_of(problem), i / problem.steps
        halvings = sum(done > limit for limit in rules.halvings)
        if problem.refines:
            halvings = rules.refined + int(4 * done)
        return max(round(math.sqrt(self.area / 2**halvings * pixels)), 1)


def image_shape(shape: tuple[int, ...]) -> Shape:
    """Return channels, height and width; other samples than images are one row of one channel.

    Args:
        shape: Shape of one sample before flattening.
    """
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    return 1, 1, math.prod(shape)


def _rules_of(problem: Problem) -> Rules:
    return _BY_NORM.get(problem.norm.name, _ELSEWHERE)
