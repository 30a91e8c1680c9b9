"""Bounds on every allocation, and the exact optimum, which trying everything finds."""

from itertools import product

import numpy as np
import pytest
from frontier_instances import problem

from advfrontier.frontier import (
    exact_optimum,
)
from advfrontier.frontier.certificate import bound_at, knapsack


@pytest.mark.parametrize("seed", range(3))
def test_exact_optimum_is_what_trying_everything_finds(seed):
    p = problem(
        seed,
        runs=("fmn", "fmn:restart1", "fmn:target1", "fmn:target2", "ddn"),
        levels=(250, 1000),
        samples=8,
    )
    everything = [np.array(q) for q in product(range(3), repeat=5)]
    best = max(p.aoi(q) for q in everything if p.cost(q) <= 2500 and p.feasible(q))
    assert p.aoi(exact_optimum(p, 2500)) == pytest.approx(best, abs=1e-9)


def test_any_prices_bound_every_allocation():
    p = problem(11, runs=("fmn", "ddn", "alma", "pdpgd"), samples=8)
    rng = np.random.default_rng(0)
    allocations = [np.array(q) for q in product(range(5), repeat=4)]
    for _ in range(20):
        prices = rng.exponential(1 / p.values.shape[2], p.values.shape[2])
        bounds, chosen = bound_at(p, prices, (1500, 2500), choose_for=2500)
        for budget, bound in bounds.items():
            assert bound >= max(p.aoi(q) for q in allocations if p.cost(q) <= budget) - 1e-12
        assert sum(p.costs[level] for _, level in chosen) <= 2500
        worth = sum(np.maximum(p.values[run, level - 1] - prices, 0).sum() for run, level in chosen)
        assert prices.sum() + worth == pytest.approx(bounds[2500])


def test_knapsack_is_exact():
    rng = np.random.default_rng(4)
    costs = np.array([0, 1, 2, 4])
    gains = rng.random((4, 3))
    best, _ = knapsack(gains, costs, 7)
    padded = np.hstack((np.zeros((4, 1)), gains))
    for room in range(8):
        every = (q for q in product(range(4), repeat=4) if costs[list(q)].sum() <= room)
        assert best[room] == pytest.approx(max(padded[range(4), q].sum() for q in every))
