"""Sparse random search with fewer and fewer features, or pixels, ℓ0; black box.

In the pixel-wise ℓ0 a pixel stands for a feature: all of its channels go to an end of the box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, cosine, margin_found
from advfrontier.threat.norms import Norm
from advfrontier.threat.thresholds import keep_largest

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass
class SparseMinState:
    """State of the sparse search.

    Args:
        point: (n, d), the point to evaluate.
        features: (n,), features that may change.
        kept: (n, d), the point kept so far.
        margin: (n,), its margin; inf where no point with so few features was tried.
        ends: (n, d), random signs, from which the ends of the box are taken.
        draws: (n, steps, 2), random numbers in (0, 1).
    """

    point: Tensor
    features: Tensor
    kept: Tensor
    margin: Tensor
    ends: Tensor
    draws: Tensor


@dataclass(frozen=True)
class SparseMin:
    """Exchange some of the features that are at an end of the box, and keep what lowers the margin.

    A success leaves fewer features; before the first success their number grows.

    After Croce, Andriushchenko, Singh, Flammarion and Hein, "Sparse-RS: a Versatile Framework for
    Query-efficient Sparse Black-box Adversarial Attacks", AAAI 2022, arXiv 2006.12834.

    Args:
        gamma: Share of the features that the first success takes away; a sixth of it in a
            refinement.
        gamma_final: That share at the last step, along a cosine.
        growth: Share of the features that is added in a step before the first success.
        share: Share of the features that the first step exchanges.
        share_final: Share that the last step exchanges, along a cosine.
    """

    gamma: float = 0.3
    gamma_final: float = 0.01
    growth: float = 0.05
    share: float = 0.1
    share_final: float = 0.01

    def start(self, problem: Problem) -> SparseMinState:
        """Start from random features at random ends of the box, or from a best point.

        As many features as the first-order estimate says, but half of all at most. A refinement
        begins with the features of its start, and tries to do with fewer.
        """
        x, norm = problem.inputs, problem.norm
        ends = (problem.uniform("ends", x.shape[1]) - 0.5).sign_()
        if problem.refines:
            features = (norm.distance(problem.starts, x) - 1).clamp_(min=1)
            point = problem.starts.clone()
            kept = point.clone()
        else:
            features = torch.minimum(problem.boundary, problem.largest / 2).ceil()
            drawn = problem.uniform("start", norm.units)
            if norm.changeable is not None:
                drawn = drawn * norm.changeable
            chosen = keep_largest(drawn, features)
            point = torch.lerp(x, other_end(norm, x, ends), norm.spread(chosen))
            kept = x.clone()
        return SparseMinState(
            point=point,
            features=features,
            kept=kept,
            margin=torch.full_like(features, torch.inf),
            ends=ends,
            draws=problem.uniform("exchange", 2 * problem.steps).view(-1, problem.steps, 2),
        )

    def loss(self, i: int) -> None:  # noqa: ARG002
        """Ask for no gradient."""
        return

    def step(self, problem: Problem, state: SparseMinState, i: int, answer: Answer) -> None:
        """Keep what lowered the margin, take features away after a success, exchange some."""
        x, norm, success = problem.inputs, problem.norm, answer.misclassified
        margin = margin_found(answer)
        lower = (margin < state.margin).to(x.dtype)[:, None]
        state.kept.lerp_(state.point, lower)
        state.margin = torch.where(success, torch.inf, torch.minimum(margin, state.margin))
        fewer, more = self._fewer(problem, i, answer), self._more(problem, state, answer)
        state.features = torch.where(success, fewer, more)

        changed = norm.magnitudes(state.kept - x).sign_()
        surplus = changed.sum(1) - state.features
        share = cosine(self.share, self.share_final, i, problem.steps)
        exchanged = torch.where(success, 0, (share * state.features).ceil_())
        drop, add = (surplus + exchanged).clamp_(min=0), torch.maximum(exchanged, -surplus)
        units = choose(changed, drop, add, state.draws[:, i], i, changeable=norm.changeable)
        chosen = norm.spread(units)
        ends = other_end(norm, x, state.ends.roll(_jump(i, x.shape[1]), 1))
        point = torch.lerp(state.kept, x, chosen.clamp(max=0).abs_())
        state.point = point.lerp_(ends, chosen.clamp_(min=0))

    def _fewer(self, problem: Problem, i: int, answer: Answer) -> Tensor:
        γ = cosine(
            self.gamma / 6 if problem.refines else self.gamma, self.gamma_final, i, problem.steps
        )
        return ((1 - γ) * answer.best_distance).floor_().clamp_(min=1)

    def _more(self, problem: Problem, state: SparseMinState, answer: Answer) -> Tensor:
        grown = torch.maximum(state.features + 1, ((1 + self.growth) * state.features).floor_())
        grown = torch.minimum(grown, problem.largest)
        return torch.where(answer.found, state.features, grown)


def other_end(norm: Norm, inputs: Tensor, signs: Tensor) -> Tensor:
    """Return an end of the box for each feature: that of its sign, or the other where needed.

    A unit that is at these ends already, such as a white pixel, takes the other ends: each one
    returned differs from the input.

    Args:
        norm: Tells which features are a unit.
        inputs: (n, d) in the box.
        signs: (n, d), −1 for the lower end and 1 for the upper one.
    """
    ends = signs.clamp(min=0)
    if norm.top is not None:
        ends.mul_(norm.top)
    taken = norm.spread(norm.magnitudes(inputs - ends).sign_())  # 0 where the unit is there already
    if norm.top is not None:
        return torch.lerp(norm.top - ends, ends, taken)  # exact for weights of 0 and 1
    return ends.sub_(1).add_(taken).abs_()


def choose(
    changed: Tensor,
    drop: Tensor,
    add: Tensor,
    draws: Tensor,
    i: int,
    *,
    changeable: Tensor | None = None,
) -> Tensor:
    """Choose features at random: return −1 for those to drop, 1 for those to add, else 0: (n, d).

    The features are put in an order that differs from step to step, with neighbours far apart. In
    it every sample takes successive features of either kind, from a random one of its own on. This
    needs no sorting, and the numbers are exact.

    Args:
        changed: (n, d), 1 for features that are changed and 0 for others; it is overwritten.
        drop: (n,), changed features to drop; all of them if there are no more.
        add: (n,), unchanged features to add; all of them if there are no more.
        draws: (n, 2), random numbers in (0, 1).
        i: Index of the step.
        changeable: (1, d), 1 for features that may change and 0 for others; None if all may.
    """
    features = changed.shape[1]
    order, back = _orders(features, i, changed.device)
    ordered = changed.index_select(1, order)
    total = ordered.sum(1)
    if changeable is not None:
        return _choose_among(
            changeable.index_select(1, order), ordered, drop, add, draws
        ).index_select(1, back)
    # The rank of each feature among the changed ones, and among the unchanged ones.
    rank = torch.cumsum(ordered, 1, out=changed)
    other_rank = torch.arange(features, dtype=rank.dtype, device=rank.device) - rank
    dropped = _arc(rank.sub_(1), drop, total, draws[:, 0])
    added = _arc(other_rank, add, features - total, draws[:, 1])
    return added.lerp_(dropped.neg_(), ordered).index_select(1, back)


def _choose_among(
    changeable: Tensor, ordered: Tensor, drop: Tensor, add: Tensor, draws: Tensor
) -> Tensor:
    """Choose as `choose` does, in the order of a step, among the features that may change.

    Args:
        changeable: (1, d), 1 for features that may change and 0 for others.
        ordered: (n, d), 1 for changed features and 0 for others.
        drop: (n,), changed features to drop.
        add: (n,), unchanged features to add.
        draws: (n, 2), random numbers in (0, 1).
    """
    free = (changeable - ordered).clamp_(min=0)
    dropped = _arc(ordered.cumsum(1).sub_(1), drop, ordered.sum(1), draws[:, 0])
    added = _arc(free.cumsum(1).sub_(1), add, free.sum(1), draws[:, 1])
    return added.mul_(free).sub_(dropped.mul_(ordered))


def _arc(rank: Tensor, count: Tensor, total: Tensor, draw: Tensor) -> Tensor:
    """Turn ranks into 1 for `count` successive ones of `total`, from a random one on, else 0."""
    first = (draw * (total - count + 1).clamp_(min=1)).floor_()
    middle = first + (count - 1) / 2
    distance = rank.sub_(middle[:, None]).abs_()
    return distance.neg_().add_((count / 2)[:, None]).sign_().clamp_(min=0)


def _orders(features: int, i: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the order of the features at step i, and where each feature is in it: (d,) each."""
    stride = 1 + int(features * ((i + 1) * _GOLDEN % 1))
    while math.gcd(stride, features) > 1:
        stride += 1
    shift, inverse = _jump(i, features), pow(stride, -1, features)
    place = torch.arange(features, device=device)
    return (place * stride + shift) % features, (place - shift) * inverse % features


def _jump(i: int, features: int) -> int:
    """Return by how many features an order is shifted at step i."""
    return 7919 * (i + 1) % features
