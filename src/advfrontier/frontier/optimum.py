"""The exact optimum of a small allocation problem, by mixed-integer programming: the measure of the greedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
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
    count = pairs + pair.size
    rows: list[tuple[list[int], list[float], float]] = []  # columns, coefficients, right-hand side: each row is ≤

    def x(run: int, level: int) -> int:
        return int(run * levels + level - 1)

    for run in range(runs):
        for level in range(1, levels + 1):
            if level > 1:
                rows.append(([x(run, level), x(run, level - 1)], [1, -1], 0))
            rows += [([x(run, level), x(other, least)], [1, -1], 0) for other, least in problem.needs[run][level]]
    steps = np.diff(problem.costs)
    rows.append(([x(a, j) for a in range(runs) for j in range(1, levels + 1)], np.tile(steps, runs).tolist(), budget))
    rows += [([pairs + k, int(p)], [1, -1], 0) for k, p in enumerate(pair)]
    rows += [
        ((pairs + np.flatnonzero(sample == i)).tolist(), [1.0] * int((sample == i).sum()), 1) for i in range(samples)
    ]

    columns = np.concatenate([np.asarray(row[0], dtype=np.int64) for row in rows])
    coefficients = np.concatenate([np.asarray(row[1], dtype=np.float64) for row in rows])
    places = np.repeat(np.arange(len(rows)), [len(row[0]) for row in rows])
    matrix = coo_array((coefficients, (places, columns)), shape=(len(rows), count)).tocsr()
    solution = milp(
        np.concatenate((np.zeros(pairs), -worth[pair, sample])),
        integrality=np.concatenate((np.ones(pairs), np.zeros(pair.size))),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=np.array([row[2] for row in rows])),
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    if solution.x is None or solution.status != 0:
        raise FrontierError(
            f"the exact optimum was not found in {seconds} s ({solution.message}): use allocate() for this size"
        )
    chosen = np.round(solution.x[:pairs]).reshape(runs, levels)
    return np.asarray(chosen.sum(axis=1), dtype=np.int64)
