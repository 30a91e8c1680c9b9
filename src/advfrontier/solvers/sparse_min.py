"""Sparse random search with fewer and fewer features, ℓ0, black box: only logits are asked for.

After Sparse-RS (Croce et al., 2022): some features are at an end of the box, a few of them are exchanged for others,
and the change stays if it lowers the margin. After a success the search goes on with fewer features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers.protocol import Answer, Problem, cosine, margin_found
from advfrontier.threat.random import uniform
from advfrontier.threat.thresholds import largest


@dataclass
class SparseMinState:
    """How many features may change, the point kept so far with its margin, and the point being tried."""

    point: Tensor
    features: Tensor
    kept: Tensor
    margin: Tensor  # inf where no point with so few features has been tried


@dataclass(frozen=True)
class SparseMin:
    """γ is the relative change of the number of features, `share` how many of them a step exchanges; both shrink."""

    facts: ClassVar[SolverFacts] = CATALOGUE["sparse_min"]

    gamma: float = 0.3
    gamma_final: float = 0.01
    growth: float = 0.05  # of the number of features, until there is a success
    share: float = 0.1
    share_final: float = 0.01

    def start(self, problem: Problem) -> SparseMinState:
        """Random features at random ends of the box: as many as first order says, but half of all at most.

        A run that polishes begins with the features of its start, and tries to do with fewer.
        """
        x = problem.inputs
        if problem.polishes:
            point, features = (
                problem.starts.clone(),
                (problem.norm.distance(problem.starts, x) - 1).clamp_(min=1),
            )
            return SparseMinState(
                point, features, point.clone(), torch.full_like(features, torch.inf)
            )
        features = torch.minimum(problem.boundary, problem.largest / 2).ceil()
        order, ends = _draws(problem, "start")
        point = torch.where(_lowest(order, features), ends, x)
        return SparseMinState(point, features, x.clone(), torch.full_like(features, torch.inf))

    def loss(self, i: int) -> None:  # noqa: ARG002
        """None: this solver needs no gradient."""
        return

    def step(self, problem: Problem, state: SparseMinState, i: int, answer: Answer) -> None:
        """Keep what lowered the margin, go on with fewer features after a success, exchange some."""
        x, success = problem.inputs, answer.misclassified
        margin = margin_found(answer)
        better = margin < state.margin
        state.kept = torch.where(better[:, None], state.point, state.kept)
        state.features = torch.where(
            success, self._fewer(problem, i, answer), self._more(problem, state, answer)
        )
        state.margin = torch.where(success, torch.inf, torch.minimum(margin, state.margin))

        order, ends = _draws(problem, f"swap {i}")
        changed = state.kept != x
        surplus = changed.sum(1) - state.features
        share = cosine(self.share, self.share_final, i, problem.steps)
        swapped = torch.where(success, 0, (share * state.features).ceil())
        dropped = _lowest(order.masked_fill(~changed, torch.inf), surplus + swapped)
        added = _lowest(order.masked_fill(changed, torch.inf), swapped.maximum(-surplus))
        state.point = torch.where(added, ends, torch.where(dropped, x, state.kept))

    def _fewer(self, problem: Problem, i: int, answer: Answer) -> Tensor:
        γ = cosine(
            self.gamma / 6 if problem.polishes else self.gamma, self.gamma_final, i, problem.steps
        )
        return torch.minimum(
            answer.best_distance - 1, ((1 - γ) * answer.best_distance).floor()
        ).clamp_(min=1)

    def _more(self, problem: Problem, state: SparseMinState, answer: Answer) -> Tensor:
        grown = torch.maximum(state.features + 1, ((1 + self.growth) * state.features).floor())
        return torch.where(answer.found, state.features, torch.minimum(grown, problem.largest))


def _draws(problem: Problem, stream: str) -> tuple[Tensor, Tensor]:
    """A random order of the features, and a random end of the box for each that is not its present value."""
    x = problem.inputs
    drawn = uniform(problem.seeds, problem.ids, stream, x.shape[1])
    digits = drawn * 2**20  # beyond the point: they say nothing about the order
    digits -= np.floor(digits)  # several times as fast as % 1
    ends = torch.from_numpy(digits).to(x).round_()
    return torch.from_numpy(drawn).to(x), torch.where(ends == x, 1 - ends, ends)


def _lowest(keys: Tensor, count: Tensor) -> Tensor:
    """Which entries of each row are its `count` lowest; infinite ones never are."""
    place = (count.long() - 1).clamp_(max=keys.shape[1] - 1)[:, None]
    most = max(int(place.amax()), 0) + 1 if len(keys) else 1
    last = -largest(-keys, most).gather(1, place.clamp(min=0))
    # One comparison of all entries: nothing is as low as -inf, and infinite entries are above the largest number.
    return keys <= last.clamp_(max=torch.finfo(keys.dtype).max).masked_fill_(place < 0, -torch.inf)
