"""A unit: one run on one shard of samples, with all that is needed to save, restore and advance it further."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.margins import margin_to_go, spread
from advfrontier.errors import FrontierError
from advfrontier.pool import CHECKPOINT, MAX_QUERIES
from advfrontier.solvers import Problem, Solver, solver_of
from advfrontier.threat.losses import LOSSES
from advfrontier.threat.random import uniform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.engine.clean import CleanPass
    from advfrontier.engine.oracle import Oracle
    from advfrontier.pool import Run, Turn
    from advfrontier.threat.norms import Norm


@dataclass
class Unit:
    """One run on one shard: the problem, the solver's state, and what the engine keeps about every sample."""

    run: Run
    solver: Solver
    problem: Problem
    state: Any
    best_point: Tensor
    best_distance: (
        Tensor  # in working precision: steers the search; what is recorded is measured on the point
    )
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
        """Distances of the kept points, measured as `measure` does; inf where there is none."""
        return measure(self.problem.norm, self.best_point, self.problem.inputs, self.best_distance)

    def parts(self) -> dict[str, Tensor]:
        """All tensors that have one row per sample and change on the way."""
        state = {
            f"state.{each.name}": getattr(self.state, each.name) for each in fields(self.state)
        }
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
        self.trajectory[: len(tensors["trajectory"])] = tensors[
            "trajectory"
        ]  # stored only as far as the unit had come
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
        self._set(
            {
                name: own[name].index_copy(0, rows, back[name][first : first + len(rows)])
                for name in own
            }
        )

    def _set(self, parts: Mapping[str, Tensor]) -> None:
        for name, tensor in parts.items():
            setattr(
                self.state if name.startswith("state.") else self,
                name.removeprefix("state."),
                tensor,
            )


_KEPT = ("best_point", "best_distance", "zero_gradients", "bad_gradients")


def measure(norm: Norm, points: Tensor, inputs: Tensor, kept: Tensor) -> Tensor:
    """Distances in float64, on the CPU, of points as they are stored; inf where `kept`, the distance by search, is."""
    host = "cpu" if points.device.type == "mps" else points.device  # MPS has no float64
    measured = norm.distance(points.to(host, torch.float64), inputs.to(host, torch.float64))
    return torch.where(kept.to(host) < torch.inf, measured, torch.inf).cpu()


def _filled(unit: Unit, parts: Mapping[str, Tensor], clean_spread: Tensor) -> Unit:
    """The unit with these parts, and a trajectory of its own."""
    state = {
        name.removeprefix("state."): tensor
        for name, tensor in parts.items()
        if name.startswith("state.")
    }
    kept: dict[str, Any] = {name: parts[name] for name in _KEPT}
    trajectory = unit.trajectory.new_full((len(unit.trajectory), len(clean_spread)), torch.inf)
    return replace(
        unit,
        state=type(unit.state)(**state),
        clean_spread=clean_spread,
        trajectory=trajectory,
        **kept,
    )


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
    restart = run.variant == "restart"
    run_seed = seed + (run.index if restart else 0)
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
        state=_checked(solver.start(problem), solver, len(x)),
        best_point=x.clone(),
        best_distance=torch.full_like(boundary, torch.inf),
        trajectory=torch.full(
            (horizon // CHECKPOINT, len(x)), torch.inf, dtype=torch.float64, device="cpu"
        ),
        zero_gradients=x.new_zeros(len(x), dtype=torch.int32),
        bad_gradients=x.new_zeros(len(x), dtype=torch.int32),
        clean_spread=spread(clean.logits).to(x.device),
    )


def _checked(state: Any, solver: Solver, rows: int) -> Any:
    """The state of a solver. One of another package may not keep the contract, and should say so at once."""
    parts = (
        {each.name: getattr(state, each.name) for each in fields(state)}
        if is_dataclass(state)
        else {}
    )
    wrong = [
        name
        for name, part in parts.items()
        if not isinstance(part, Tensor) or part.shape[:1] != (rows,)
    ]
    if "point" not in parts or wrong or solver.loss(0) not in {None, *LOSSES}:
        raise FrontierError(
            f"the solver {solver.facts.name} keeps {', '.join(wrong) or type(state).__name__}, with the loss "
            f"{solver.loss(0)!r}: expected a dataclass of tensors with one row per sample, among them `point`, and a "
            f"loss that is None or one of {', '.join(LOSSES)}"
        )
    return state


def polishing(unit: Unit, nearest: Tensor, turn: Turn, *, seed: int) -> Unit:
    """The same run as one of a turn's queries, which starts at these points or beyond; `seed` is added to its own."""
    problem, seeds = unit.problem, unit.problem.seeds + seed
    starts = nearest
    if turn.reach > 1:
        drawn = torch.from_numpy(uniform(seeds, problem.ids, "reach", 1)).to(nearest)
        starts = (
            problem.inputs + (1 + (turn.reach - 1) * drawn) * (nearest - problem.inputs)
        ).clamp_(0, 1)
    problem = replace(
        problem,
        starts=starts,
        steps=turn.queries // unit.solver.facts.step_queries,
        seeds=seeds,
        polishes=turn.reach == 1,
    )
    trajectory = unit.trajectory.new_full((turn.queries // CHECKPOINT, unit.rows), torch.inf)
    return replace(unit, problem=problem, state=unit.solver.start(problem), trajectory=trajectory)
