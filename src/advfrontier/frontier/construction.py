"""The paper's greedy construction: again and again the move with the largest gain of global AOI per added query.

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
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advfrontier.frontier.problem import Levels, Problem, Raises

TOLERANCE = 1e-9  # a gain of global AOI below this is not worth a query
DECIMALS = 12  # gains are compared to so many: below lies the rounding of sums, which differs between machines


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
