"""The loop that advances units.

The engine alone decides what is misclassified, measures distances on the stored points and keeps the best one. A unit
stopped at q queries is exactly the first q queries of the full run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.engine.expectation import (
    LAST_LOOK,
    ask,
    clearly_misclassified,
    mean,
    typical,
    vote,
)
from advfrontier.engine.margins import safety
from advfrontier.engine.unit import Unit, measure
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT
from advfrontier.solvers import Answer
from advfrontier.solvers.protocol import length
from advfrontier.threat.losses import LOSSES, margin
from advfrontier.threat.norms import TINY

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle
    from advfrontier.engine.race import RaceUnit


@torch.no_grad()
def advance(
    oracle: Oracle,
    units: Sequence[Unit],
    queries: Sequence[int],
    *,
    tick: Callable[[int], object] | None = None,
) -> None:
    """Run each unit on to its number of queries. Units are packed into one batch, and leave it when they are done.

    Packing units of small shards makes better batches; results are then equal up to rounding only. `tick` is told how
    many sample-queries were just spent.
    """
    for unit, stop in zip(units, queries, strict=True):
        horizon = CHECKPOINT * len(unit.trajectory)
        if stop % CHECKPOINT or not unit.queries <= stop <= horizon:
            raise FrontierError(
                f"cannot advance {unit.run} from {unit.queries} to {stop} queries: "
                f"expected a multiple of {CHECKPOINT} from there to {horizon}"
            )
    oracle.purpose = "attack"
    for cost in sorted(
        {unit.solver.facts.step_queries for unit in units}
    ):  # black-box rows need no backward pass
        active = [
            pair
            for pair in zip(units, queries, strict=True)
            if pair[0].solver.facts.step_queries == cost
        ]
        while active := [
            (unit, stop) for unit, stop in active if unit.queries < stop and unit.rows
        ]:
            batch = Batch([unit for unit, _ in active])
            for _ in range(min(stop - unit.queries for unit, stop in active) // cost):
                batch.step(oracle)
                if tick is not None:
                    tick(cost * len(batch.inputs))


class Batch:
    """Units that share a batch, one after the other: what stays the same at every step is joined once.

    Their best points become parts of one tensor. The rows of the batch stand where `places` says, if it is given.
    """

    def __init__(self, units: Sequence[Unit], places: Tensor | None = None) -> None:
        self.units, self.places, self.sizes = units, places, [unit.rows for unit in units]
        self.cost, self.norm = units[0].solver.facts.step_queries, units[0].problem.norm
        self.inputs, self.labels, self.margin = (
            _joined([getattr(unit.problem, name) for unit in units])
            for name in ("inputs", "labels", "margin")
        )
        self.clean_spread = _joined([unit.clean_spread for unit in units])
        self.best_point = _joined([unit.best_point for unit in units])
        self.best_distance = _joined([unit.best_distance for unit in units])
        self._parts: list[tuple[str, slice, Tensor | None]] = []
        self._names: list[str] = []
        for unit, point in zip(units, torch.split(self.best_point, self.sizes), strict=True):
            unit.best_point = point

    def step(self, oracle: Oracle) -> None:
        """One step of all units: evaluate their points, keep what is better, take gradients, let the solvers move."""
        points = _joined([unit.state.point for unit in self.units])
        batch = (
            points
            if self.places is None
            else torch.empty_like(points).index_copy_(0, self.places, points)
        )
        images = (
            batch.detach().view(-1, *self.units[0].problem.shape).requires_grad_(self.cost == 2)
        )
        names = [unit.solver.loss(unit.queries // self.cost) or "margin" for unit in self.units]
        if names != self._names:
            self._names, self._parts = names, self._alike(names)
        reply = ask(oracle, images, self._loss)
        gradient = (
            points.new_empty(len(points), 0)
            if reply.gradient is None
            else reply.gradient.flatten(1)
        )
        passes = reply.passes
        if self.places is not None:
            passes, gradient = (
                passes.index_select(1, self.places),
                gradient.index_select(0, self.places),
            )
        own = (
            len(self._parts) == 1 and self._parts[0][2] is None and names[0] == "margin"
        )  # the loss is the margin
        seen = self._judge(
            points, passes, gradient, loss=reply.loss, margins=reply.loss if own else None
        )
        self._keep(oracle, points, seen)
        parts = {name: torch.split(each, self.sizes) for name, each in seen.items()}
        for k, unit in enumerate(self.units):
            unit.best_distance = parts["best_distance"][k]
            answer = Answer(
                **{name: rows[k] for name, rows in parts.items()}, best_point=unit.best_point
            )
            unit.solver.step(unit.problem, unit.state, unit.queries // self.cost, answer)
            unit.queries += self.cost
        if (
            self.units[0].queries % CHECKPOINT == 0
        ):  # all units of a batch reach checkpoints together
            measured = torch.split(
                measure(self.norm, self.best_point, self.inputs, self.best_distance), self.sizes
            )
            for unit, distances in zip(self.units, measured, strict=True):
                unit.trajectory[unit.queries // CHECKPOINT - 1] = distances

    def _alike(self, names: list[str]) -> list[tuple[str, slice, Tensor | None]]:
        """Neighbours with the same loss, and all with a target or all without: its name, their rows and targets."""
        parts, first = [], 0
        kinds = zip(names, self.units, strict=True)
        for (name, _), group in groupby(
            kinds, lambda kind: (kind[0], kind[1].problem.targets is None)
        ):
            own = [unit for _, unit in group]
            targets = [unit.problem.targets for unit in own if unit.problem.targets is not None]
            last = first + sum(unit.rows for unit in own)
            parts.append((name, slice(first, last), _joined(targets) if targets else None))
            first = last
        return parts

    def _loss(self, logits: Tensor) -> Tensor:
        """The loss of every row, by which its unit goes."""
        rows = logits if self.places is None else logits.index_select(0, self.places)
        if len(self._parts) == 1:  # cutting out all rows would cost another pass back through them
            name, _, targets = self._parts[0]
            return LOSSES[name](rows, self.labels, targets, self.margin)
        return torch.cat(
            [
                LOSSES[name](rows[own], self.labels[own], targets, self.margin[own])
                for name, own, targets in self._parts
            ]
        )

    def _judge(
        self,
        points: Tensor,
        passes: Tensor,
        gradient: Tensor,
        *,
        loss: Tensor,
        margins: Tensor | None,
    ) -> dict[str, Tensor]:
        """What an answer tells that does not depend on the solver, for the rows of all units at once."""
        logits = mean(passes)
        needed = safety(logits, self.clean_spread)
        size, gradient = self._inspect(gradient, needed)
        if margins is None:
            margins = typical(torch.stack([margin(z, self.labels) for z in passes]))
        margins = margins.nan_to_num(
            0, 0, 0
        )  # a model that fails at one point must not poison the solver's state
        wrong = margins < -needed
        distance = self.norm.distance(points, self.inputs)
        # Nearer by more than rounding, so that distances measured in float64 never rise along a trajectory.
        improved = wrong & (
            distance < (1 - 8 * torch.finfo(distance.dtype).eps) * self.best_distance
        )
        return {
            "logits": logits.to(points.dtype),  # a model may answer in float64, and is judged in it
            "loss": loss.nan_to_num(0, 0, 0).to(points.dtype),
            "gradient": gradient,
            "length": size,
            "margin": margins.to(points.dtype),
            "misclassified": wrong,
            "distance": distance,
            "improved": improved,
        }

    def _inspect(self, gradient: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
        """Length and gradient; rows that vanish or are not finite are counted, and the latter set to zero.

        `needed` is the margin that would count: not finite where any logit is not.
        """
        whole = math.isfinite(
            float(needed.sum())
        )  # a fraction of the time that asking every row takes
        size = length(gradient) if gradient.shape[1] else gradient.sum(1)
        low, high = torch.aminmax(size) if gradient.shape[1] else (1.0, 1.0)
        if whole and float(low) > TINY and float(high) < torch.inf:  # not when one of them is NaN
            return size, gradient
        finite = size.isfinite()
        bad, zero = ~(finite & needed.isfinite()), torch.zeros_like(finite)
        if gradient.shape[1]:
            gradient = torch.where(finite[:, None], gradient, 0)
            size = length(gradient)
            zero = size <= TINY
        counted = (torch.split(bad, self.sizes), torch.split(zero, self.sizes))
        for unit, bad_rows, zero_rows in zip(self.units, *counted, strict=True):
            unit.bad_gradients += bad_rows
            unit.zero_gradients += zero_rows
        return size, gradient

    def _keep(self, oracle: Oracle, points: Tensor, seen: dict[str, Tensor]) -> None:
        """Keep the points that are the best so far."""
        improved = seen["improved"]
        rows = improved.nonzero().squeeze(1)
        if oracle.eot > 1 and len(rows):
            failed = rows[~self._confirmed(oracle, points, rows)]
            seen["misclassified"][failed] = improved[failed] = False
            rows = improved.nonzero().squeeze(1)
        self.best_distance = seen["best_distance"] = torch.where(
            improved, seen["distance"], self.best_distance
        )
        kept = points.index_select(0, rows)
        if (
            len(rows) and not 0 <= float(kept.amin()) <= float(kept.amax()) <= 1
        ):  # of a solver of another package
            names = ", ".join(sorted({unit.solver.facts.name for unit in self.units}))
            raise FrontierError(
                f"a point of {names} has left [0, 1]: expected the solver to clamp what it tries"
            )
        self.best_point.index_copy_(0, rows, kept)

    def _confirmed(self, oracle: Oracle, points: Tensor, rows: Tensor) -> Tensor:
        """Which of these hold in fresh passes, charged to verification: those that led here may have been luck."""
        images = points.index_select(0, rows).view(-1, *self.units[0].problem.shape)
        oracle.purpose = "verification"
        held = clearly_misclassified(oracle, images, self.labels.index_select(0, rows), "search")
        oracle.purpose = "attack"
        return held


def _joined(rows: list[Tensor]) -> Tensor:
    """The rows of all tensors, one after the other; a single one as it is."""
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def classify(oracle: Oracle, unit: Unit | RaceUnit, *, batch_size: int) -> tuple[Tensor, Tensor]:
    """The class of every kept point, seen again in other batches than it was found in; -1 where there is none.

    And the share of passes that misclassify it: one pass over every kept point, 1000 with EOT, charged to verification.
    """
    oracle.purpose, passes = "verification", 1 if oracle.eot == 1 else LAST_LOOK
    classes = torch.full(
        (unit.rows,), -1, device="cpu"
    )  # whatever PyTorch's default device and precision are
    shares = torch.zeros(unit.rows, dtype=torch.float32, device="cpu")
    kept = (unit.best_distance < torch.inf).nonzero().squeeze(1).to(unit.best_point.device)
    for rows in (
        torch.split(kept, batch_size) if len(kept) else ()
    ):  # not every model takes an empty batch
        images = unit.best_point[rows].view(-1, *unit.problem.shape)
        share, seen = vote(oracle, images, unit.problem.labels[rows], "last look", passes)
        classes[rows.cpu()], shares[rows.cpu()] = seen.cpu(), share.float().cpu()
    return classes, shares
