"""A unit, one run on one shard of samples, and the loop that advances units.

The engine alone decides what is misclassified, measures distances on the stored points and keeps the best one. A unit
stopped at q queries is exactly the first q queries of the full run, and can be saved, restored and advanced further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.expectation import LAST_LOOK, ask, clearly_misclassified, mean, typical, vote
from advfrontier.engine.margins import margin_to_go, safety, spread
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT, MAX_QUERIES
from advfrontier.solvers import Answer, Problem, Solver, solver_of
from advfrontier.solvers.protocol import length
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advfrontier.engine.clean import CleanPass
    from advfrontier.engine.oracle import Oracle
    from advfrontier.engine.race import RaceUnit
    from advfrontier.pool import Run
    from advfrontier.threat.norms import Norm


@dataclass
class Unit:
    """One run on one shard: the problem, the solver's state, and what the engine keeps about every sample."""

    run: Run
    solver: Solver
    problem: Problem
    state: Any
    best_point: Tensor
    best_distance: Tensor  # in working precision: steers the search; what is recorded is measured on the point
    trajectory: Tensor  # (checkpoints, n) float64 on the CPU: best distance after 10, 20, … queries
    zero_gradients: Tensor  # steps on which the sample's gradient vanished
    bad_gradients: Tensor  # … or its logits or gradient were not finite, and taken for zero
    clean_spread: Tensor  # of the logits at the inputs: by this scale a margin counts or not
    queries: int = 0  # spent on every sample so far

    @property
    def rows(self) -> int:
        """Samples of the shard."""
        return len(self.problem.inputs)

    def distances(self) -> Tensor:
        """Distances of the kept points, measured in float64 on the points as stored; inf where there is none."""
        host = "cpu" if self.best_point.device.type == "mps" else self.best_point.device  # MPS has no float64
        points, inputs = self.best_point.to(host, torch.float64), self.problem.inputs.to(host, torch.float64)
        measured = self.problem.norm.distance(points, inputs)
        return torch.where(self.best_distance.to(host) < torch.inf, measured, torch.inf).cpu()

    def parts(self) -> dict[str, Tensor]:
        """All tensors that have one row per sample and change on the way."""
        state = {f"state.{each.name}": getattr(self.state, each.name) for each in fields(self.state)}
        return {name: getattr(self, name) for name in _KEPT} | state

    def take(self, parts: Mapping[str, Tensor]) -> None:
        """Take over copies of what `parts()` of an equal unit returned."""
        self._set({name: parts[name].to(old, copy=True) for name, old in self.parts().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as a flat dictionary of tensors of its own."""
        kept = self.parts() | {"trajectory": self.trajectory}
        return {name: tensor.detach().cpu().clone() for name, tensor in kept.items()} | {
            "queries": torch.tensor(self.queries)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors()` of an equal unit returned."""
        self.take(tensors)
        self.trajectory[: len(tensors["trajectory"])] = tensors["trajectory"]  # stored only as far as the unit had come
        self.queries = int(tensors["queries"])

    def select(self, rows: Tensor, queries: int) -> Unit:
        """Some samples of the unit, which have spent so many queries, as a unit of their own."""
        parts = {name: tensor.index_select(0, rows) for name, tensor in self.parts().items()}
        selected = replace(self, problem=self.problem.select(rows), queries=queries)
        return _filled(selected, parts, self.clean_spread.index_select(0, rows))

    def join(self, others: Sequence[Unit]) -> Unit:
        """The samples of this unit and of others of its solver that are at the same step, one after the other."""
        if not others:
            return self
        units = [self, *others]
        all_parts = [unit.parts() for unit in units]
        parts = {name: torch.cat([each[name] for each in all_parts]) for name in all_parts[0]}
        joined = replace(self, problem=self.problem.join([unit.problem for unit in others]))
        return _filled(joined, parts, torch.cat([unit.clean_spread for unit in units]))

    def put(self, rows: Tensor, selected: Unit, first: int = 0) -> None:
        """Take these samples back, from row `first` of `selected` on.

        Two parts of a state may be one tensor, so none is changed in place.
        """
        own, back = self.parts(), selected.parts()
        self._set({name: own[name].index_copy(0, rows, back[name][first : first + len(rows)]) for name in own})

    def _set(self, parts: Mapping[str, Tensor]) -> None:
        for name, tensor in parts.items():
            setattr(self.state if name.startswith("state.") else self, name.removeprefix("state."), tensor)


_KEPT = ("best_point", "best_distance", "zero_gradients", "bad_gradients")


def _filled(unit: Unit, parts: Mapping[str, Tensor], clean_spread: Tensor) -> Unit:
    """The unit with these parts, and a trajectory of its own."""
    state = {name.removeprefix("state."): tensor for name, tensor in parts.items() if name.startswith("state.")}
    kept: dict[str, Any] = {name: parts[name] for name in _KEPT}
    trajectory = unit.trajectory.new_full((len(unit.trajectory), len(clean_spread)), torch.inf)
    return replace(unit, state=type(unit.state)(**state), clean_spread=clean_spread, trajectory=trajectory, **kept)


def start_unit(
    oracle: Oracle,
    run: Run,
    images: Tensor,
    clean: CleanPass,
    *,
    norm: Norm,
    seed: int,
    solver: Solver | None = None,
    horizon: int = MAX_QUERIES,
) -> Unit:
    """Set a run up on a shard of correctly classified samples; `clean` holds the same rows. No queries are spent."""
    solver, x = solver or solver_of(run), oracle.images(images).detach().flatten(1).contiguous()
    boundary = clean.boundary.to(x)
    run_seed = seed + (run.index if run.variant == "restart" else 0)
    restart = run.variant == "restart"
    targets = clean.targets[:, run.index - 1] if run.variant == "target" else None
    problem = Problem(
        inputs=x,
        labels=oracle.labels(clean.labels),
        targets=targets.to(oracle.device) if targets is not None else None,
        norm=norm,
        steps=horizon // solver.facts.step_queries,
        starts=norm.random_start(x, boundary, seed=run_seed, ids=clean.ids) if restart else x,
        margin=margin_to_go(clean.logits, clean.labels, targets).to(x),
        boundary=boundary,
        largest=norm.largest(x),
        shape=tuple(images.shape[1:]),
        seeds=np.full(len(x), run_seed),
        ids=clean.ids,
    )
    return Unit(
        run=run,
        solver=solver,
        problem=problem,
        state=solver.start(problem),
        best_point=x.clone(),
        best_distance=torch.full_like(boundary, torch.inf),
        trajectory=torch.full((horizon // CHECKPOINT, len(x)), torch.inf, dtype=torch.float64),
        zero_gradients=x.new_zeros(len(x), dtype=torch.int32),
        bad_gradients=x.new_zeros(len(x), dtype=torch.int32),
        clean_spread=spread(clean.logits).to(x.device),
    )


def polishing(unit: Unit, starts: Tensor, horizon: int, *, seed: int) -> Unit:
    """The same run as one of so many queries that improves on these points; `seed` is added to the run's own."""
    problem = replace(
        unit.problem,
        starts=starts,
        steps=horizon // unit.solver.facts.step_queries,
        seeds=unit.problem.seeds + seed,
        polishes=True,
    )
    trajectory = unit.trajectory.new_full((horizon // CHECKPOINT, unit.rows), torch.inf)
    return replace(unit, problem=problem, state=unit.solver.start(problem), trajectory=trajectory)


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
    first = units[0]
    points = first.state.point if len(units) == 1 else torch.cat([unit.state.point for unit in units])
    if places is not None:
        points = torch.empty_like(points).index_copy_(0, places, points)
    images = points.detach().view(-1, *first.problem.shape).requires_grad_(cost == 2)
    sizes = [unit.rows for unit in units]
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
    parts = (torch.split(passes, sizes, dim=1), torch.split(reply.loss, sizes), torch.split(gradient, sizes))
    for unit, z, loss, part in zip(units, *parts, strict=True):
        own = part if len(units) == 1 else part.clone()
        _tell(oracle, unit, z, loss, own)
        unit.queries += cost
        if unit.queries % CHECKPOINT == 0:
            unit.trajectory[unit.queries // CHECKPOINT - 1] = unit.distances()


def _tell(oracle: Oracle, unit: Unit, passes: Tensor, loss: Tensor, gradient: Tensor) -> None:
    """Keep the point if it is the best so far, and let the solver move on."""
    logits = mean(passes)
    point, problem, i = unit.state.point, unit.problem, unit.queries // unit.solver.facts.step_queries
    needed = safety(logits, unit.clean_spread)
    size, gradient = _inspect(unit, gradient, needed)
    loss = loss.nan_to_num(0, 0, 0)  # a model that fails at one point must not poison the solver's state
    own = problem.targets is None and unit.solver.loss(i) in ("margin", None)
    gap = loss if own else typical(torch.stack([margin(z, problem.labels) for z in passes])).nan_to_num_(0, 0, 0)
    wrong = gap < -needed
    distance = problem.norm.distance(point, problem.inputs)
    # Nearer by more than rounding, so that distances measured in float64 never rise along a trajectory.
    improved = wrong & (distance < (1 - 8 * torch.finfo(distance.dtype).eps) * unit.best_distance)
    if oracle.eot > 1 and improved.any():
        failed = improved.nonzero().squeeze(1)[~_confirmed(oracle, unit, improved)]
        wrong[failed] = improved[failed] = False
    unit.best_distance = torch.where(improved, distance, unit.best_distance)
    rows = improved.nonzero().squeeze(1)
    unit.best_point.index_copy_(0, rows, point.index_select(0, rows))
    answer = Answer(
        logits=logits.to(point.dtype),  # a model may answer in float64, and is judged in it
        loss=loss.to(point.dtype),
        gradient=gradient,
        length=size,
        margin=gap.to(point.dtype),
        misclassified=wrong,
        distance=distance,
        improved=improved,
        best_point=unit.best_point,
        best_distance=unit.best_distance,
    )
    unit.solver.step(problem, unit.state, i, answer)


def _confirmed(oracle: Oracle, unit: Unit, rows: Tensor) -> Tensor:
    """Which of these points hold in fresh passes, charged to verification: those that led here may have been luck."""
    images = unit.state.point[rows].view(-1, *unit.problem.shape)
    oracle.purpose = "verification"
    found = clearly_misclassified(oracle, images, unit.problem.labels[rows], "search")
    oracle.purpose = "attack"
    return found


def _inspect(unit: Unit, gradient: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
    """Length and gradient; rows that vanish or are not finite are counted, and the latter set to zero.

    `needed` is the margin that would count: not finite where any logit is not.
    """
    whole = math.isfinite(float(needed.sum()))  # a fraction of the time that asking every row takes
    if not gradient.shape[1]:
        if not whole:
            unit.bad_gradients += ~needed.isfinite()
        return gradient.sum(1), gradient
    size = length(gradient)
    low, high = torch.aminmax(size)
    if not (whole and float(low) > TINY and float(high) < torch.inf):  # also when one of them is NaN
        finite = size.isfinite()
        unit.bad_gradients += ~(finite & needed.isfinite())
        gradient = torch.where(finite[:, None], gradient, 0)
        size = length(gradient)
        unit.zero_gradients += size <= TINY
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
