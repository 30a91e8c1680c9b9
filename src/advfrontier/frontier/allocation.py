"""Allocation: nested ensembles for rising budgets, each with its AOI and an upper bound.

The paper's greedy construction runs to its end at the first tier, is improved by swaps, and
continues at the next tier: so 4k ⊆ 8k ⊆ 12k by construction. Three separate searches would not
nest, because the last moves of each depend on what still fits its budget.

The greedy makes again and again the move with the largest gain of global AOI per added query. A
move raises one run to any higher level: gains along a run can be convex (nothing until the first
success), so a greedy that only looked one level ahead would pass over late bloomers. Where the
rules C require other runs first, the move brings them along and is scored as a whole; without such
closure moves a good third target behind a useless second is never seen. The algorithm as printed
has none: `plain`.

Evaluation is lazy. As an allocation grows, what a run would add by itself can only fall, so an old
gain is an upper bound, and the sum over the runs of a move bounds the move: only moves whose bound
could win are scored anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.certificate import certify
from advfrontier.frontier.problem import Levels, Problem, Raises, build_problem
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import TIERS, Ensemble, make_ensemble, tier_label, tier_queries
from advfrontier.pool.runs import is_external

TOLERANCE = 1e-9  # a gain of global AOI below this is not worth a query
DECIMALS = 12  # of gains that are compared: rounding of sums differs between machines below
ROUNDS = 20  # swaps per tier at most
PAIRS = 600  # pairs scored per round, the most promising first


def allocate(
    trajectories: Trajectories | Iterable[Trajectories],
    *,
    budgets: Sequence[int | str] = TIERS,
    levels: Sequence[int] | None = None,
    name: str = "greedy",
    plain: bool = False,
) -> tuple[Ensemble, ...]:
    """Allocate nested ensembles, one per budget, from the trajectories of models.

    `aoi` of each is its global AOI on these models, `bound` what no allocation with that budget can
    pass. Judge an ensemble on models it was not made from: on these it is optimistic. Trajectories
    may come from a generator, one at a time. `plain` is the paper's Algorithm 1 as printed: no move
    raises more than one run, and no swaps follow.

    Args:
        trajectories: Trajectories of one model each, with the same runs and norm.
        budgets: Queries per sample, rising: numbers, or text such as `4k`.
        levels: Queries at which a run may stop; by default tenths of the traced queries.
        name: First part of the ensembles' names.
        plain: Whether a move raises one run only, instead of what the rules C require too.
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
    steps: list[dict[str, str | int]] = []
    for budget, stage in stages.items():
        steps += _steps(problem, stage)
        aoi = problem.aoi(reached[budget])
        ensemble = make_ensemble(
            name=f"{name}-{tier_label(budget)}",
            norm=problem.norm,
            steps=tuple(steps),
            aoi=aoi,
            bound=max(bounds[budget], aoi),  # rounding may put the bound a last digit below
            flags=problem.flags,
            solvers=dict(problem.solvers),
        )
        ensembles.append(ensemble)
    return tuple(ensembles)


def _steps(problem: Problem, moves: Iterable[Raises]) -> list[dict[str, str | int]]:
    """Return the moves of a tier as steps; an external run has one, to where the tier brings it."""
    steps: list[dict[str, str | int]] = []
    first: dict[str, dict[str, str | int]] = {}
    for move in moves:
        for run, level in move:
            step: dict[str, str | int] = {
                "run": problem.runs[run],
                "queries": int(problem.costs[level]),
            }
            name = problem.runs[run]
            if is_external(name) and name in first:
                first[name].update(step)
                continue
            first.setdefault(name, step)
            steps.append(step)
    return steps


