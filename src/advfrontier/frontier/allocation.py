"""Allocation: nested ensembles for rising budgets, each with its AOI and a bound on what any allocation could reach.

The greedy construction runs to its end at the first tier, is improved by swaps, and goes on from there at the next
tier: so 4k ⊆ 8k ⊆ 12k by construction. Three separate searches would not nest, because the last moves of each depend
on what still fits its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.certificate import certify
from advfrontier.frontier.construction import applied, greedy, improve
from advfrontier.frontier.problem import Levels, Problem, Raises, build_problem
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import TIERS, Ensemble, Move, tier_label, tier_queries


def allocate(
    trajectories: Trajectories | Iterable[Trajectories],
    *,
    budgets: Sequence[int | str] = TIERS,
    levels: Sequence[int] | None = None,
    name: str = "greedy",
    plain: bool = False,
) -> tuple[Ensemble, ...]:
    """Nested ensembles, one per budget, from the trajectories of models (one object each, same runs and norm).

    `aoi` of each is its global AOI on these models, `bound` what no allocation with that budget can pass. Judge an
    ensemble on models it was not made from: on these it is optimistic. Trajectories may come from a generator, one at
    a time. `plain` is the paper's Algorithm 1 as printed: no move raises more than one run, and no swaps follow.
    """
    models = [trajectories] if isinstance(trajectories, Trajectories) else trajectories
    problem = build_problem(models, levels=levels)
    stages = staged(problem, [tier_queries(budget) for budget in budgets], plain=plain)
    reached: dict[int, Levels] = {}
    allocation = problem.none
    for budget, stage in stages.items():
        reached[budget] = allocation = applied(allocation, stage)
    bounds = certify(problem, reached)
    ensembles: list[Ensemble] = []
    moves: tuple[Move, ...] = ()
    for budget, stage in stages.items():
        for raises in stage:
            named = tuple((problem.runs[run], int(problem.costs[level])) for run, level in raises)
            moves += (Move(named, budget),)
        aoi = problem.aoi(reached[budget])
        bound = max(bounds[budget], aoi)  # where they are equal, rounding may put the bound a last digit below
        label = f"{name}-{tier_label(budget)}"
        ensembles.append(Ensemble(label, problem.norm, moves, aoi, bound, problem.flags, problem.solvers))
    return tuple(ensembles)


def staged(problem: Problem, budgets: Sequence[int], *, plain: bool = False) -> dict[int, list[Raises]]:
    """The moves made in each tier, in order."""
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < problem.costs[1]:
        least = int(problem.costs[1])
        raise FrontierError(
            f"budgets {list(budgets)}: expected rising numbers of queries, from {least} on, such as 4000, 8000, 12000"
        )
    stages: dict[int, list[Raises]] = {}
    floor = problem.none
    for budget in budgets:
        moves = greedy(problem, floor, budget, plain=plain)
        levels = applied(floor, moves)
        if not plain:
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
    for run in range(len(end)):
        if levels[run] < end[run]:  # it gains nothing once the rest is there
            raises = problem.raises(levels, run, int(end[run]))
            moves.append(raises)
            levels = applied(levels, [raises])
    return moves
