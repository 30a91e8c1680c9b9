"""Certificate: an upper bound on the global AOI that any allocation could reach with a budget.

Give every sample i a price λᵢ ≥ 0. Whatever runs an allocation holds, the best of them on a sample
is worth at most max v ≤ λᵢ + Σ (v − λᵢ)⁺, so for every allocation q within the budget Q

    AOI(q) ≤ Σᵢ λᵢ + Σ_a g_a(q_a),     g_a(j) = Σᵢ (v[a, j, i] − λᵢ)⁺

and the right-hand side, now a sum over runs, is largest for the solution of a multiple-choice
knapsack, found exactly by dynamic programming. With λ = what some allocation reaches this is the
data-dependent submodular bound. Any other prices give a bound too, and it is convex in λ: a few
subgradient steps lower it, and the least one met counts. The rules C are left out, which only
raises it. Small problems are solved exactly, by mixed-integer programming: the measure of the
greedy and of the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from advfrontier.errors import FrontierError
from advfrontier.frontier.problem import Levels, Problem

STEPS = 30  # price updates per tier: each costs one pass over all values
PATIENCE = 3  # steps without progress before the step size is halved
TOLERANCE = 1e-9  # what counts as progress
# (run, level, sample) triples beyond which an exact solver would not come back in reasonable time.
LARGEST = 200_000


def certify(
    problem: Problem, allocations: Mapping[int, Levels], *, steps: int = STEPS
) -> dict[int, float]:
    """Return the least bound per budget, descending from what its own allocation reaches.

    Prices tried for one budget bound the others too.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        allocations: Budget to the allocation that was found for it.
        steps: Steps of the descent per budget.
    """
    budgets = tuple(allocations)
    least = dict.fromkeys(budgets, 1.0)
    for budget, levels in allocations.items():
        prices = problem.reached(levels)
        target = float(prices.sum()) + problem.constant
        best, best_prices, best_slope = math.inf, prices, np.zeros_like(prices)
        scale, waited = 1.0, 0
        for _ in range(steps + 1):
            bounds, chosen = bound_at(problem, prices, budgets, choose_for=budget)
            least = {b: min(least[b], bounds[b]) for b in budgets}
            bound, waited = bounds[budget], waited + 1
            # The slope of the bound in λᵢ: 1 less the chosen runs worth more than λᵢ there.
            slope = 1.0 - sum(
                (problem.values[run, level - 1] > prices for run, level in chosen),
                np.zeros_like(prices),
            )
            if bound < best - TOLERANCE:
                best, best_prices, best_slope, waited = bound, prices, slope, 0
            if waited == PATIENCE:
                bound, prices, slope, scale, waited = best, best_prices, best_slope, scale / 2, 0
            length = float(slope @ slope)
            if length == 0 or best - target < TOLERANCE:
                break
            prices = np.maximum(prices - scale * (bound - target) / length * slope, 0.0)
    return least


def bound_at(
    problem: Problem, prices: NDArray[np.float64], budgets: tuple[int, ...], *, choose_for: int
) -> tuple[dict[int, float], list[tuple[int, int]]]:
    """Return bounds of several budgets at these prices, and the pairs that attain one of them.

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        prices: Price of each sample, (n,), at least 0.
        budgets: Queries per sample of several budgets.
        choose_for: Budget whose choices are returned.
    """
    gains = np.maximum(problem.gains(prices), 0.0)
    unit = math.gcd(*(int(cost) for cost in problem.costs[1:]))
    costs = problem.costs // unit
    best, choices = knapsack(gains, costs, max(budgets) // unit)
    free = float(prices.sum()) + problem.constant
    bounds = {budget: free + float(best[budget // unit]) for budget in budgets}
    left, chosen = choose_for // unit, []
    for run in range(len(problem.runs) - 1, -1, -1):
        level = int(choices[run, left])
        if level:
            chosen.append((run, level))
            left -= int(costs[level])
    return bounds, chosen


def knapsack(
    gains: NDArray[np.float64], costs: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Solve the multiple-choice knapsack: best values for each capacity from 0, and choices.

    Args:
        gains: Value of each level of each run, from level 1 on, (runs, levels).
        costs: Cost of each level in units, with 0 for level 0, (levels + 1,).
        capacity: Units that may be spent.
    """
    room = np.arange(capacity + 1)
    # Place 0 of the padded table stands for "does not fit", place k + 1 for capacity k.
    where = np.maximum(room[None, :] + 1 - costs[:, None], 0)
    padded = np.concatenate(([-np.inf], np.zeros(capacity + 1)))
    choices = np.zeros((len(gains), capacity + 1), dtype=np.int64)
    for run, gain in enumerate(gains):
        options = padded[where]
        options[1:] += gain[:, None]
        choices[run] = options.argmax(axis=0)
        padded[1:] = options[choices[run], room]
    return padded[1:], choices


def exact_optimum(problem: Problem, budget: int, *, seconds: float = 60.0) -> Levels:
    """Return the best allocation within a budget and the rules C.

    x[a, j] = 1 if run a has at least level j; z[i, a, j] = 1 if sample i is served by level j of
    run a, which needs x[a, j].

    Args:
        problem: Values and costs of every level of every run, and the rules between them.
        budget: Queries per sample.
        seconds: Time limit of the solver.
    """
    runs, levels, samples = problem.values.shape
    if problem.values.size > LARGEST:
        raise FrontierError(
            f"{runs} runs × {levels} levels × {samples} samples is too large to solve exactly: use "
            "allocate()"
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
            f"the exact optimum was not found in {seconds} s ({solution.message}): use allocate() "
            "for this size"
        )
    chosen = np.round(solution.x[:pairs]).reshape(runs, levels)
    return np.asarray(chosen.sum(axis=1), dtype=np.int64)


def _constraints(
    problem: Problem, budget: int, pair: NDArray[np.intp], sample: NDArray[np.intp]
) -> LinearConstraint:
    """Constrain levels to their order and rules, to the budget, and samples to one level each."""
    runs, levels, samples = problem.values.shape
    pairs = runs * levels
    rows: list[
        tuple[dict[int, float], float]
    ] = []  # coefficient by column, and what their sum may not pass
    for run in range(runs):
        for level in range(1, levels + 1):
            x = run * levels + level - 1
            if level > 1:
                rows.append(({x: 1, x - 1: -1}, 0))
            rows += [
                ({x: 1, other * levels + least - 1: -1}, 0)
                for other, least in problem.needs[run][level]
            ]
    rows.append((dict(enumerate(np.tile(np.diff(problem.costs), runs).tolist())), budget))
    rows += [({pairs + k: 1, int(p): -1}, 0) for k, p in enumerate(pair)]
    rows += [
        (dict.fromkeys((pairs + np.flatnonzero(sample == i)).tolist(), 1), 1)
        for i in range(samples)
    ]
    places: list[int] = []
    columns: list[int] = []
    coefficients: list[float] = []
    most = []
    for place, (row, bound) in enumerate(rows):
        places += [place] * len(row)
        columns += row.keys()
        coefficients += row.values()
        most.append(bound)
    matrix = coo_array((coefficients, (places, columns)), shape=(len(rows), pairs + pair.size))
    return LinearConstraint(matrix.tocsr(), ub=np.array(most))