def staged(
    problem: Problem, budgets: Sequence[int], *, plain: bool = False
) -> dict[int, list[Raises]]:
    """Return the moves made in each tier, in order.

    An external run cannot be resumed, so later tiers leave it at the queries of its first.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        budgets: Queries per sample, rising: numbers, or text such as `4k`.
        plain: Whether a move raises one run only, instead of what the rules C require too.
    """
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < problem.costs[1]:
        least = int(problem.costs[1])
        raise FrontierError(
            f"budgets {list(budgets)}: expected rising numbers of queries, from {least} on, such "
            "as 4000, 8000, 12000"
        )
    stages: dict[int, list[Raises]] = {}
    floor = problem.none
    for budget in budgets:
        ceiling = problem.none + len(problem.costs) - 1
        whole = np.array([is_external(run) for run in problem.runs])
        ceiling = np.where(whole & (floor > 0), floor, ceiling)
        moves = greedy(problem, floor, budget, ceiling=ceiling, plain=plain)
        levels = applied(floor, moves)
        if not plain:
            better = improve(problem, levels, budget, floor=floor, ceiling=ceiling)
            if not np.array_equal(better, levels):
                moves, levels = ordered(problem, floor, better), better
        stages[budget] = moves
        floor = levels
    return stages


def ordered(problem: Problem, start: Levels, end: Levels) -> list[Raises]:
    """Order moves from one allocation to a larger one, best gain per query first, each feasible.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        start: Allocation to start from: the level of every run, (runs,).
        end: Allocation to end at, nowhere below `start`.
    """
    moves = greedy(problem, start, problem.cost(end), ceiling=end)
    levels = applied(start, moves)
    for run in range(len(end)):
        if levels[run] < end[run]:  # it gains nothing once the rest is there
            raises = problem.raises(levels, run, int(end[run]))
            moves.append(raises)
            levels = applied(levels, [raises])
    return moves


def greedy(
    problem: Problem,
    start: Levels,
    budget: int,
    *,
    ceiling: Levels | None = None,
    plain: bool = False,
) -> list[Raises]:
    """Return the moves from `start` as far as `budget` allows, no run above `ceiling`.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        start: Allocation to start from: the level of every run, (runs,).
        budget: Queries per sample.
        ceiling: Highest level of every run, (runs,); by default the last.
        plain: Whether a move raises one run only, instead of what the rules C require too.
    """
    levels, reached, left = start.copy(), problem.reached(start), budget - problem.cost(start)
    alone = problem.gains(reached)  # of each (run, level) by itself, when last computed
    moves: list[Raises] = []
    while True:
        # Ties in gain per query go to the cheaper move, then the earlier run, then the lower level.
        options = [
            ((-round(option.most, DECIMALS) / option.cost, option.cost, *option.raises[-1]), option)
            for option in _options(problem, levels, alone, ceiling)
            if option.cost <= left and not (plain and len(option.raises) > 1)
        ]
        best, chosen = (0.0, 0, 0, 0), None
        for least, option in sorted(options):
            if least > best:
                break
            gained = gain(problem, reached, option.raises)
            if len(option.raises) == 1:
                run, level = option.raises[0]
                alone[run, level - 1] = gained
            key = (-gained / option.cost, *least[1:])
            if gained > TOLERANCE and key < best:
                best, chosen = key, option
        if chosen is None:
            return moves
        moves.append(chosen.raises)
        left -= chosen.cost
        levels = applied(levels, [chosen.raises])
        for run, level in chosen.raises:
            np.maximum(reached, problem.values[run, level - 1], out=reached)


class Option(NamedTuple):
    """Move that may gain.

    Args:
        raises: The move, as (run, level) pairs.
        cost: Queries that it adds.
        most: Upper bound of its gain.
    """

    raises: Raises
    cost: int
    most: float  # together its raises gain no more than the sum of what each gains alone


def _options(
    problem: Problem, levels: Levels, alone: NDArray[np.float64], ceiling: Levels | None = None
) -> Iterator[Option]:
    """Every move that may gain, no run above `ceiling`."""
    highest = problem.none + len(problem.costs) - 1 if ceiling is None else ceiling
    for run in range(len(problem.runs)):
        for level in range(int(levels[run]) + 1, int(highest[run]) + 1):
            raises = problem.raises(levels, run, level)
            most = float(sum(alone[other, to - 1] for other, to in raises))
            if most > TOLERANCE:
                cost = sum(
                    int(problem.costs[to] - problem.costs[levels[other]]) for other, to in raises
                )
                yield Option(raises, cost, most)


