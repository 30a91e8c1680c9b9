"""Unit job: advances ensembles to their queries on every shard of a record.

An evaluation has one ensemble; a trace has one for each run, which holds that run alone. A unit, an
ensemble on a shard, is small enough that losing one costs minutes, and it knows nothing of others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.attacks.external import ExternalAttack
from advfrontier.engine import Oracle, Shard, Unit, advance, classify
from advfrontier.engine.whole import WholeAttack
from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import threads
from advfrontier.jobs.driver import Job
from advfrontier.jobs.setup import answers_alike
from advfrontier.pool import CHECKPOINT, Ensemble, Run, check_run
from advfrontier.pool.runs import is_external
from advfrontier.record import HeaderChange, StoredUnit, UnitName
from advfrontier.record.identity import solvers_of
from advfrontier.solvers import Solver, solver_of
from advfrontier.threat.criteria import read_criterion
from advfrontier.threat.names import NormFacts, norm_facts, register_norm

_STATE_LIMIT = (
    2**32
)  # bytes of state that the units of a record may keep; beyond, extension replays
_STRETCH = 100  # queries between two looks at the clock


@dataclass(frozen=True)
class UnitTask:
    """Bring one unit to `queries`, from the `reached` that it has spent before.

    Args:
        unit: Name of the unit.
        queries: Queries to bring it to.
        reached: Queries that it has spent before.
    """

    unit: UnitName
    queries: int
    reached: int = 0

    def __str__(self) -> str:
        return f"{self.unit}, {self.queries} queries"


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitJob(Job[UnitTask]):
    """Bring ensembles to their totals on every shard. Calling it advances one unit.

    Args:
        wanted: Name of the units to their ensemble: a run's name in a trace, else ENSEMBLE.
        solvers: Attack to solver, where it is not the attack's own, and external run to its attack.
        keep: Tensors to store beside distances: `points`, `states` to resume from, or `distances`
            alone.
        change: Change of the header that is made once work begins.
    """

    wanted: Mapping[str, Ensemble]
    solvers: Mapping[str, Solver | WholeAttack] = field(default_factory=dict)
    keep: Literal["states", "points", "distances"] = "states"
    change: HeaderChange = field(default_factory=HeaderChange)
    counted = "queries"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the job with its solvers and norm, which another process has not registered."""
        solvers = {attack: self._solver(attack) for attack in self.attacks}
        norm = norm_facts(self.work.header.terms.norm)
        return super().__getstate__() | {"solvers": solvers, "norm": norm}

    def __setstate__(self, state: dict[str, Any]) -> None:
        norm: NormFacts = state.pop("norm")
        register_norm(norm)
        super().__setstate__(state)

    # What is to be done

    @property
    def attacks(self) -> tuple[str, ...]:
        """Return the attacks of all steps, sorted."""
        found: set[str] = set()
        for ensemble in self.wanted.values():
            found.update(ensemble.attacks)
        return tuple(sorted(found))

    @property
    def totals(self) -> dict[str, int]:
        """Return the queries per sample of each unit."""
        return {name: ensemble.total for name, ensemble in self.wanted.items()}

    def _solver(self, attack: str) -> Solver | WholeAttack:
        given = self.solvers.get(attack)
        if given is None and is_external(attack):
            return ExternalAttack(attack, self.work.header.terms.norm)
        return given or solver_of(Run.parse(attack))

    def check(self) -> None:
        """Raise if a run does not exist, or needs gradients that the record was begun without."""
        record, norm = self.work, self.work.header.terms.norm
        for ensemble in self.wanted.values():
            ensemble.check(classes=record.clean.classes)
        external = [attack for attack in self.attacks if is_external(attack)]
        if external and record.header.terms.eot > 1:
            raise FrontierError(
                f"{external[0]} cannot run with --eot: an external run sees single passes of the "
                "model; leave it or --eot out"
            )
        if record.header.gradients == "none" and needs_gradients(self.attacks, norm):
            raise FrontierError(
                f"{record.place} was begun for black-box runs alone, without a gradient of any "
                "sample: choose another folder for runs that use gradients"
            )

    def changes(self) -> HeaderChange:
        """Return what the record is to hold, and with which solvers."""
        solvers = solvers_of(self.attacks, {name: self._solver(name) for name in self.attacks})
        runs = self.totals if self.work.header.kind == "trace" else {}
        return self.change.model_copy(update={"solvers": solvers, "runs": runs})

    def missing(self) -> list[UnitTask]:
        """Return the units still to be done, in the order of their names."""
        done, tasks = self.work.units(), []
        for unit, _ in self.work.layout(self.wanted):
            reached, total = done.get(unit, 0), self.wanted[unit.name].total
            if reached < total:
                tasks.append(UnitTask(unit, total, reached))
        return tasks

    def progress(self) -> str:
        """Return the share of the queries that are spent, and how many units are finished."""
        totals = self.totals
        done, units = self.work.finished(totals)
        whole = sum(totals[unit.name] * len(rows) for unit, rows in self.work.layout(totals))
        left = sum(self.size(task) for task in self.missing())
        return f"{1 - left / max(whole, 1):.0%} of the queries ({done} of {units} units)"

    def size(self, task: UnitTask) -> int:
        """Return the queries that a task spends, all its samples together."""
        return (task.queries - task.reached) * len(self.work.clean.attacked(*task.unit.shard))

    def labels(self, tasks: Sequence[UnitTask]) -> Callable[[UnitTask, Any], str]:
        """Return the text to show after each task: the unit, the share done, mean distances."""
        record = self.work
        left = Counter(task.unit.name for task in tasks)
        best = np.where(record.clean.correct.numpy(), np.inf, 0.0)

        def label(task: UnitTask, distances: NDArray[np.float64]) -> str:
            rows = record.clean.attacked(*task.unit.shard).numpy()
            best[rows] = np.minimum(best[rows], distances)
            left[task.unit.name] -= 1
            finished = sum(not count for count in left.values())
            median = float(np.median(best))
            near = f", median distance {median:.4g}" if median < np.inf else ""
            norm = record.header.terms.norm
            return f"{norm} {task.unit.name}, {finished} of {len(left)} finished{near}"

        return label

    # Doing it, in any process

    def again(self, unit: UnitName, queries: int) -> None:
        """Run a unit from the start: its file was lost or damaged, or is of another record.

        Args:
            unit: Name of the unit.
            queries: Queries to bring it to.
        """
        self.work.check_numerics()
        self(UnitTask(unit, queries))

    def __call__(self, task: UnitTask) -> NDArray[np.float64]:
        """Advance a unit and store it; return the distances of the samples that it attacked.

        If the time is up, the unit is stored as far as it has come, if it can be resumed from
        there.
        """
        began, record, terms = time.perf_counter(), self.work, self.work.header.terms
        rows = record.clean.attacked(*task.unit.shard)
        surrogate = record.header.gradients == "surrogate"
        with threads(terms.threads), self.model.oracle(terms, surrogate=surrogate) as oracle:
            if self.__dict__.get("sent"):
                self.recognise(lambda: answers_alike(record, oracle, self.images, record.clean))
                self.__dict__["sent"] = False
            unit, stored = self._open(oracle, task, rows)
            began_at, unspent = unit.queries, unit.unspent.clone()
            for stop in self._stops(unit.queries, task.queries):
                if unit.ensemble.cuts(stop) is not None:
                    continue  # an external run is done in one piece
                advance(oracle, unit, stop, tick=self.tick)
                late = self.until is not None and time.time() >= self.until
                if late and unit.queries > task.reached and self._keeps_state(unit):
                    break
            passes = (unit.queries - began_at) * len(rows) * oracle.eot
            passes -= int((unit.unspent - unspent).sum())  # external runs take one pass per query
            spent = Counter(checks=oracle.counts.checks, attack=passes)
            seconds = time.perf_counter() - began
            if stored is not None:
                spent += stored.spent
                seconds += stored.seconds
            self._store(oracle, task, unit, spent, seconds)
        return np.asarray(unit.trajectory[unit.queries // CHECKPOINT - 1].numpy())

    def _open(self, oracle: Oracle, task: UnitTask, rows: Tensor) -> tuple[Unit, StoredUnit | None]:
        """Return the unit, resumed where the stored one stopped if its states are there."""
        record, terms = self.work, self.work.header.terms
        images, clean = self.images(rows), record.clean.rows(rows)
        shard = Shard.of(
            oracle,
            images,
            clean,
            norm=record.norm(oracle),
            seed=terms.seed,
            criterion=read_criterion(terms.criterion),
        )
        ensemble = self.wanted[task.unit.name]
        solvers = {attack: self._solver(attack) for attack in ensemble.attacks}
        unit = Unit.start(ensemble, shard, solvers)
        stored = record.read_unit(task.unit, task.reached) if task.reached else None
        if stored is not None and stored.best_point is not None:
            unit.restore(_tensors(stored), stored.queries, stored.names)
            if not unit.resumable:
                unit = Unit.start(ensemble, shard, solvers)
        return unit, stored

    def _stops(self, queries: int, last: int) -> Iterable[int]:
        """Return where to look at the clock on the way: nowhere if there is time without end."""
        if self.until is None:
            return (last,)
        return (*range(queries // _STRETCH * _STRETCH + _STRETCH, last, _STRETCH), last)

    def _keeps_state(self, unit: Unit) -> bool:
        """Tell whether the states of a unit are to be stored."""
        size = 0
        for state in unit.states.values():
            size += sum(tensor.nbytes for tensor in state.values())
        size = size * self.work.header.data.samples // max(len(unit.shard), 1)
        return self.keep == "states" and size <= _STATE_LIMIT

    def _store(
        self, oracle: Oracle, task: UnitTask, unit: Unit, spent: Counter[str], seconds: float
    ) -> None:
        """Verify the kept points in other batches and write the unit; a shorter one is removed."""
        classes, shares = classify(oracle, unit, batch_size=max(1, 2 * len(unit.shard) // 3))
        spent["verification"] += oracle.counts.verification  # with EOT also passes on the way
        tensors = unit.tensors()
        state = {name: each for name, each in tensors.items() if name.startswith("state.")}
        stored = StoredUnit(
            queries=unit.queries,
            names=unit.ensemble.names,
            spent=spent,
            seconds=seconds,
            trajectory=tensors["trajectory"],
            classes=classes,
            origin=tensors["origin"],
            winner=tensors["winner"],
            found=tensors["found"],
            zero_gradients=tensors["zero_gradients"],
            bad_gradients=tensors["bad_gradients"],
            rejected=tensors["rejected"],
            unspent=tensors["unspent"],
            best_point=None if self.keep == "distances" else tensors["best_point"],
            shares=shares if oracle.eot > 1 else None,
            state=state if self._keeps_state(unit) else {},
        )
        self.work.write_unit(task.unit, stored)
        if task.reached not in {0, unit.queries}:
            self.work.remove_unit(task.unit, task.reached)


def _tensors(stored: StoredUnit) -> dict[str, Tensor]:
    """Return a stored unit as `Unit.restore` takes it."""
    assert stored.best_point is not None  # noqa: S101
    return {
        "best_point": stored.best_point,
        "best_distance": stored.trajectory[-1],
        "trajectory": stored.trajectory,
        "origin": stored.origin,
        "winner": stored.winner,
        "found": stored.found,
        "zero_gradients": stored.zero_gradients,
        "bad_gradients": stored.bad_gradients,
        "rejected": stored.rejected,
        "unspent": stored.unspent,
        **stored.state,
    }


def needs_gradients(attacks: Iterable[str], norm: str) -> bool:
    """Tell whether any of these attacks or runs uses gradients.

    Args:
        attacks: Names of attacks or runs.
        norm: Name of the norm.
    """
    for name in attacks:
        if check_run(Run.parse(name), norm).step_queries > 1:
            return True
    return False
