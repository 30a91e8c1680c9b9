"""Outcome of an evaluation: distances, winners and flags from one pass over its units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import Stretch, beaten
from advfrontier.flags import Flag, Kind
from advfrontier.jobs import UnitJob
from advfrontier.pool import (
    CHECKPOINT,
    GAIN,
    Ensemble,
    Fork,
    Raise,
    Run,
    attack_of,
    facts_of,
    refinements,
)
from advfrontier.record import Record, StoredUnit, UnitName
from advfrontier.record.units import doubtful


def read_units(
    record: Record,
    totals: Mapping[str, int],
    names: Collection[str] = (),
    *,
    job: UnitJob | None = None,
) -> Iterator[tuple[UnitName, Tensor, StoredUnit]]:
    """Yield every unit with the rows that it attacked.

    Args:
        record: Record of an evaluation or a trace.
        totals: Name of the units to their queries.
        names: Large tensors to read, of `best_point` and `state`.
        job: Computes again what is missing, damaged or of another record.
    """
    done = record.units()
    for unit, rows in record.layout(totals):
        queries = max(totals[unit.name], done.get(unit, 0))
        stored = record.read_unit(unit, queries, names)
        if stored is None:
            further = record.units().get(unit, 0)
            if further > queries:  # extended at this moment
                queries = further
                stored = record.read_unit(unit, queries, names)
        if stored is None and job is not None:
            job.again(unit, queries)
            stored = record.read_unit(unit, queries, names)
        if stored is None:
            raise record.lacks(unit, queries)
        yield unit, rows, stored


@dataclass(frozen=True, eq=False)
class Outcome:
    """Results of an ensemble on all samples.

    Args:
        distances: (samples,), 0 where misclassified unperturbed, inf where never broken.
        trajectory: (checkpoints, samples), the best distance after 10, 20, … queries.
        winners: Per sample the run whose point was kept, whatever refined it since; None for none.
        refined_by: Per sample the refinement that moved the kept point last; None for none.
        found: Run or refinement to its own best distances, (samples,); inf where it found none.
        spent: Passes through the model, by purpose.
        doubts: Samples whose distance may be wrong, by reason and run.
        seconds: Time that the units took.
        unspent: (samples,), queries of external runs that ended before their step did.
    """

    distances: NDArray[np.float64]
    trajectory: NDArray[np.float64]
    winners: tuple[str | None, ...]
    refined_by: tuple[str | None, ...]
    found: dict[str, NDArray[np.float64]]
    spent: Counter[str]
    doubts: Counter[tuple[Kind, str]]
    seconds: float
    unspent: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        units: Iterable[tuple[UnitName, Tensor, StoredUnit]],
        ensemble: Ensemble,
        labels: Tensor,
        correct: NDArray[np.bool_],
    ) -> Outcome:
        """Read units, each with the rows that it attacked, up to the queries of an ensemble.

        Args:
            units: Name of each unit, the rows of the samples that it attacked, and its content.
            ensemble: Ensemble, cut at the queries to read.
            labels: True classes of all samples, int64 (samples,).
            correct: (samples,) bool, classified correctly unperturbed.
        """
        checkpoints = ensemble.total // CHECKPOINT
        unbroken = np.where(correct, np.inf, 0.0)
        trajectory = np.repeat(unbroken[None], checkpoints, axis=0)
        winners = np.full(len(correct), None, dtype=object)
        refined_by = winners.copy()
        found = {name: unbroken.copy() for name in ensemble.queries}
        unspent = np.zeros(len(correct), dtype=np.int64)
        spent, doubts, seconds = Counter[str](), Counter[tuple[Kind, str]](), 0.0
        for _, rows, stored in units:
            where = rows.numpy()
            names = np.array([*stored.names, None], dtype=object)  # index -1 is nobody
            trajectory[:, where] = stored.trajectory[:checkpoints].numpy()
            origin = stored.origin.numpy()
            winner = stored.winner.numpy()
            winners[where] = names[origin]
            refined_by[where] = np.where(winner != origin, names[winner], None)
            for place, name in enumerate(stored.names):
                if name in found:
                    found[name][where] = stored.found[place].numpy()
            unspent[where] = stored.unspent.numpy()
            spent += stored.spent
            doubts += doubtful(stored, labels[rows], ensemble.queries)
            seconds += stored.seconds
        distances = trajectory[-1].copy() if checkpoints else unbroken
        for table in (distances, trajectory, *found.values()):
            table.setflags(write=False)
        return cls(
            distances=distances,
            trajectory=trajectory,
            winners=tuple(winners.tolist()),
            refined_by=tuple(refined_by.tolist()),
            found=found,
            spent=spent,
            doubts=doubts,
            seconds=seconds,
            unspent=unspent,
        )

    def beaten(self, ensemble: Ensemble, norm: str) -> tuple[Flag, ...]:
        """Return a flag if searches without gradients lowered what attacks had reached.

        Args:
            ensemble: The ensemble, at the queries of this outcome.
            norm: Name of the norm of the distances.
        """
        flag = beaten(self._stretches(ensemble), norm=norm)
        return () if flag is None else (flag,)

    def _stretches(self, ensemble: Ensemble) -> Iterator[Stretch]:
        """Yield the parts of every step, each with the samples that took it."""
        everyone = np.ones(len(self.distances), dtype=bool)
        for span in ensemble.between(0, ensemble.total):
            last = min(span.end, ensemble.total)
            if isinstance(span.step, Raise):
                yield self._stretch(span.step.run, everyone, span.begin, last)
                continue
            gained = everyone
            if isinstance(span.step, Fork):
                before = ensemble.spans[span.index - 1]
                gained = self._at(before.end) < (1 - GAIN) * self._at(before.begin)
            for branch, rows in ((True, gained), (False, ~gained)):
                begin = span.begin
                for step in refinements(span.step, gained=branch):
                    end = min(begin + step.queries, last)
                    if begin < end and rows.any():
                        yield self._stretch(step.name, rows, begin, end)
                    begin = end

    def _stretch(self, name: str, rows: NDArray[np.bool_], begin: int, end: int) -> Stretch:
        facts = facts_of(Run.parse(attack_of(name)).solver)
        return Stretch(
            black_box=facts is not None and facts.step_queries == 1,
            queries=end - begin,
            rows=rows,
            before=self._at(begin),
            after=self._at(end),
        )

    def _at(self, queries: int) -> NDArray[np.float64]:
        """Return the best distances after `queries` queries."""
        if queries:
            best: NDArray[np.float64] = self.trajectory[queries // CHECKPOINT - 1]
            return best
        return np.where(self.distances > 0, np.inf, 0.0)
