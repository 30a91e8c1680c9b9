"""The unit job: bring every run of a list to its number of queries on every shard of a record.

A unit is small enough that losing one costs minutes, and knows nothing of the others. Evaluating and tracing are this
same job: they differ in which runs, and in what is kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.engine import (
    Oracle,
    RaceUnit,
    Unit,
    advance,
    advance_race,
    classify,
    start_race,
    start_unit,
)
from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import threads
from advfrontier.jobs.driver import Job
from advfrontier.jobs.setup import answers_alike
from advfrontier.pool import CHECKPOINT, MAX_QUERIES, RACE, SLICE, Race, Run, check_run
from advfrontier.record import StoredUnit, UnitName
from advfrontier.record.identity import policy_words, solver_words, solvers_of
from advfrontier.record.units import SPENT
from advfrontier.solvers import Solver, solver_of
from advfrontier.threat.norms import get_norm

_STATE_LIMIT = (
    2**30
)  # bytes of state that the units of one run may keep; beyond it extension replays
_RACE_LIMIT = 2**32  # … and those of a race, which keeps the states of all runs it has begun


@dataclass(frozen=True)
class UnitPart:
    """Bring one unit to this many queries, from those it has spent before."""

    unit: UnitName
    queries: int
    reached: int = 0


@dataclass(frozen=True)
class UnitTask:
    """Units of one shard that are advanced together, in one batch: one unit, unless several are packed."""

    parts: tuple[UnitPart, ...]

    def __str__(self) -> str:
        runs = ", ".join(part.unit.run for part in self.parts)
        first = self.parts[0]
        return f"{UnitName(runs, *first.unit.shard)}, {first.queries} queries"


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitJob(Job[UnitTask]):
    """Bring runs to their queries on every shard. Calling it advances the units of one task."""

    wanted: Mapping[str, int]  # run → queries
    race: Race | None = None  # whose queries they are, where the one unit of a shard is a race
    solvers: Mapping[str, Solver] = field(default_factory=dict)
    pack: int = 1
    keep: Literal["states", "points", "distances"] = (
        "states"  # beside distances: points, and states to go on from
    )
    note: Mapping[str, Any] = field(
        default_factory=dict
    )  # what else the header is to say once work begins
    counted = "queries"

    def __getstate__(self) -> dict[str, Any]:
        """Sent with all its solvers: another process knows none that was registered in this one."""
        runs = {run.attack: run for run in map(Run.parse, self.names)}
        solvers = {
            attack: self.solvers.get(attack) or solver_of(run) for attack, run in runs.items()
        }
        return super().__getstate__() | {"solvers": solvers}

    # What is to be done

    def check(self) -> None:
        """Refuse runs that do not exist, and another race than was begun."""
        race, record, header = self.race, self.work, self.work.header
        if race is not None:
            race.check(classes=record.clean.classes)
            if header.solvers.get(RACE, policy_words(race)) != policy_words(race):
                raise FrontierError(
                    f"{record.place} was begun with another race than {race.name}: expected the same order and "
                    "constants; choose another folder"
                )
        for run in self.wanted if race is None else ():
            check_run(Run.parse(run), header.terms.norm, record.clean.classes)
        if header.gradients == "none" and needs_gradients(self.runs, header.terms.norm):
            raise FrontierError(
                f"{record.place} was begun for black-box runs alone, without a gradient of any sample: choose another "
                "folder for runs that use gradients"
            )

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that take part."""
        return tuple(self.wanted) if self.race is None else self.race.runs

    @property
    def names(self) -> tuple[str, ...]:
        """The same, and those that polish."""
        return self.runs if self.race is None else self.race.names

    def changes(self) -> Mapping[str, Any]:
        """Which runs the record is to hold, and with which solvers."""
        header = self.work.header
        attacks = solvers_of({Run.parse(name).attack: None for name in self.names}, self.solvers)
        if self.race is not None:
            attacks[RACE] = policy_words(self.race)
        runs = {run: max(queries, header.runs.get(run, 0)) for run, queries in self.wanted.items()}
        return {"runs": header.runs | runs, "solvers": header.solvers | attacks, **self.note}

    def missing(self) -> list[UnitTask]:
        """The units still to be done, in the order of the runs."""
        done = self.work.units()
        parts = [
            UnitPart(unit, self.wanted[unit.run], done.get(unit, 0))
            for unit, _ in self.work.layout(self.wanted)
            if done.get(unit, 0) < self.wanted[unit.run]
        ]
        if self.pack == 1:
            return [UnitTask((part,)) for part in parts]
        parts.sort(key=lambda part: part.unit.first)  # those of a shard, in the order of the runs
        shards = (list(together) for _, together in groupby(parts, lambda part: part.unit.shard))
        return [
            UnitTask(tuple(some[k : k + self.pack]))
            for some in shards
            for k in range(0, len(some), self.pack)
        ]

    def progress(self) -> str:
        """Queries, and units that have spent all of theirs."""
        done, units = self.work.finished(self.wanted)
        whole = sum(
            self.wanted[unit.run] * len(rows) for unit, rows in self.work.layout(self.wanted)
        )
        left = sum(map(self.size, self.missing()))
        return f"{1 - left / max(whole, 1):.0%} of the queries ({done} of {units} units)"

    def size(self, task: UnitTask) -> int:
        """Queries that a task spends, all its samples together."""
        rows = len(self.work.clean.attacked(*task.parts[0].unit.shard))
        return sum((part.queries - part.reached) * rows for part in task.parts)

    def labels(self, tasks: Sequence[UnitTask]) -> Callable[[UnitTask, Mapping[str, Any]], str]:
        """What to say after each task: which run, how many are finished, and how near the points are by now."""
        record = self.work
        left = Counter(part.unit.run for task in tasks for part in task.parts)
        best = np.where(record.clean.correct.numpy(), np.inf, 0.0)

        def label(task: UnitTask, result: Mapping[str, Any]) -> str:
            rows = record.clean.attacked(*task.parts[0].unit.shard).numpy()
            for run, distances in result.items():
                best[rows] = np.minimum(best[rows], distances)
                left[run] -= 1
            finished, median = sum(not n for n in left.values()), float(np.median(best))
            found = f", median distance {median:.4g}" if median < np.inf else ""
            run = task.parts[0].unit.run
            return f"{record.header.terms.norm} {run}, {finished} of {len(left)} runs{found}"

        return label

    # Doing it, in any process

    def again(self, unit: UnitName, queries: int) -> None:
        """Do a unit from the start: its file was lost or damaged, or is of another record."""
        self.work.check_code()
        self(UnitTask((UnitPart(unit, queries),)))

    def __call__(self, task: UnitTask) -> dict[str, NDArray[np.float64]]:
        """Bring units further and store them; returns the distances of each run on the rows it attacked.

        Where the time is up they are stored as far as they have come, if they can go on from there.
        """
        began, record = time.perf_counter(), self.work
        rows = record.clean.attacked(*task.parts[0].unit.shard)
        terms, surrogate = record.header.terms, record.header.gradients == "surrogate"
        with threads(terms.threads), self.model.oracle(terms, surrogate=surrogate) as oracle:
            if self.__dict__.get("sent"):
                self.recognise(lambda: answers_alike(record, oracle, self.images, record.clean))
                self.__dict__["sent"] = False
            begun = [self._begin(oracle, part, rows) for part in task.parts]
            units, started = [unit for unit, _ in begun], [unit.queries for unit, _ in begun]
            others = Counter(checks=oracle.counts.checks)
            self._advance(oracle, units, task.parts)
            others["verification"] = oracle.counts.verification
            seconds = (time.perf_counter() - began) / len(units)
            for part, (unit, stored), first in zip(task.parts, begun, started, strict=True):
                spent = others + Counter(attack=(unit.queries - first) * len(rows) * oracle.eot)
                others = Counter()  # they are counted once, by the first unit
                if stored is not None:
                    spent += stored.spent
                self._store(
                    oracle,
                    part,
                    unit,
                    spent,
                    seconds + (float(stored.words["seconds"]) if stored else 0.0),
                )
        last = [unit.trajectory[unit.queries // CHECKPOINT - 1].numpy() for unit in units]
        return {part.unit.run: distances for part, distances in zip(task.parts, last, strict=True)}

    def _begin(
        self, oracle: Oracle, part: UnitPart, rows: Tensor
    ) -> tuple[Unit | RaceUnit, StoredUnit | None]:
        """A unit that goes on where the stored one stopped, if its state was kept; and what was stored."""
        images, clean, terms = self.images(rows), self.work.clean.rows(rows), self.work.header.terms

        def begin(name: str) -> Unit:
            run = Run.parse(name)
            solver = self.solvers.get(run.attack)
            return start_unit(
                oracle,
                run,
                images,
                clean,
                norm=get_norm(terms.norm),
                seed=terms.seed,
                solver=solver,
            )

        unit = begin(part.unit.run) if self.race is None else start_race(self.race, begin)
        stored = self.work.read_unit(part.unit, part.reached) if part.reached else None
        if stored is not None and self._has_state(stored.tensors):
            unit.restore(stored.tensors)
        return unit, stored

    def _advance(
        self, oracle: Oracle, units: Sequence[Unit | RaceUnit], parts: Sequence[UnitPart]
    ) -> None:
        """Advance units to their queries; if the time is up, only to the next hundred where all keep their states.

        Units that were stored without a state begin anew, and are not stopped before they are as far as they were.
        """
        last = max(part.queries for part in parts)
        begun = (
            max(*(part.reached for part in parts), min(unit.queries for unit in units))
            // SLICE
            * SLICE
        )
        for far in (last,) if self.until is None else range(begun + SLICE, last + SLICE, SLICE):
            goals = [
                max(unit.queries, min(far, part.queries))
                for unit, part in zip(units, parts, strict=True)
            ]
            if isinstance(units[0], RaceUnit):  # the only unit of its shard
                advance_race(oracle, units[0], goals[0], tick=self.tick)
            else:
                advance(
                    oracle,
                    [unit for unit in units if isinstance(unit, Unit)],
                    goals,
                    tick=self.tick,
                )
            late = self.until is not None and time.time() >= self.until
            if late and all(self._has_state(self._tensors(unit)) for unit in units):
                return

    def _store(
        self,
        oracle: Oracle,
        part: UnitPart,
        unit: Unit | RaceUnit,
        spent: Counter[str],
        seconds: float,
    ) -> None:
        """Verify the kept points in other batches, and write the unit's file; a shorter one then goes."""
        looked = oracle.counts.verification
        classes, shares = classify(oracle, unit, batch_size=max(1, 2 * unit.rows // 3))
        spent["verification"] += oracle.counts.verification - looked
        words = {
            "run": part.unit.run,
            "norm": self.work.header.terms.norm,
            "seconds": f"{seconds:.3f}",
        }
        words |= {key: str(spent[key]) for key in SPENT}
        policy = (
            policy_words(unit.race) if isinstance(unit, RaceUnit) else solver_words(unit.solver)
        )
        belongs = self.work.unit_mark(part.unit, policy)
        tensors = self._tensors(unit) | {
            "classes": classes,
            "held": classes != unit.problem.labels.cpu(),
        }
        tensors |= {"shares": shares} if oracle.eot > 1 else {}
        self.work.write_file(part.unit.file(unit.queries), tensors, words, belongs)
        if part.reached not in {0, unit.queries}:
            self.work.folder.remove(part.unit.file(part.reached))

    @staticmethod
    def _has_state(tensors: Iterable[str]) -> bool:
        return any(name.startswith("state.") for name in tensors)

    def _tensors(self, unit: Unit | RaceUnit) -> dict[str, Tensor]:
        tensors = unit.tensors()
        tensors["trajectory"] = tensors["trajectory"][: unit.queries // CHECKPOINT].clone()
        if isinstance(unit, RaceUnit):
            tensors["plan"] = tensors["plan"][: -(-unit.queries // SLICE)].clone()
        size = sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith("state."))
        size = size * self.work.header.data.samples // max(unit.rows, 1)
        limit, most = (
            (_STATE_LIMIT, MAX_QUERIES) if self.race is None else (_RACE_LIMIT, self.race.most)
        )
        if self.keep != "states" or unit.queries >= most or size > limit:
            tensors = {
                name: tensor for name, tensor in tensors.items() if not name.startswith("state.")
            }
        if self.keep == "distances":
            del tensors["best_point"]
        return tensors


def needs_gradients(runs: Iterable[str], norm: str) -> bool:
    """Whether any of these runs is more than black-box."""
    return any(check_run(Run.parse(run), norm).step_queries > 1 for run in runs)
