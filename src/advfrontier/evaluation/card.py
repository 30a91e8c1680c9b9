"""The card of an attack: what one attack adds to a pool, on one model.

The attack is traced beside a pool on the same samples. Everything on the card is read from these
traces: AOI, distance against queries, samples on which the attack is the nearest, and the queries
that allocation gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.evaluation.inputs import Images, Labels, Solvers
from advfrontier.evaluation.trace import Traces, trace
from advfrontier.execution import Machine
from advfrontier.frontier import aoi, contributions, epsilon_min
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.optimality import excess
from advfrontier.jobs import Model
from advfrontier.jsonable import jsonable
from advfrontier.pool import CHECKPOINT, POOLS, Run, check_run, pool
from advfrontier.table import Column, Table
from advfrontier.threat.names import norm_name, norm_symbol

BUDGETS = (1000, 2000, 4000)  # of the ensembles that are allocated with and without the attack
_PARTS = (0.1, 0.2, 0.5, 1.0)  # of the queries, after which distances are listed


@dataclass(frozen=True, eq=False)
class Allocated:
    """An allocation with and without the attack, at one budget.

    Args:
        budget: Queries per sample of the ensembles.
        without: AOI of the ensemble allocated without the attack.
        joined: AOI of the ensemble allocated with it.
        queries: Queries that the attack is given.
    """

    budget: int
    without: float
    joined: float
    queries: int


@dataclass(frozen=True, eq=False)
class AttackCard:
    """What an attack adds to a pool.

    Args:
        attack: Name of its run.
        traces: Traces of the attack and of the pool, on the same samples.
        allocated: Allocations with and without the attack, one per budget.
    """

    attack: str
    traces: Traces
    allocated: tuple[Allocated, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Return the runs of the pool."""
        return tuple(run for run in self.traces.runs if run != self.attack)

    def relative(self) -> dict[str, NDArray[np.float64]]:
        """Return run to (checkpoints,) mean distance over the frontier's, less 1.

        A sample counts as ten times the frontier where a run has found no nearer point.
        """
        frontier = self.traces.frontier()
        found = {}
        for run, distances in zip(self.traces.runs, self.traces.distances, strict=True):
            found[run] = np.array([excess(row, frontier) for row in distances])
        return found

    def tables(self) -> list[Table]:
        """Return the card as tables: the runs, distance against queries, and the allocation."""
        return [self._runs_table(), self._queries_table(), self._allocation_table()]

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON can hold it."""
        tables = dict(zip(("runs", "queries", "allocation"), self.tables(), strict=True))
        return {
            "attack": self.attack,
            "norm": self.traces.norm,
            "samples": len(self.traces.samples),
            "counts": dict(self.traces.counts),
            "flags": [str(flag) for flag in self.traces.flags],
            **{name: jsonable(table.records()) for name, table in tables.items()},
        }

    def _runs_table(self) -> Table:
        last = {run: self.traces.distances[i, -1] for i, run in enumerate(self.traces.runs)}
        limit = epsilon_min(self.traces.frontier()).value
        scores = self.traces.aoi()
        parts = {part.run: part for part in contributions(last, E=limit)}
        rows = []
        for run in sorted(scores, key=lambda run: -_known(scores[run].estimate)):
            part = parts[run]
            name = f"{run} (this attack)" if run == self.attack else run
            rows.append((name, scores[run], part.wins, part.alone, part.loss))
        columns = (
            Column("run", folds=True),
            Column("AOI (%)", "percent", key="aoi"),
            Column("nearest on", "integer", key="wins"),
            Column("alone there", "integer", key="alone"),
            Column("frontier without it (%)", "fine", key="loss"),
        )
        samples = len(self.traces.samples)
        title = f"{self.attack} in {norm_symbol(self.traces.norm)} on {samples} samples"
        notes = ("frontier without it: the AOI that the frontier loses without the run",)
        flags = tuple(f"flag: {flag}" for flag in self.traces.flags)
        return Table(title, columns, tuple(rows), (*notes, *flags))

    def _queries_table(self) -> Table:
        relative = self.relative()
        rows = []
        for part in _PARTS:
            place = max(0, round(part * self.traces.queries.size) - 1)
            own = float(relative[self.attack][place])
            best = min(self.others, key=lambda run: float(relative[run][place]))
            value = float(relative[best][place])
            rows.append((int(self.traces.queries[place]), own, best, value))
        columns = (
            Column("queries", "count"),
            Column("beyond the frontier (%)", "fine", key="attack"),
            Column("best run of the pool"),
            Column("its distance beyond the frontier (%)", "fine", key="pool"),
        )
        return Table("mean distance by queries", columns, tuple(rows))

    def _allocation_table(self) -> Table:
        columns = (
            Column("budget", "count"),
            Column("AOI without it (%)", "fine", key="without"),
            Column("AOI with it (%)", "fine", key="joined"),
            Column("queries it is given", "integer", key="queries"),
        )
        rows = [(each.budget, each.without, each.joined, each.queries) for each in self.allocated]
        notes = ("allocated and judged on the same samples, which flatters both",)
        return Table("ensembles", columns, tuple(rows), notes)


def attack_card(
    attack: str,
    model: Model | Callable[[Tensor], Tensor] | str,
    images: Images,
    labels: Labels | None = None,
    *,
    norm: str,
    runs: Sequence[str] | str = "extended",
    queries: int = 1000,
    budgets: Sequence[int] = BUDGETS,
    solvers: Solvers | None = None,
    out: str | PathLike[str] | None = None,
    batch_size: int = 100,
    machine: Machine | str | None = None,
) -> AttackCard:
    """Trace an attack beside a pool and return its card.

    Args:
        attack: Run of the attack, such as `mine.py:attack`.
        model: Model or name of a source, as `evaluate` takes it.
        images: Images or name of a source, as `evaluate` takes them.
        labels: One class per image, as `evaluate` takes them.
        norm: Name of the norm, such as `L2`.
        runs: Runs to compare with: names of runs, or a pool, of which base runs are traced.
        queries: Queries per run.
        budgets: Queries per sample of the ensembles.
        solvers: Solvers in place of the attacks' own, and functions for external runs; as
            `evaluate` takes them.
        out: Folder of the trace, which resumes there; by default it is temporary.
        batch_size: Samples per batch.
        machine: Device and processes, as `evaluate` takes it.
    """
    name = norm_name(norm)
    run = Run.parse(attack)
    check_run(run, name)
    others = _others(runs, name, str(run))
    traces = trace(
        model,
        images,
        labels,
        norm=name,
        runs=[str(run), *others],
        queries=queries,
        solvers=solvers,
        out=out,
        batch_size=batch_size,
        machine=machine,
    )
    return AttackCard(str(run), traces, _allocations(str(run), traces, budgets))


def _others(runs: Sequence[str] | str, norm: str, attack: str) -> list[str]:
    """Return the runs that an attack is compared with."""
    names = [runs] if isinstance(runs, str) else list(runs)
    others: dict[str, None] = {}
    for name in names:
        if name in POOLS:
            members = [run for run in pool(norm, name=name) if run == run.base]
            others |= dict.fromkeys(map(str, members))
        else:
            others[str(Run.parse(name))] = None
    others.pop(attack, None)
    if not others:
        raise FrontierError(
            f"nothing to compare {attack} with: expected runs beside it, or a pool "
            f"({', '.join(POOLS)})"
        )
    return list(others)


def _allocations(attack: str, traces: Traces, budgets: Sequence[int]) -> tuple[Allocated, ...]:
    """Allocate each budget with and without the attack; AOI is against the frontier of all."""
    frontier = traces.frontier()
    limit = epsilon_min(frontier).value
    pool_traces = traces.select(runs=[run for run in traces.runs if run != attack])
    possible = int(traces.queries[-1]) * len(pool_traces.runs)
    asked = sorted({budget for budget in budgets if CHECKPOINT < budget <= possible}) or [possible]
    found = []
    sides = (allocate(pool_traces, budgets=asked), allocate(traces, budgets=asked))
    for budget, without, joined in zip(asked, *sides, strict=True):
        scores = [
            aoi(traces.best(dict(ensemble.queries)), frontier, E=limit).value
            for ensemble in (without, joined)
        ]
        found.append(Allocated(budget, scores[0], scores[1], joined.queries.get(attack, 0)))
    return tuple(found)


def _known(value: float) -> float:
    return value if value == value else -np.inf  # noqa: PLR0124  # NaN is last
