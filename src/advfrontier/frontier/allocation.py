"""Allocation: nested ensembles for rising budgets, each with its AOI and a bound on what any allocation could reach.

The greedy construction runs to its end at the first tier, is improved by swaps, and goes on from there at the next
tier: so 4k ⊆ 8k ⊆ 12k by construction. Three separate searches would not nest, because the last moves of each depend
on what still fits its budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.certificate import certify
from advfrontier.frontier.construction import applied, greedy
from advfrontier.frontier.problem import LEVELS, build_problem
from advfrontier.frontier.swaps import improve
from advfrontier.pool import TIERS, Ensemble, Move

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advfrontier.frontier.construction import Raises
    from advfrontier.frontier.problem import Levels, Problem
    from advfrontier.frontier.trajectories import Trajectories


def allocate(
    trajectories: Iterable[Trajectories],
    *,
    norm: str,
    budgets: Sequence[int] = TIERS,
    levels: Sequence[int] = LEVELS,
    name: str = "greedy",
    swaps: bool = True,
    ordered_restarts: bool = False,
) -> tuple[Ensemble, ...]:
    """Nested ensembles, one per budget, from the trajectories of several models (one object each, same runs).

    `aoi` of each is its global AOI on these models, `bound` what no allocation with that budget can pass. Judge an
    ensemble on models it was not made from: on these it is optimistic. Trajectories may come from a generator, one at
    a time.
    """
    return allocate_problem(
        build_problem(trajectories, levels=levels, ordered_restarts=ordered_restarts),
        norm=norm,
        budgets=budgets,
        name=name,
        swaps=swaps,
    )


def allocate_problem(
    problem: Problem, *, norm: str, budgets: Sequence[int] = TIERS, name: str = "greedy", swaps: bool = True
) -> tuple[Ensemble, ...]:
    """The same from a problem built already."""
    stages = staged(problem, budgets, swaps=swaps)
    reached: dict[int, Levels] = {}
    moves: list[Move] = []
    levels = problem.none
    orders: dict[int, tuple[Move, ...]] = {}
    for budget, stage in stages.items():
        levels = applied(levels, stage)
        moves += [
            Move(tuple((problem.runs[run], int(problem.costs[to])) for run, to in raises), budget) for raises in stage
        ]
        reached[budget], orders[budget] = levels, tuple(moves)
    bounds = certify(problem, reached)
    values = {budget: problem.aoi(levels) for budget, levels in reached.items()}
    return tuple(
        Ensemble(f"{name}-{_label(budget)}", norm, orders[budget], values[budget], max(bounds[budget], values[budget]))
        for budget in stages
    )


def staged(problem: Problem, budgets: Sequence[int], *, swaps: bool = True) -> dict[int, list[Raises]]:
    """The moves made in each tier, in order."""
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < problem.costs[1]:
        least = int(problem.costs[1])
        raise FrontierError(
            f"budgets {list(budgets)}: expected rising numbers of queries, from {least} on, such as 4000, 8000, 12000"
        )
    stages: dict[int, list[Raises]] = {}
    floor = problem.none
    for budget in budgets:
        moves = greedy(problem, floor, budget)
        levels = applied(floor, moves)
        if swaps:
            better = improve(problem, levels, budget, floor=floor)
            if not np.array_equal(better, levels):
                moves, levels = ordered(problem, floor, better), better
        stages[budget] = moves
        floor = levels
    return stages


def ordered(problem: Problem, start: Levels, end: Levels) -> list[Raises]:
    """Moves from one allocation to a larger one, best gain per query first, every step feasible."""
    moves = greedy(problem, start, problem.cost(end), ceiling=end)
    levels = applied(start, moves)
    for run in np.flatnonzero(levels < end):  # what gains nothing once the rest is there
        if levels[run] < end[run]:
            raises = problem.raises(levels, int(run), int(end[run]))
            moves.append(raises)
            levels = applied(levels, [raises])
    return moves


def _label(budget: int) -> str:
    return f"{budget // 1000}k" if budget % 1000 == 0 else str(budget)
