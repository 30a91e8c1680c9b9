"""What one pass over the units of an evaluation gives: distances, the runs that found them, and doubts about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import beaten
from advfrontier.flags import Flag, Kind
from advfrontier.pool import CHECKPOINT, RACE, SLICE, Race, Run, facts_of
from advfrontier.record import StoredUnit, UnitName
from advfrontier.record.units import doubtful


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the runs of an evaluation found, per sample."""

    distances: NDArray[np.float64]
    winners: tuple[str | None, ...]
    trajectories: dict[str, NDArray[np.float64]]
    found: dict[str, NDArray[np.float64]]  # run → the nearest distance; inf where it found none, or did not run
    queries: dict[str, float]  # run → per sample, or on average
    spent: Counter[str]
    doubts: Counter[tuple[Kind, str]]
    seconds: float

    @classmethod
    def of(
        cls,
        units: Iterable[tuple[UnitName, Tensor, StoredUnit]],
        queries: Mapping[str, int],
        correct: NDArray[np.bool_],
    ) -> Outcome:
        """Read units, each with the rows it attacked, up to these queries per run."""
        distances = np.where(correct, np.inf, 0.0)
        winners: list[str | None] = [None] * len(correct)
        trajectories = {run: np.zeros((count // CHECKPOINT, len(correct))) for run, count in queries.items()}
        spent, doubts, seconds = Counter[str](), Counter[tuple["Kind", str]](), 0.0
        for unit, rows, stored in units:
            where, table = rows.numpy(), trajectories[unit.run]
            table[:, where] = stored.tensors["trajectory"][: len(table)].numpy()
            better = table[-1, where] < distances[where]
            distances[where] = np.minimum(distances[where], table[-1, where])
            for row in where[better].tolist():
                winners[row] = unit.run
            spent += stored.spent
            doubts += doubtful(unit.run, stored.queries, stored.tensors)
            seconds += float(stored.words["seconds"])
        found = {run: np.asarray(table[-1]) for run, table in trajectories.items()}
        given = {run: float(count) for run, count in queries.items()}
        return cls(distances, tuple(winners), trajectories, found, given, spent, doubts, seconds)

    @classmethod
    def of_race(
        cls, units: Iterable[tuple[UnitName, Tensor, StoredUnit]], race: Race, correct: NDArray[np.bool_]
    ) -> Outcome:
        """Read the shards of a race, each with the rows it attacked, up to the race's queries."""
        table = np.zeros((race.total // CHECKPOINT, len(correct)))
        found = np.where(correct, np.inf, 0.0)[None].repeat(len(race.names), axis=0)
        winners: list[str | None] = [None] * len(correct)
        slices = np.zeros(len(race.names))
        spent, doubts, seconds = Counter[str](), Counter[tuple["Kind", str]](), 0.0
        for unit, rows, stored in units:
            where = rows.numpy()
            table[:, where] = stored.tensors["trajectory"][: len(table)].numpy()
            found[:, where] = stored.tensors["found"].numpy().T
            plan = stored.tensors["plan"][: -(-race.total // SLICE)].long().numpy()
            slices += np.bincount(plan.ravel(), minlength=len(race.names))
            ends = table[[min(k * SLICE // CHECKPOINT, len(table)) - 1 for k in range(1, len(plan) + 1)]][:, where]
            for row, place in zip(where.tolist(), _last_fall(ends, plan).tolist(), strict=True):
                winners[row] = race.names[place] if place >= 0 else None
            spent += stored.spent
            doubts += doubtful(unit.run, stored.queries, stored.tensors)
            seconds += float(stored.words["seconds"])
        ran = [place for place in range(len(race.names)) if slices[place]]
        mean = SLICE * slices / max(int(correct.sum()), 1)
        by_run = {race.names[place]: np.asarray(found[place]) for place in ran}
        given = {race.names[place]: float(mean[place]) for place in ran}
        return cls(table[-1], tuple(winners), {RACE: table}, by_run, given, spent, doubts, seconds)

    def beaten(self, norm: str) -> tuple[Flag, ...]:
        """A flag if runs without gradients are nearer than those that use them."""
        kinds: dict[bool, list[NDArray[np.float64]]] = {True: [], False: []}
        for run, distances in self.found.items():
            facts = facts_of(Run.parse(run).solver)
            kinds[facts is None or facts.step_queries > 1].append(distances)
        if not (kinds[True] and kinds[False]):
            return ()
        flag = beaten(np.min(kinds[True], axis=0), np.min(kinds[False], axis=0), norm=norm)
        return () if flag is None else (flag,)


def _last_fall(ends: NDArray[np.float64], plan: NDArray[np.int64]) -> NDArray[np.int64]:
    """The run to which the last slice went that lowered each sample's distance; -1 where none did."""
    before = np.concatenate((np.full((1, ends.shape[1]), np.inf), ends[:-1]))
    falls = ends < before
    last = len(falls) - 1 - falls[::-1].argmax(0)
    return np.where(falls.any(0), plan[last, np.arange(ends.shape[1])], -1)
