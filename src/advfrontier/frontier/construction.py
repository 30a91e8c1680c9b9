"""Searching for an allocation: the paper's greedy construction, then swaps within the tier.

The greedy makes again and again the move with the largest gain of global AOI per added query.
A move raises one run to any higher level: gains along a run can be convex (nothing until the first success), so a
greedy that only looked one level ahead would pass over late bloomers. Where the rules C require other runs first, the
move brings them along and is scored as a whole; without such closure moves a good third target behind a useless
second is never seen. The algorithm as printed has none: `plain`.

Evaluation is lazy. As an allocation grows, what an untouched run would add can only fall while its price stays, so an
old score is an upper bound: only the move on top of the heap is scored anew. The moves of runs that were touched, or
whose requirements were, are scored again at once, because there a price falls too and the score may rise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advfrontier.frontier.problem import Levels, Problem, Raises

TOLERANCE = 1e-9  # a gain of global AOI below this is not worth a query
DECIMALS = 12  # gains are compared to so many: below lies the rounding of sums, which differs between machines
ROUNDS = 20  # swaps per tier at most
PAIRS = 600  # pairs scored per round, the most promising first


class Candidate(NamedTuple):
    """A move in the heap. Ties in gain per query go to the cheaper, then the earlier run, then the lower level."""

    score: float  # minus the gain per query: the heap gives the smallest
    cost: int
    run: int
    level: int
    scored: int  # how many moves had been made when it was scored; fewer than now: an upper bound; -1: always one
    version: int  # of its run's moves; another than now: withdrawn


def greedy(
    problem: Problem, start: Levels, budget: int, *, ceiling: Levels | None = None, plain: bool = False
) -> list[Raises]:
    """The moves that lead from `start` as far as `budget` allows, no run above `ceiling`."""
    highest = problem.none + len(problem.costs) - 1
    return _Search(problem, start, budget, highest if ceiling is None else ceiling, plain=plain).run()


def applied(levels: Levels, moves: Iterable[Raises]) -> Levels:
    """The allocation after these moves."""
    after = levels.copy()
    for raises in moves:
        for run, level in raises:
            after[run] = level
    return after


def gain(problem: Problem, reached: NDArray[np.float64], raises: Raises) -> float:
    """What a move adds to what is reached already."""
    after = reached
    for run, level in raises:
        after = np.maximum(after, problem.values[run, level - 1])
    return round(float(after.sum() - reached.sum()), DECIMALS)


class _Search:
    """The state of one greedy search."""

    def __init__(self, problem: Problem, start: Levels, budget: int, ceiling: Levels, *, plain: bool) -> None:
        self.problem = problem
        self.plain = plain
        self.ceiling = ceiling
        self.levels = start.copy()
        self.left = budget - problem.cost(start)
        self.reached = problem.reached(start)
        self.alone = problem.gains(self.reached)  # of each (run, level) by itself, when last computed: an upper bound
        self.versions = [0] * len(problem.runs)
        self.moves: list[Raises] = []
        self.heap: list[Candidate] = []
        for run in range(len(problem.runs)):
            self.offer(run)

    def run(self) -> list[Raises]:
        """Make moves until none fits or none gains."""
        while self.heap:
            top = heapq.heappop(self.heap)
            if top.version != self.versions[top.run] or top.cost > self.left:
                continue  # what does not fit now never will, unless its price falls, and then it is offered again
            raises = self.problem.raises(self.levels, top.run, top.level)
            if top.scored == len(self.moves):
                self.make(raises, top.cost)
            else:
                self.push(
                    top.run, top.level, top.cost, gain(self.problem, self.reached, raises), scored=len(self.moves)
                )
        return self.moves

    def make(self, raises: Raises, cost: int) -> None:
        """Apply a move and offer anew whatever it touches."""
        self.moves.append(raises)
        self.left -= cost
        for run, level in raises:
            self.levels[run] = level
            np.maximum(self.reached, self.problem.values[run, level - 1], out=self.reached)
        touched = sorted({other for run, _ in raises for other in self.problem.dependents[run]})
        self.alone[touched] = self.problem.gains(self.reached, touched)
        for run in touched:
            self.versions[run] += 1
            self.offer(run)

    def offer(self, run: int) -> None:
        """Put every move of a run that fits and may gain into the heap, scored exactly if it raises that run alone."""
        costs, levels = self.problem.costs, self.levels
        for level in range(levels[run] + 1, self.ceiling[run] + 1):
            raises = self.problem.raises(levels, run, level)
            if self.plain and len(raises) > 1:
                continue
            cost = sum(int(costs[to] - costs[levels[other]]) for other, to in raises)
            if cost <= self.left:
                # Together the raises of a move gain no more than the sum of what each gains alone.
                most = round(float(sum(self.alone[other, to - 1] for other, to in raises)), DECIMALS)
                self.push(run, level, cost, most, scored=len(self.moves) if len(raises) == 1 else -1)

    def push(self, run: int, level: int, cost: int, gained: float, *, scored: int) -> None:
        """Put a scored move into the heap unless it gains nothing."""
        if gained > TOLERANCE:
            heapq.heappush(self.heap, Candidate(-gained / cost, cost, run, level, scored, self.versions[run]))


class Lowered(NamedTuple):
    """An allocation with one run taken down."""

    levels: Levels
    reached: NDArray[np.float64]
    loss: float
    freed: int


def improve(problem: Problem, start: Levels, budget: int, *, floor: Levels) -> Levels:
    """Swap queries between runs while it helps, never below `floor` (the tier before); never worse than `start`.

    Lower a run of an allocation q, at a loss ℓ, and make a move r that gains Δ at q itself: by submodularity the change
    is at least Δ − ℓ and at most Δ. So pairs are tried in the order of Δ − ℓ, and those whose Δ cannot beat the best
    change found are skipped. (Of a closure move only the sum of its raises' gains is known beforehand, which is no less
    than its Δ: it may be tried too early, but is never skipped wrongly.)
    """
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
