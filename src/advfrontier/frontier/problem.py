"""Allocation problem: which queries to give to which run so that the global AOI is largest.

Everything the search needs is one array. With E_m, d*_m and K_m fixed by the whole pool, a run a
with level j adds to sample i of model m at most

    v[a, j, i] = (E_m − d[a, j, i])⁺ / (|M| · Σ_K (E_m − d*_m)⁺)

and the global AOI of an allocation is the sum over samples of the best v any run of it reaches: a
maximum per sample, hence monotone and submodular in the set of (run, level) pairs. Samples of all
models lie side by side in one axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import epsilon_min
from advfrontier.frontier.measure import check_same_settings, unbroken_flag
from advfrontier.frontier.optimality import degenerate
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import CHECKPOINT, Run, closure

Levels = NDArray[np.int64]  # an allocation: per run, 0 = not run, k = the k-th level
Raises = tuple[tuple[int, int], ...]  # a move: (run, level) raised together, requirements first
Needs = tuple[tuple[Raises, ...], ...]  # [run][level]: (run, least level) before it may have it


@dataclass(frozen=True, eq=False)
class Problem:
    """Runs, levels, what each pair is worth on each sample, and which pairs a pair requires.

    Args:
        norm: Name of the norm of the distances.
        runs: Names of the runs.
        costs: Queries per level, with 0 for level 0, (levels + 1,).
        values: Value of each level from 1 on, (runs, levels, samples).
        constant: Part of the global AOI from models on which every attack is on the frontier.
        needs: needs[run][level]: required (run, level) pairs.
        flags: Warnings, as sentences.
        solvers: Attack to its settings.
    """

    norm: str
    runs: tuple[str, ...]
    costs: NDArray[np.int64]
    values: NDArray[np.float64]
    constant: float
    needs: Needs
    flags: tuple[str, ...] = ()
    solvers: Mapping[str, str] = field(default_factory=dict)  # as the trajectories have them

    @property
    def none(self) -> Levels:
        """Return the empty allocation."""
        return np.zeros(len(self.runs), dtype=np.int64)

    def cost(self, levels: Levels) -> int:
        """Return the queries of an allocation.

        Args:
            levels: Level of every run, (runs,); 0 for none.
        """
        return int(self.costs[levels].sum())

    def reached(self, levels: Levels) -> NDArray[np.float64]:
        """Return the value that an allocation reaches on each sample.

        Args:
            levels: Level of every run, (runs,); 0 for none.
        """
        best = np.zeros(self.values.shape[2])
        for run in np.flatnonzero(levels):
            np.maximum(best, self.values[run, levels[run] - 1], out=best)
        return best

    def aoi(self, levels: Levels) -> float:
        """Global AOI of an allocation.

        Args:
            levels: Level of every run, (runs,); 0 for none.
        """
        return float(self.reached(levels).sum()) + self.constant

    def gains(self, reached: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value that each level of each run adds to `reached`, alone: (run, level).

        Args:
            reached: Value that is reached on each sample so far, (n,).
        """
        # A run at a time: what lies between stays in the processor's cache.
        best = np.stack([np.maximum(rows, reached).sum(axis=1) for rows in self.values])
        return np.asarray(best - reached.sum(), dtype=np.float64)

    def raises(self, levels: Levels, run: int, level: int) -> Raises:
        """Return the move that brings a run to a level, after the raises that C requires.

        Args:
            levels: Level of every run before the move, (runs,).
            run: Index of the run to raise.
            level: Level to raise it to.
        """
        required = []
        for other, least in self.needs[run][level]:
            if levels[other] < least:
                required.append((other, least))
        return (*required, (run, level))

    def feasible(self, levels: Levels) -> bool:
        """Return whether an allocation obeys the rules C.

        Args:
            levels: Level of every run, (runs,); 0 for none.
        """
        for run in np.flatnonzero(levels):
            for other, least in self.needs[run][levels[run]]:
                if levels[other] < least:
                    return False
        return True


def levels_of(queries: int) -> tuple[int, ...]:
    """Return tenths of the traced queries: for whole runs 100, 200, … 1000, the paper's S.

    Args:
        queries: Queries that each run was traced for.
    """
    tenths = (round(k * queries / 10 / CHECKPOINT) * CHECKPOINT for k in range(1, 11))
    return tuple(sorted({level for level in tenths if level})) or (queries,)