def applied(levels: Levels, moves: Iterable[Raises]) -> Levels:
    """Return the allocation after these moves.

    Args:
        levels: Level of every run before the moves, (runs,).
        moves: The moves, in order.
    """
    after = levels.copy()
    for raises in moves:
        for run, level in raises:
            after[run] = level
    return after


def gain(problem: Problem, reached: NDArray[np.float64], raises: Raises) -> float:
    """Return the value that a move adds to what is reached already.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        reached: Value that is reached on each sample, (n,).
        raises: The move, as (run, level) pairs.
    """
    after = reached
    for run, level in raises:
        after = np.maximum(after, problem.values[run, level - 1])
    return round(float(after.sum() - reached.sum()), DECIMALS)


class Lowered(NamedTuple):
    """Allocation with one run lowered.

    Args:
        levels: Level of every run after the move, (runs,).
        reached: Value that is reached on each sample, (n,).
        loss: Value that is lost.
        freed: Queries that are freed.
    """

    levels: Levels
    reached: NDArray[np.float64]
    loss: float
    freed: int


def improve(
    problem: Problem, start: Levels, budget: int, *, floor: Levels, ceiling: Levels | None = None
) -> Levels:
    """Swap queries between runs while it helps, never below `floor` (the tier before).

    Lower a run of an allocation q, at a loss ℓ, and make a move r that gains Δ at q itself: by
    submodularity the change is at least Δ − ℓ and at most Δ. So pairs are tried in the order of Δ −
    ℓ, and those whose Δ cannot beat the best change found are skipped. (Of a closure move only the
    sum of its raises' gains is known beforehand, which is no less than its Δ: it may be tried too
    early, but is never skipped wrongly.)

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        start: Allocation to start from: the level of every run, (runs,).
        budget: Queries per sample.
        floor: Lowest level of every run, (runs,).
        ceiling: Highest level of every run, (runs,); by default the last.
    """
    best = start
    for _ in range(ROUNDS):
        swapped = _best_swap(problem, best, budget, floor, ceiling)
        if swapped is None:
            break
        best = applied(swapped, greedy(problem, swapped, budget, ceiling=ceiling))
    return best


def _best_swap(
    problem: Problem, levels: Levels, budget: int, floor: Levels, ceiling: Levels | None
) -> Levels | None:
    """Return the allocation one swap away that gains most, or None if no pair tried gains."""
    reached = problem.reached(levels)
    slack = budget - problem.cost(levels)
    lowered = list(_lowerings(problem, levels, reached, floor))
    options = list(_options(problem, levels, problem.gains(reached), ceiling))
    if not lowered or not options:
        return None
    costs, most = (
        np.array([option.cost for option in options]),
        np.array([option.most for option in options]),
    )
    fits = costs <= slack + np.array([lower.freed for lower in lowered])[:, None]
    least = np.where(fits, most - np.array([lower.loss for lower in lowered])[:, None], -np.inf)
    best_change, best = TOLERANCE, None
    for place in np.argsort(-least, axis=None, kind="stable")[:PAIRS]:
        row, column = divmod(int(place), len(options))
        if not fits[row, column] or most[column] <= best_change:
            continue
        lower, raises = lowered[row], options[column].raises
        change = gain(problem, lower.reached, raises) - lower.loss
        if change > best_change:
            after = applied(lower.levels, [raises])
            # Neither holds where the move requires, or raises again, the very run that was lowered.
            if problem.feasible(after) and problem.cost(after) <= budget:
                best_change, best = change, after
    return best


def _lowerings(
    problem: Problem, levels: Levels, reached: NDArray[np.float64], floor: Levels
) -> Iterator[Lowered]:
    """Every way to take one run down, not below the floor, that leaves a feasible allocation."""
    for run in np.flatnonzero(levels > floor):
        without = levels.copy()
        without[run] = 0
        others = problem.reached(without)
        for level in range(int(floor[run]), int(levels[run])):
            after = levels.copy()
            after[run] = level
            if problem.feasible(after):
                kept = np.maximum(others, problem.values[run, level - 1]) if level else others
                freed = int(problem.costs[levels[run]] - problem.costs[level])
                yield Lowered(after, kept, float(reached.sum() - kept.sum()), freed)
