"""A race on one shard: in every round each sample advances one run, and all of them share a batch.

Rows that go on with the same attack at the same step are a lane, whatever their restart or target; only runs with and
without a target are kept apart, since their losses differ. Every sample keeps its own row of the batch, whatever the
other rows run, so its logits have the same bits as in a trace of that run alone: a race is made of prefixes of traced
runs, and of runs that polish, which start where others have ended. Black-box rows need no backward pass and get a
batch of their own; where both kinds share a round, the batches are smaller than in a trace, and equal up to rounding.
So are rows of images of 50,000 numbers or more on several threads, which PyTorch sums otherwise than among others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from advfrontier.engine.loop import Batch
from advfrontier.engine.unit import Unit, polishing
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, SLICE, Race

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from advfrontier.engine.oracle import Oracle
    from advfrontier.solvers import Problem


@dataclass
class RaceUnit:
    """A race on one shard: the runs that were begun, and what each has spent and found on every sample."""

    race: Race
    problem: Problem  # of the first run: inputs, labels and shape are those of all
    begin: Callable[[str], Unit]  # sets a run up on the shard, which costs no query
    best_point: Tensor
    best_distance: Tensor  # float64, on the CPU
    trajectory: Tensor  # (checkpoints, n) float64: best distance after 10, 20, … queries of the whole race
    plan: Tensor  # (slices, n): the place among the race's names of what each slice went to; -1 before
    nearest_point: Tensor  # from which the present turn began, or the last one
    found: NDArray[np.float64]  # (n, name): the nearest distance of each run, and of those that polish
    zero_gradients: Tensor
    bad_gradients: Tensor
    runs: dict[int, Unit] = field(default_factory=dict)  # begun and not finished on every sample
    queries: int = 0

    @property
    def rows(self) -> int:
        """Samples of the shard."""
        return len(self.problem.inputs)

    @property
    def spent(self) -> NDArray[np.int64]:
        """(n, name) queries, counted off the plan."""
        spent = np.zeros(self.found.shape, dtype=np.int64)
        rows = np.arange(self.rows)
        for k in range(0, self.queries, SLICE):
            spent[rows, self.plan[k // SLICE].numpy()] += min(SLICE, self.queries - k)
        return spent

    def run(self, place: int) -> Unit:
        """A run of the order, or the one whose turn it is to polish; begun if it was not yet."""
        if place in self.runs:
            return self.runs[place]
        now = self.race.turn(self.queries)
        if now is None or place < len(self.race.runs):
            self.runs[place] = self.begin(self.race.runs[place])
        else:
            turn, spent = now
            if not spent:
                self.nearest_point = self.best_point.clone()
            self.runs[place] = polishing(self.begin(turn.attack), self.nearest_point, turn, seed=self.queries - spent)
        return self.runs[place]

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as a flat dictionary of tensors of its own."""
        kept = {name: getattr(self, name) for name in _KEPT} | {"found": torch.from_numpy(self.found)}
        for place, unit in self.runs.items():
            kept |= {f"state.{place}.{name}": tensor for name, tensor in unit.parts().items()}
        copies = {name: tensor.detach().cpu().clone() for name, tensor in kept.items()}
        return copies | {"state.queries": torch.tensor(self.queries)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors()` of an equal race returned."""
        for name in _KEPT:
            own = getattr(self, name)
            own[: len(tensors[name])] = tensors[name].to(own)  # plan and trajectory are as long as the race was then
        self.found = tensors["found"].numpy().copy()
        self.queries = int(tensors["state.queries"])
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            place, _, part = name.removeprefix("state.").partition(".")
            if place.isdecimal():
                states.setdefault(int(place), {})[part] = tensor
        self.runs = {}
        for begun, parts in states.items():
            self.run(begun).take(parts)


@dataclass
class _Lane:
    """The samples that go on with runs of one attack, all at the same step: those of one run after those of another."""

    members: list[tuple[int, Tensor]]  # a run's place in the order, and the rows of the shard that go on with it
    unit: Unit

    @property
    def rows(self) -> Tensor:
        """Of the shard, in the order of the lane."""
        return torch.cat([rows for _, rows in self.members])


_KEPT = (
    "best_point", "best_distance", "nearest_point", "trajectory", "plan", "zero_gradients", "bad_gradients",
)  # fmt: skip


def start_race(race: Race, begin: Callable[[str], Unit]) -> RaceUnit:
    """Set a race up on a shard; `begin` sets one run of it up. No queries are spent."""
    first = begin(race.runs[0])
    n, problem = first.rows, first.problem
    unbroken = torch.full((n,), torch.inf, dtype=torch.float64, device="cpu")
    return RaceUnit(
        race=race,
        problem=problem,
        begin=begin,
        best_point=problem.inputs.clone(),
        best_distance=unbroken,
        nearest_point=problem.inputs.clone(),
        trajectory=unbroken.repeat(race.total // CHECKPOINT, 1),
        plan=torch.full((-(-race.total // SLICE), n), -1, dtype=torch.int16, device="cpu"),
        found=np.full((n, len(race.names)), np.inf),
        zero_gradients=first.zero_gradients.clone(),
        bad_gradients=first.bad_gradients.clone(),
        runs={0: first},
    )


@torch.no_grad()
def advance_race(oracle: Oracle, unit: RaceUnit, queries: int, *, tick: Callable[[int], object] | None = None) -> None:
    """Go on to so many queries per sample. `tick` is told how many sample-queries were just spent."""
    oracle.purpose = "attack"
    spent = unit.spent
    while unit.queries < queries and unit.rows:
        count = min(queries, (unit.queries // SLICE + 1) * SLICE) - unit.queries
        chosen, before = unit.race.choice(unit.queries, spent, unit.found)
        unit.plan[unit.queries // SLICE] = torch.from_numpy(chosen.astype(np.int16))
        lanes = _lanes(unit, chosen, before)
        _advance(oracle, lanes, count, tick)
        for lane in lanes:
            _take_in(unit, lane, count)
        spent[np.arange(unit.rows), chosen] += count
        unit.queries += count
        for place in [place for place in unit.runs if _is_over(unit, place, spent[:, place])]:
            del unit.runs[place]


def _is_over(unit: RaceUnit, place: int, spent: NDArray[np.int64]) -> bool:
    """Whether a run has spent all it can on every sample, or its turn to polish has come to its end."""
    if place < len(unit.race.runs):
        return bool((spent >= MAX_QUERIES).all())
    now = unit.race.turn(unit.queries)
    return now is None or now[1] == 0


def _lanes(unit: RaceUnit, chosen: NDArray[np.intp], spent: NDArray[np.int64]) -> list[_Lane]:
    """The samples grouped by the attack they go on with and the queries its run has spent on them."""
    members: dict[tuple[str, bool, int], list[tuple[int, Tensor]]] = {}
    for place, queries in sorted(set(zip(chosen.tolist(), spent.tolist(), strict=True))):
        rows = torch.from_numpy(np.flatnonzero((chosen == place) & (spent == queries)))
        run = unit.run(place).run
        members.setdefault((run.attack, run.variant == "target", queries), []).append((place, rows))
    return [_Lane(runs, _join(unit, runs, queries)) for (_, _, queries), runs in members.items()]


def _join(unit: RaceUnit, members: list[tuple[int, Tensor]], queries: int) -> Unit:
    """The rows of these runs, at so many queries, as one unit."""
    parts = []
    for place, rows in members:
        whole = unit.run(place)
        parts.append(whole if len(rows) == unit.rows else whole.select(rows.to(whole.best_point.device), queries))
    joined = parts[0].join(parts[1:])
    joined.queries = queries
    joined.zero_gradients.zero_()
    joined.bad_gradients.zero_()
    return joined


def _advance(oracle: Oracle, lanes: list[_Lane], count: int, tick: Callable[[int], object] | None) -> None:
    """Advance every lane by so many queries, all that take gradients in one batch and all others in one."""
    for cost in sorted({lane.unit.solver.facts.step_queries for lane in lanes}):
        together = [lane for lane in lanes if lane.unit.solver.facts.step_queries == cost]
        order = torch.cat([lane.rows for lane in together])
        places = order.argsort().argsort().to(together[0].unit.best_point.device)  # of each among them, by sample
        batch = Batch([lane.unit for lane in together], places if len(together) > 1 else None)
        for _ in range(count // cost):
            batch.step(oracle)
            if tick is not None:
                tick(cost * len(order))


def _take_in(unit: RaceUnit, lane: _Lane, count: int) -> None:
    """Put the rows of a lane back, and keep what they found if it is nearer than all before."""
    rows, part = lane.rows, lane.unit
    here = rows.to(part.best_point.device)
    start, end = (part.queries - count) // CHECKPOINT, part.queries // CHECKPOINT
    found = part.trajectory[start:end]
    first = 0
    for place, own in lane.members:
        whole = unit.run(place)
        if part is not whole:
            whole.put(own.to(here.device), part, first)
        reached = found[-1, first : first + len(own)].numpy()
        unit.found[own.numpy(), place] = np.minimum(unit.found[own.numpy(), place], reached)
        first += len(own)
    unit.zero_gradients.index_add_(0, here, part.zero_gradients)
    unit.bad_gradients.index_add_(0, here, part.bad_gradients)
    done = unit.queries // CHECKPOINT
    unit.trajectory[done : done + end - start, rows] = torch.minimum(found, unit.best_distance[rows])
    nearer = (found[-1] < unit.best_distance[rows]).nonzero().squeeze(1)
    unit.best_distance[rows[nearer]] = found[-1, nearer]
    ahead = nearer.to(here.device)
    unit.best_point.index_copy_(0, here[ahead], part.best_point.index_select(0, ahead))
