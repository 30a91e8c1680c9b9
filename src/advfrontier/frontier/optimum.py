"""The exact optimum of a small allocation problem, by mixed-integer programming: the measure of the greedy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from advfrontier.errors import FrontierError
from advfrontier.frontier.problem import Levels, Problem

LARGEST = 200_000  # (run, level, sample) triples beyond which the solver would not come back in reasonable time


def exact_optimum(problem: Problem, budget: int, *, seconds: float = 60.0) -> Levels:
    """The best allocation within a budget and the rules C.

    x[a, j] = 1 if run a has at least level j; z[i, a, j] = 1 if sample i is served by level j of run a, which needs
    x[a, j].
    """
    runs, levels, samples = problem.values.shape
    if problem.values.size > LARGEST:
        raise FrontierError(
            f"{runs} runs × {levels} levels × {samples} samples is too large to solve exactly: use allocate()"
        )
    pairs = runs * levels
    worth = problem.values.reshape(pairs, samples)
    pair, sample = np.nonzero(worth)
    solution = milp(
        np.concatenate((np.zeros(pairs), -worth[pair, sample])),
        integrality=np.concatenate((np.ones(pairs), np.zeros(pair.size))),
        bounds=Bounds(0, 1),
        constraints=_constraints(problem, budget, pair, sample),
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    if solution.x is None or solution.status != 0:
        raise FrontierError(
            f"the exact optimum was not found in {seconds} s ({solution.message}): use allocate() for this size"
        )
    chosen = np.round(solution.x[:pairs]).reshape(runs, levels)
    return np.asarray(chosen.sum(axis=1), dtype=np.int64)


def _constraints(problem: Problem, budget: int, pair: NDArray[np.intp], sample: NDArray[np.intp]) -> LinearConstraint:
    """Levels in their order and with what they require, the budget, and at most one level that serves a sample."""
    runs, levels, samples = problem.values.shape
    pairs = runs * levels
    rows: list[tuple[dict[int, float], float]] = []  # coefficient by column, and what their sum may not pass
    for run in range(runs):
        for level in range(1, levels + 1):
            x = run * levels + level - 1
            if level > 1:
                rows.append(({x: 1, x - 1: -1}, 0))
            rows += [({x: 1, other * levels + least - 1: -1}, 0) for other, least in problem.needs[run][level]]
    rows.append((dict(enumerate(np.tile(np.diff(problem.costs), runs).tolist())), budget))
    rows += [({pairs + k: 1, int(p): -1}, 0) for k, p in enumerate(pair)]
    rows += [(dict.fromkeys((pairs + np.flatnonzero(sample == i)).tolist(), 1), 1) for i in range(samples)]
    columns = np.array([column for row, _ in rows for column in row], dtype=np.int64)
    coefficients = np.array([value for row, _ in rows for value in row.values()], dtype=np.float64)
    places = np.repeat(np.arange(len(rows)), [len(row) for row, _ in rows])
    matrix = coo_array((coefficients, (places, columns)), shape=(len(rows), pairs + pair.size))
    return LinearConstraint(matrix.tocsr(), ub=np.array([most for _, most in rows]))
