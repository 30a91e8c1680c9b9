"""Prune, ℓ0: take changed features back one at a time, and exchange them for better ones.

In the pixel-wise ℓ0 a pixel with all of its channels stands for a feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advfrontier.solvers.protocol import Answer, Problem, where_rows
from advfrontier.solvers.sparse_min import other_end

_OVERSHOOT = 1e-3  # of the margin to overcome, so that a linear model is crossed and not touched
_BOLD = 3  # proposals that rebuild the whole perturbation, before single features are tried


@dataclass
class PruneState:
    """State of Prune.

    The anchor is the nearest misclassified point so far; before the first success, the last point.

    Args:
        point: (n, d), the point to evaluate.
        anchor: (n, d), the anchor.
        gradient: (n, d), gradient of the margin at the anchor.
        margin: (n,), margin at the anchor.
        tries: (n,), proposals since the anchor moved.
    """

    point: Tensor
    anchor: Tensor
    gradient: Tensor
    margin: Tensor
    tries: Tensor


@dataclass(frozen=True)
class Prune:
    """Change fewer features than the anchor does, guided by a linear model of the margin there.

    Before the first success, the fewest features that bring the linear margin to zero are moved to
    the end of the box, as SparseFool does on one hyperplane. After it, each anchor gets these
    proposals until one succeeds: the fewest features of the linear model; the best features but
    one; the changed features but one, at the ends of the box; the anchor without one of its
    features, the least useful first; the anchor without two, plus the best unchanged one. On a
    linear model the first of them is the optimum.

    After Modas, Moosavi-Dezfooli and Frossard, SparseFool: a few pixels make a big difference,
    CVPR 2019, arXiv:1811.02248.
    """

    def start(self, problem: Problem) -> PruneState:
        """Start at the input, the restart's point or the point to refine."""
        point = problem.starts.clone()
        return PruneState(
            point=point,
            anchor=point.clone(),
            gradient=torch.zeros_like(point),
            margin=problem.margin.clone(),
            tries=torch.zeros_like(problem.boundary),
        )

    def loss(self, i: int) -> str:  # noqa: ARG002
        """Differentiate the margin."""
        return "margin"

    def step(self, problem: Problem, state: PruneState, i: int, answer: Answer) -> None:  # noqa: ARG002
        """Move the anchor if the point was a success, and propose the next point."""
        moved = answer.improved | ~answer.found
        state.anchor = where_rows(moved, state.point, state.anchor)
        state.gradient = where_rows(moved, answer.gradient, state.gradient)
        state.margin = torch.where(moved, answer.loss, state.margin)
        state.tries = torch.where(moved, 0, state.tries + 1)

        ends = other_end(problem.norm, problem.inputs, -state.gradient.sign())
        gain = (problem.inputs - ends).mul_(state.gradient).clamp_(min=0)
        gain = problem.norm.totals(gain)
        rebuilt = self._rebuilt(problem, state, answer, ends, gain)
        thinned = self._thinned(problem, state, ends, gain)
        taken_back = answer.found & (state.tries >= _BOLD)
        state.point = where_rows(taken_back, thinned, rebuilt)

    def _rebuilt(
        self, problem: Problem, state: PruneState, answer: Answer, ends: Tensor, gain: Tensor
    ) -> Tensor:
        """Move the features with the largest gains to the end of the box.

        Before the first success, those are added to the anchor until the linear margin is below
        zero. After it, they replace the anchor's features: as many as are enough in the linear
        model; one fewer than the anchor's; one fewer, of the anchor's alone.
        """
        norm = problem.norm
        δ = state.anchor - problem.inputs
        changed = norm.magnitudes(δ).sign_()
        unchanged = 1 - changed
        eligible = where_rows(state.tries == _BOLD - 1, changed, torch.ones_like(changed))
        eligible = where_rows(answer.found, eligible, unchanged)
        ranked, order = (gain * eligible).sort(dim=1, descending=True, stable=True)

        from_input = state.margin - torch.linalg.vecdot(state.gradient, δ)
        needed = torch.where(answer.found, from_input, state.margin)
        short = ranked.cumsum(1) < ((1 + _OVERSHOOT) * needed)[:, None]
        enough = short.to(gain.dtype).sum(1) + 1
        one_fewer = changed.sum(1) - 1
        fewest = torch.where(state.tries == 0, torch.minimum(enough, one_fewer), one_fewer)
        count = torch.where(answer.found, fewest, enough)

        places = torch.arange(gain.shape[1], device=gain.device)
        chosen = torch.zeros_like(gain).scatter_(1, order, (places < count[:, None]).to(gain.dtype))
        base = where_rows(answer.found, problem.inputs, state.anchor)
        return torch.lerp(base, ends, norm.spread(chosen))

    def _thinned(self, problem: Problem, state: PruneState, ends: Tensor, gain: Tensor) -> Tensor:
        """Take one feature of the anchor back; after all of them, exchange two for one."""
        norm = problem.norm
        δ = state.anchor - problem.inputs
        changed = norm.magnitudes(δ).sign_()
        count = changed.sum(1).clamp_(min=1)
        number = (state.tries - _BOLD).clamp_(min=0)
        # Each feature's share in lowering the margin, the least first; unchanged ones come last.
        order = torch.where(changed > 0, norm.totals(δ * state.gradient), -torch.inf).argsort(
            dim=1, descending=True, stable=True
        )
        one = order.gather(1, number.remainder(count)[:, None].long())
        two = order.gather(1, (number + 1).remainder(count)[:, None].long())
        one, two = norm.features_of(one), norm.features_of(two)
        without_one = state.anchor.scatter(1, one, problem.inputs.gather(1, one))
        without_two = without_one.scatter(1, two, problem.inputs.gather(1, two))
        best = norm.features_of((gain * (1 - changed)).argmax(1, keepdim=True))
        exchanged = without_two.scatter(1, best, ends.gather(1, best))
        return where_rows((number >= count) & (count > 2), exchanged, without_one)
