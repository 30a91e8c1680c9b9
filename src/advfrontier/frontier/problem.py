"""The allocation problem: which queries to give to which run so that the global AOI is largest.

Everything the search needs is one array. With E_m, d*_m and K_m fixed by the whole pool, a run a with level j adds to
sample i of model m at most

    v[a, j, i] = (E_m − d[a, j, i])⁺ / (|M| · Σ_K (E_m − d*_m)⁺)

and the global AOI of an allocation is the sum over samples of the best v any run of it reaches: a maximum per sample,
hence monotone and submodular in the set of (run, level) pairs. Samples of all models lie side by side in one axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.optimality import degenerate
from advfrontier.pool import Run, closure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from advfrontier.frontier.trajectories import Trajectories

    Levels = NDArray[np.int64]  # per run, 0 = not run, k = the k-th level

CACHE = 100_000  # numbers of an intermediate array: few enough to stay in a processor's cache
LEVELS = tuple(range(100, 1001, 100))  # the paper's S: what a run may be given


@dataclass(frozen=True, eq=False)
class Problem:
    """Runs, levels, what each pair is worth on each sample, and which pairs a pair requires."""

    runs: tuple[str, ...]
    costs: NDArray[np.int64]  # queries per level, with 0 for level 0
    values: NDArray[np.float64]  # (run, level from 1 on, sample)
    constant: float  # what models on which every attack is on the frontier add to the global AOI
    needs: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]  # [run][level]: (run, least level) before it may have it
    dependents: tuple[
        tuple[int, ...], ...
    ]  # [run]: the runs whose moves change when this one is raised, itself included
    flags: tuple[str, ...] = ()

    @property
    def none(self) -> Levels:
        """The empty allocation."""
        return np.zeros(len(self.runs), dtype=np.int64)

    def cost(self, levels: Levels) -> int:
        """Queries of an allocation."""
        return int(self.costs[levels].sum())

    def reached(self, levels: Levels) -> NDArray[np.float64]:
        """What an allocation reaches on each sample."""
        best = np.zeros(self.values.shape[2])
        for run in np.flatnonzero(levels):
            np.maximum(best, self.values[run, levels[run] - 1], out=best)
        return best

    def aoi(self, levels: Levels) -> float:
        """Global AOI of an allocation."""
        return float(self.reached(levels).sum()) + self.constant

    def gains(self, reached: NDArray[np.float64], runs: Iterable[int] | None = None) -> NDArray[np.float64]:
        """What each level of each run adds to `reached`, alone: an array (run, level)."""
        chosen = range(len(self.runs)) if runs is None else list(runs)
        levels, samples = self.values.shape[1:]
        added = np.empty((len(chosen), levels))
        step = min(levels, max(1, CACHE // max(samples, 1)))  # levels at a time
        buffer = np.empty((step, samples))
        for place, run in enumerate(chosen):
            for start in range(0, levels, step):
                rows = self.values[run, start : start + step]
                best = np.maximum(rows, reached, out=buffer[: len(rows)])
                best.sum(axis=1, out=added[place, start : start + step])
        return np.asarray(added - reached.sum(), dtype=np.float64)

    def raises(self, levels: Levels, run: int, level: int) -> tuple[tuple[int, int], ...]:
        """The move that brings a run to a level: itself last, before it what the rules C make it bring along."""
        before = tuple((other, least) for other, least in self.needs[run][level] if levels[other] < least)
        return (*before, (run, level))

    def feasible(self, levels: Levels) -> bool:
        """Whether an allocation obeys the rules C."""
        return all(
            levels[other] >= least for run in np.flatnonzero(levels) for other, least in self.needs[run][levels[run]]
        )

    def queries(self, levels: Levels) -> dict[str, int]:
        """Queries per run name."""
        return {self.runs[run]: int(self.costs[levels[run]]) for run in np.flatnonzero(levels)}


def build_problem(
    trajectories: Iterable[Trajectories], *, levels: Sequence[int] = LEVELS, ordered_restarts: bool = False
) -> Problem:
    """Put the trajectories of several models, one at a time, into one allocation problem."""
    runs: tuple[str, ...] = ()
    blocks: list[NDArray[np.float64]] = []
    flags: list[str] = []
    degenerate_models = 0
    for number, traces in enumerate(trajectories, start=1):
        if runs and traces.runs != runs:
            differing = sorted(set(runs) ^ set(traces.runs)) or ["their order"]
            raise FrontierError(
                f"trajectories 1 and {number} differ in {', '.join(differing[:5])}: expected the same runs for all; "
                "type .select(runs=…) to keep the common ones"
            )
        runs = traces.runs
        block, flag = _worth(traces, levels)
        blocks.append(block)
        if flag:
            flags.append(f"model {number}: {flag}")
            degenerate_models += not block.shape[2]
    if not runs:
        raise FrontierError("no trajectories given: expected those of at least one model")
    values = np.concatenate(blocks, axis=2)
    values /= len(blocks)
    needs = _requirements(runs, levels, ordered_restarts=ordered_restarts)
    return Problem(
        runs=runs,
        costs=np.array([0, *levels], dtype=np.int64),
        values=values,
        constant=degenerate_models / len(blocks),
        needs=needs,
        dependents=tuple(
            tuple(b for b in range(len(runs)) if b == a or any(other == a for other, _ in needs[b][-1]))
            for a in range(len(runs))
        ),
        flags=tuple(flags),
    )


def _worth(traces: Trajectories, levels: Sequence[int]) -> tuple[NDArray[np.float64], str]:
    """(E − d)⁺ / Σ(E − d*)⁺ where it is not zero for all, and a flag if that is nowhere or samples are unbroken."""
    frontier = traces.frontier()
    finite = frontier[np.isfinite(frontier)]
    limit = float(finite.max()) if finite.size else 0.0
    counted = (frontier > 0) & (frontier < limit)
    # `compress` leaves samples side by side in memory, indexing by a mask does not: all speed depends on it.
    thin = np.compress(counted, traces.distances[:, traces.places(levels)], axis=2)
    if not counted.any():
        return thin, degenerate(frontier, limit)
    np.subtract(limit, thin, out=thin)
    np.maximum(thin, 0, out=thin)
    thin /= (limit - frontier[counted]).sum()
    unbroken = int(np.isinf(frontier).sum())
    return thin, f"{unbroken} of {frontier.size} samples were never broken" if unbroken else ""


def _requirements(
    runs: tuple[str, ...], levels: Sequence[int], *, ordered_restarts: bool
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], ...]:
    """The rules C as places and levels: needs[run][level] lists what must be there first, in an order that obeys C."""
    place = {name: i for i, name in enumerate(runs)}
    level_of = {0: 0, **{queries: k for k, queries in enumerate(levels, start=1)}}
    table = []
    for name in runs:
        rows: list[tuple[tuple[int, int], ...]] = [()]
        for queries in levels:
            required = closure(Run.parse(name), queries, smallest=levels[0], ordered_restarts=ordered_restarts)
            absent = [str(run) for run in required if str(run) not in place]
            if absent:
                raise FrontierError(
                    f"{name} needs {', '.join(absent)}, which has no trajectory: trace it too, or leave {name} out"
                )
            rows.append(tuple((place[str(run)], level_of[least]) for run, least in required.items()))
        table.append(tuple(rows))
    return tuple(table)
