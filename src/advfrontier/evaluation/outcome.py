"""What one pass over the units of an evaluation gives: distances, the runs that found them, and doubts about them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.engine import beaten
from advfrontier.pool import CHECKPOINT, Run, facts_of
from advfrontier.record.units import doubtful

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from advfrontier.flags import Flag, Kind
    from advfrontier.record import StoredUnit, UnitName


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the runs of an evaluation found, per sample."""

    distances: NDArray[np.float64]
    winners: tuple[str | None, ...]
    trajectories: dict[str, NDArray[np.float64]]
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
        return cls(distances, tuple(winners), trajectories, spent, doubts, seconds)

    def beaten(self) -> tuple[Flag, ...]:
        """A flag if runs without gradients are nearer than those that use them."""
        kinds: dict[bool, list[NDArray[np.float64]]] = {True: [], False: []}
        for run, table in self.trajectories.items():
            facts = facts_of(Run.parse(run).solver)
            kinds[facts is None or facts.step_queries > 1].append(table[-1])
        if not (kinds[True] and kinds[False]):
            return ()
        flag = beaten(np.min(kinds[True], axis=0), np.min(kinds[False], axis=0))
        return () if flag is None else (flag,)
