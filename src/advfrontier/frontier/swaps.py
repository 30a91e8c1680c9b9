"""Local search within a tier: take queries from one run, give them to another, keep what is better.

Lower a run of an allocation q, at a loss ℓ, and make a move r that gains Δ at q itself: by submodularity the change is
at least Δ − ℓ and at most Δ. So the pairs are tried in the order of Δ − ℓ, and those whose Δ cannot beat the best
change found are skipped. (Of a closure move only the sum of its raises' gains is known beforehand, which is no less
than its Δ: it may be tried too early, but is never skipped wrongly.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advfrontier.frontier.construction import TOLERANCE, applied, gain, greedy
from advfrontier.frontier.problem import Levels, Problem, Raises

ROUNDS = 20  # swaps per tier at most
PAIRS = 600  # pairs scored per round, the most promising first


class Lowered(NamedTuple):
    """An allocation with one run taken down."""

    levels: Levels
    reached: NDArray[np.float64]
    loss: float
    freed: int


def improve(problem: Problem, start: Levels, budget: int, *, floor: Levels) -> Levels:
    """Swap queries between runs while it helps, never below `floor` (the tier before); never worse than `start`."""
    best = start
    for _ in range(ROUNDS):
        swapped = _best_swap(problem, best, budget, floor)
        if swapped is None:
            break
        best = applied(swapped, greedy(problem, swapped, budget))
    return best


def _best_swap(problem: Problem, levels: Levels, budget: int, floor: Levels) -> Levels | None:
    """The allocation one swap away that gains most, or None if no pair tried gains."""
    reached = problem.reached(levels)
    slack = budget - problem.cost(levels)
    lowered = list(_lowerings(problem, levels, reached, floor))
    moves, costs, most = _raisings(problem, levels, reached)
    if not lowered or not moves:
        return None
    fits = costs[None, :] <= slack + np.array([option.freed for option in lowered])[:, None]
    least = np.where(fits, most[None, :] - np.array([option.loss for option in lowered])[:, None], -np.inf)
    best_change, best = TOLERANCE, None
    for place in _largest(least.ravel(), PAIRS):
        option, move = divmod(int(place), len(moves))
        if not fits[option, move] or most[move] <= best_change:
            continue
        change = gain(problem, lowered[option].reached, moves[move]) - lowered[option].loss
        if change > best_change:
            after = applied(lowered[option].levels, [moves[move]])
            # Neither holds where the move requires, or raises again, the very run that was lowered.
            if problem.feasible(after) and problem.cost(after) <= budget:
                best_change, best = change, after
    return best


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the largest values, in falling order; a whole sort would outgrow the rest of the search."""
    top = np.arange(values.size) if values.size <= count else np.argpartition(-values, count)[:count]
    return np.asarray(top[np.lexsort((top, -values[top]))], dtype=np.int64)


def _lowerings(problem: Problem, levels: Levels, reached: NDArray[np.float64], floor: Levels) -> Iterator[Lowered]:
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


def _raisings(
    problem: Problem, levels: Levels, reached: NDArray[np.float64]
) -> tuple[list[Raises], NDArray[np.int64], NDArray[np.float64]]:
    """Every move that may gain, its cost, and the most it can gain."""
    alone = problem.gains(reached)
    moves, costs, most = [], [], []
    for run in range(len(problem.runs)):
        for level in range(int(levels[run]) + 1, len(problem.costs)):
            raises = problem.raises(levels, run, level)
            bound = float(sum(alone[other, to - 1] for other, to in raises))
            if bound > TOLERANCE:
                moves.append(raises)
                costs.append(sum(int(problem.costs[to] - problem.costs[levels[other]]) for other, to in raises))
                most.append(bound)
    return moves, np.array(costs, dtype=np.int64), np.array(most)
