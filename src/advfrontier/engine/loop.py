"""The loop that advances units.

The engine alone decides what is misclassified, measures distances on the stored points and keeps the best one. A unit
stopped at q queries is exactly the first q queries of the full run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advfrontier.engine.expectation import LAST_LOOK, ask, clearly_misclassified, mean, typical, vote
from advfrontier.engine.margins import safety
from advfrontier.engine.unit import Unit
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT
from advfrontier.solvers import Answer
from advfrontier.solvers.protocol import length
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import TINY

if TYPE_CHECKING:
    from advfrontier.engine.oracle import Oracle
    from advfrontier.engine.race import RaceUnit


@torch.no_grad()
def advance(
    oracle: Oracle, units: Sequence[Unit], queries: Sequence[int], *, tick: Callable[[int], object] | None = None
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
    for cost in sorted({unit.solver.facts.step_queries for unit in units}):  # black-box rows need no backward pass
        active = [pair for pair in zip(units, queries, strict=True) if pair[0].solver.facts.step_queries == cost]
        while active := [(unit, stop) for unit, stop in active if unit.queries < stop and unit.rows]:
            step(oracle, [unit for unit, _ in active], cost)
            if tick is not None:
                tick(cost * sum(unit.rows for unit, _ in active))


def step(oracle: Oracle, units: list[Unit], cost: int, places: Tensor | None = None) -> None:
    """One step of all units: evaluate their points, keep what is better, take gradients, let the solvers move.

    The rows of the batch are those of the units, one unit after the other, or stand where `places` says.
    """
    first, sizes = units[0], [unit.rows for unit in units]
    points = batch = _joined([unit.state.point for unit in units])
    if places is not None:
        batch = torch.empty_like(points).index_copy_(0, places, points)
    images = batch.detach().view(-1, *first.problem.shape).requires_grad_(cost == 2)
    names = [unit.solver.loss(unit.queries // cost) or "margin" for unit in units]

    def losses(logits: Tensor) -> Tensor:
        if len(units) == 1 and places is None:  # splitting would cost another pass back through it
            return first.problem.loss(names[0], logits)
        rows = torch.split(logits if places is None else logits.index_select(0, places), sizes)
        return torch.cat([unit.problem.loss(name, z) for name, z, unit in zip(names, rows, units, strict=True)])

    reply = ask(oracle, images, losses)
    gradient = points.new_empty(len(points), 0) if reply.gradient is None else reply.gradient.flatten(1)
    passes = reply.passes
    if places is not None:
        passes, gradient = passes.index_select(1, places), gradient.index_select(0, places)
    own = len(units) == 1 and first.problem.targets is None and names[0] == "margin"  # the loss is the margin itself
    seen = _judge(units, points, passes, gradient, loss=reply.loss, margins=reply.loss if own else None)
    parts = {name: torch.split(each, sizes) for name, each in seen.items()}
    for k, unit in enumerate(units):
        _tell(oracle, unit, {name: rows[k] for name, rows in parts.items()})
        unit.queries += cost
        if unit.queries % CHECKPOINT == 0:
            unit.trajectory[unit.queries // CHECKPOINT - 1] = unit.distances()


def _joined(rows: list[Tensor]) -> Tensor:
    """The rows of all tensors, one after the other; a single one as it is."""
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _judge(
    units: list[Unit], points: Tensor, passes: Tensor, gradient: Tensor, *, loss: Tensor, margins: Tensor | None
) -> dict[str, Tensor]:
    """What an answer tells that does not depend on the solver, for the rows of all units at once."""
    logits = mean(passes)
    needed = safety(logits, _joined([unit.clean_spread for unit in units]))
    size, gradient = _inspect(units, gradient, needed)
    if margins is None:
        labels = _joined([unit.problem.labels for unit in units])
        margins = typical(torch.stack([margin(z, labels) for z in passes]))
    margins = margins.nan_to_num(0, 0, 0)  # a model that fails at one point must not poison the solver's state
    wrong = margins < -needed
    distance = units[0].problem.norm.distance(points, _joined([unit.problem.inputs for unit in units]))
    best = _joined([unit.best_distance for unit in units])
    # Nearer by more than rounding, so that distances measured in float64 never rise along a trajectory.
    improved = wrong & (distance < (1 - 8 * torch.finfo(distance.dtype).eps) * best)
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


def _tell(oracle: Oracle, unit: Unit, seen: dict[str, Tensor]) -> None:
    """Keep the points that are the best so far, and let the solver move on."""
    improved = seen["improved"]
    if oracle.eot > 1 and improved.any():
        failed = improved.nonzero().squeeze(1)[~_confirmed(oracle, unit, improved)]
        seen["misclassified"][failed] = improved[failed] = False
    unit.best_distance = torch.where(improved, seen["distance"], unit.best_distance)
    rows = improved.nonzero().squeeze(1)
    unit.best_point.index_copy_(0, rows, unit.state.point.index_select(0, rows))
    answer = Answer(**seen, best_point=unit.best_point, best_distance=unit.best_distance)
    unit.solver.step(unit.problem, unit.state, unit.queries // unit.solver.facts.step_queries, answer)


def _confirmed(oracle: Oracle, unit: Unit, rows: Tensor) -> Tensor:
    """Which of these points hold in fresh passes, charged to verification: those that led here may have been luck."""
    images = unit.state.point[rows].view(-1, *unit.problem.shape)
    oracle.purpose = "verification"
    found = clearly_misclassified(oracle, images, unit.problem.labels[rows], "search")
    oracle.purpose = "attack"
    return found


def _inspect(units: list[Unit], gradient: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
    """Length and gradient; rows that vanish or are not finite are counted, and the latter set to zero.

    `needed` is the margin that would count: not finite where any logit is not.
    """
    whole = math.isfinite(float(needed.sum()))  # a fraction of the time that asking every row takes
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
    sizes = [unit.rows for unit in units]
    for unit, bad_rows, zero_rows in zip(units, torch.split(bad, sizes), torch.split(zero, sizes), strict=True):
        unit.bad_gradients += bad_rows
        unit.zero_gradients += zero_rows
    return size, gradient


def classify(oracle: Oracle, unit: Unit | RaceUnit, *, batch_size: int) -> tuple[Tensor, Tensor]:
    """The class of every kept point, seen again in other batches than it was found in; -1 where there is none.

    And the share of passes that misclassify it: one pass over every kept point, 1000 with EOT, charged to verification.
    """
    oracle.purpose, passes = "verification", 1 if oracle.eot == 1 else LAST_LOOK
    classes, shares = torch.full((unit.rows,), -1), torch.zeros(unit.rows)
    kept = (unit.best_distance < torch.inf).nonzero().squeeze(1).to(unit.best_point.device)
    for rows in torch.split(kept, batch_size) if len(kept) else ():  # not every model takes an empty batch
        images = unit.best_point[rows].view(-1, *unit.problem.shape)
        share, seen = vote(oracle, images, unit.problem.labels[rows], "last look", passes)
        classes[rows.cpu()], shares[rows.cpu()] = seen.cpu(), share.float().cpu()
    return classes, shares
