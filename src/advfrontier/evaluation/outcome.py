"""What one pass over the units of an evaluation gives: distances, the runs that found them, and doubts about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import beaten
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.pool import CHECKPOINT, SLICE, Race, Run, facts_of
from advfrontier.record import StoredUnit, UnitName
from advfrontier.record.units import doubtful


@contextmanager
def of_a_unit(unit: UnitName) -> Iterator[None]:
    """Say so where the tensors of a unit's file, whole and with the right mark, are none of a unit: it was forged."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise FrontierError(
            f"the file of {unit} holds something else than a unit ({error}): expected one that advfrontier has "
            "written; evaluate again in another folder"
        ) from error


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the runs of an evaluation found, per sample."""

    distances: NDArray[np.float64]
    winners: tuple[str | None, ...]
    trajectories: dict[str, NDArray[np.float64]]
    found: dict[
        str, NDArray[np.float64]
    ]  # run → the nearest distance; inf where it found none, or did not run
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
        race: Race | None = None,
    ) -> Outcome:
        """Read units, each with the rows it attacked, up to these queries per run, which may be those of a race."""
        distances = np.where(correct, np.inf, 0.0)
        winners = np.full(len(correct), None, dtype=object)
        trajectories = {
            run: np.zeros((count // CHECKPOINT, len(correct))) for run, count in queries.items()
        }
        shares = None if race is None else _RaceShares(race, correct)
        spent, doubts, seconds = Counter[str](), Counter[tuple["Kind", str]](), 0.0
        for unit, rows, stored in units:
            where, table = rows.numpy(), trajectories[unit.run]
            with of_a_unit(unit):
                table[:, where] = stored.tensors["trajectory"][: len(table)].numpy()
                better = where[table[-1, where] < distances[where]]
                distances[where] = np.minimum(distances[where], table[-1, where])
                if shares is None:
                    winners[better] = unit.run
                else:
                    winners[where] = shares.add(where, table[:, where], stored.tensors)
                spent += stored.spent
                doubts += doubtful(unit.run, stored.queries, stored.tensors)
                seconds += float(stored.words["seconds"])
        found = {run: np.asarray(table[-1]) for run, table in trajectories.items()}
        given = {run: float(count) for run, count in queries.items()}
        if shares is not None:
            found, given = shares.by_run()
        for table in (distances, *trajectories.values(), *found.values()):
            table.setflags(write=False)  # figures and flags are made of them
        return cls(
            distances, tuple(winners.tolist()), trajectories, found, given, spent, doubts, seconds
        )

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


class _RaceShares:
    """Which runs of a race got which queries, and what they found with them."""

    def __init__(self, race: Race, correct: NDArray[np.bool_]) -> None:
        self.race, self.attacked = race, max(int(correct.sum()), 1)
        self.queries = np.zeros(len(race.names))  # of all samples together
        self.found = np.where(correct, np.inf, 0.0)[None].repeat(len(race.names), axis=0)

    def add(
        self, where: NDArray[np.int64], table: NDArray[np.float64], tensors: Mapping[str, Tensor]
    ) -> Any:
        """Take in a shard; returns the run to which the last slice went that lowered each distance, or None."""
        self.found[:, where] = tensors["found"].numpy().T
        plan = tensors["plan"][: -(-self.race.total // SLICE)].long().numpy()
        spent = np.full(plan.shape, SLICE)
        spent[-1] = self.race.total - SLICE * (len(plan) - 1)  # the budget may cut the last slice
        self.queries += np.bincount(plan.ravel(), spent.ravel(), minlength=len(self.race.names))
        ends = table[
            [min(k * SLICE // CHECKPOINT, len(table)) - 1 for k in range(1, len(plan) + 1)]
        ]
        falls = ends < np.concatenate((np.full((1, ends.shape[1]), np.inf), ends[:-1]))
        last = len(falls) - 1 - falls[::-1].argmax(0)
        names = np.array([*self.race.names, None], dtype=object)
        return names[np.where(falls.any(0), plan[last, np.arange(ends.shape[1])], -1)]

    def by_run(self) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
        """What each run that took part found, and the queries that it got on average."""
        ran = [(k, name) for k, name in enumerate(self.race.names) if self.queries[k]]
        mean = self.queries / self.attacked
        return {name: np.asarray(self.found[k]) for k, name in ran}, {
            name: float(mean[k]) for k, name in ran
        }