def build_problem(
    trajectories: Iterable[Trajectories], *, levels: Sequence[int] | None = None
) -> Problem:
    """Put the trajectories of several models, one at a time, into one allocation problem.

    Without `levels` a run may be given tenths of what the first model's trajectories go to.

    Args:
        trajectories: Trajectories of one model each.
        levels: Queries at which a run may stop; by default tenths of the traced queries.
    """
    if levels is not None and (not levels or levels[0] < 1 or list(levels) != sorted(set(levels))):
        raise FrontierError(
            f"levels {list(levels)}: expected rising numbers of queries such as 100, 200, … 1000"
        )
    first: Trajectories | None = None
    blocks: list[NDArray[np.float64]] = []
    flags: list[str] = []
    for number, traces in enumerate(trajectories, start=1):
        first = first or traces
        levels = levels or levels_of(int(first.queries[-1]))
        _check_comparable(first, traces, number)
        block, doubts = _worth(traces, levels)
        blocks.append(block)
        flags += [f"model {number}: {flag}" for flag in doubts]
    if first is None or levels is None:
        raise FrontierError("no trajectories given: expected those of at least one model")
    values = np.concatenate(blocks, axis=2)
    values /= len(blocks)
    return Problem(
        norm=first.norm,
        runs=first.runs,
        costs=np.array([0, *levels], dtype=np.int64),
        values=values,
        constant=sum(block.shape[2] == 0 for block in blocks) / len(blocks),
        needs=_requirements(first.runs, levels),
        flags=tuple(flags),
        solvers=first.solvers,
    )


def _check_comparable(first: Trajectories, other: Trajectories, number: int) -> None:
    """Refuse trajectories of another norm or of other runs."""
    if other.norm != first.norm:
        raise FrontierError(
            f"trajectories 1 are in {first.norm}, trajectories {number} in {other.norm}: expected "
            "one norm; allocate each norm by itself"
        )
    if other.runs != first.runs:
        differing = sorted(set(first.runs) ^ set(other.runs)) or ["their order"]
        raise FrontierError(
            f"trajectories 1 and {number} differ in {', '.join(differing[:5])}: expected the same "
            "runs for all; type .select(runs=…) to keep the common ones"
        )
    check_same_settings(
        first.solvers, other.solvers, names=("trajectories 1", f"trajectories {number}")
    )


def _worth(
    traces: Trajectories, levels: Sequence[int]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return (E − d)⁺ / Σ(E − d*)⁺ for the samples where it is not zero for all, and flags."""
    frontier = traces.frontier()
    limit = epsilon_min(frontier).value
    counted = (frontier > 0) & (frontier < limit)
    flags = unbroken_flag(frontier)
    if not counted.any():
        flags += (degenerate(frontier, limit),)
    places = traces.places(levels)
    reach = (limit - frontier[counted]).sum()
    worth = np.empty((len(traces.runs), len(levels), int(counted.sum())))
    for run, d in enumerate(
        traces.distances
    ):  # one at a time: what lies between stays in the processor's cache
        worth[run] = np.maximum(limit - np.compress(counted, d[places], axis=1), 0) / reach
    return worth, flags


def _requirements(runs: tuple[str, ...], levels: Sequence[int]) -> Needs:
    """Return the rules C: needs[run][level] lists required (run, level) pairs in order."""
    place = {name: i for i, name in enumerate(runs)}
    level_of = {0: 0, **{queries: k for k, queries in enumerate(levels, start=1)}}
    table = []
    for name in runs:
        rows: list[Raises] = [()]
        for queries in levels:
            required = closure(Run.parse(name), queries, smallest=levels[0])
            absent = [str(run) for run in required if str(run) not in place]
            if absent:
                raise FrontierError(
                    f"{name} needs {', '.join(absent)}, which has no trajectory: trace it too, or "
                    f"leave {name} out"
                )
            rows.append(
                tuple((place[str(run)], level_of[least]) for run, least in required.items())
            )
        table.append(tuple(rows))
    return tuple(table)
