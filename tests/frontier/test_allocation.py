from itertools import product

import frontier_instances
import numpy as np
import pytest
from frontier_instances import LEVELS, RUNS, problem, trajectories
from support.nesting import contains, obeys_rules

from advfrontier.frontier import (
    Trajectories,
    allocate,
    aoi,
    build_problem,
    global_aoi,
    greedy,
    improve,
)
from advfrontier.frontier.allocation import applied, gain, ordered

BUDGET = 4000  # 4 T


def eager_greedy(p, budget, *, plain=False):
    """The greedy as the paper writes it, every move scored at every step; with closure moves unless
    it is plain.
    """
    levels, moves = p.none, []
    while True:
        reached, best = p.reached(levels), None
        for run, level in product(range(len(p.runs)), range(1, len(p.costs))):
            if level <= levels[run]:
                continue
            raises = p.raises(levels, run, level)
            after = applied(levels, [raises])
            if plain and not p.feasible(applied(levels, [((run, level),)])):
                continue
            cost = p.cost(after) - p.cost(levels)
            gained = gain(p, reached, raises)
            if p.cost(after) <= budget and gained > 1e-9:
                key = (-gained / cost, cost, run, level)
                if best is None or key < best[0]:
                    best = (key, raises)
        if best is None:
            return moves
        moves.append(best[1])
        levels = applied(levels, [best[1]])


def queries_of(p, levels):
    return {p.runs[run]: int(p.costs[levels[run]]) for run in np.flatnonzero(levels)}


def test_global_aoi_of_an_allocation_is_the_mean_of_the_models_aois():
    traces = trajectories(0)
    p = build_problem(traces, levels=LEVELS)
    levels = np.random.default_rng(1).integers(0, 5, len(RUNS))
    expected = global_aoi(
        {str(k): aoi(t.best(queries_of(p, levels)), t.frontier()) for k, t in enumerate(traces)}
    )
    assert p.aoi(levels) == pytest.approx(expected.value, abs=1e-12)
    assert p.aoi(p.none) == 0
    assert p.aoi(p.none + 4) == pytest.approx(1)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_lazy_evaluation_makes_the_same_moves_as_scoring_everything(seed, plain):
    p = problem(seed)
    assert greedy(p, p.none, BUDGET, plain=plain) == eager_greedy(p, BUDGET, plain=plain)


def test_closure_moves_reach_a_target_behind_a_useless_one():
    runs = ("fmn", "fmn:target1", "fmn:target2")
    d = np.array([[[4.0, 4.0, 4.0, 5.0]], [[4.0, 4.0, 4.0, 5.0]], [[1.0, 1.0, 1.0, 5.0]]])
    p = build_problem([Trajectories(runs, np.array([100]), d, tuple("abcd"), "L2")], levels=(100,))
    assert greedy(p, p.none, 200)[0] == ((1, 1), (2, 1))
    assert greedy(p, p.none, 300, plain=True) == [((0, 1),)]
    # With fmn there the pair no longer fits, and the useless target alone gains nothing.
    assert not greedy(p, np.array([1, 0, 0]), 200)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_tiers_are_nested_feasible_and_reproduced_by_the_order_of_moves(seed, plain):
    budgets = (2000, 4000, 6000)
    ensembles = allocate(trajectories(seed), budgets=budgets, levels=LEVELS, plain=plain)
    for ensemble, budget in zip(ensembles, budgets, strict=True):
        assert ensemble.total <= budget
        ensemble.check()
        assert ensemble.aoi <= ensemble.bound <= 1 + 1e-12
        for larger in ensembles:
            if larger.total >= ensemble.total:
                assert contains(larger, ensemble)
                assert larger.at(budget).queries == ensemble.queries
    assert ensembles[0].aoi <= ensembles[1].aoi <= ensembles[2].aoi
    smaller = ensembles[-1].at(0)
    for budget in range(10, 6001, 10):
        part = ensembles[-1].at(budget)
        part.check()
        assert part.total <= budget
        assert contains(part, smaller)
        smaller = part


@pytest.fixture(scope="module", params=[25, pytest.param(200, marks=pytest.mark.slow)])
def solved(request):
    """Small instances with their greedy, swapped and exact allocations and the certificates."""
    return [frontier_instances.solved(seed, BUDGET) for seed in range(request.param)]


def test_greedy_comes_close_to_the_exact_optimum(solved):
    ratios = np.array([p.aoi(first) / p.aoi(best) for p, first, _, best, _, _ in solved])
    assert ratios.mean() >= 0.97
    assert ratios.min() >= 0.9
    assert ratios.max() <= 1 + 1e-9


def test_swaps_never_end_worse_and_help_somewhere(solved):
    gains = np.array([p.aoi(better) - p.aoi(first) for p, first, better, _, _, _ in solved])
    assert (gains >= 0).all()
    assert np.mean(gains > 1e-6) > 0.3
    for p, _, better, _, _, _ in solved:
        assert p.cost(better) <= BUDGET
        assert p.feasible(better)
        assert obeys_rules(queries_of(p, better))


def test_certificates_are_never_below_the_exact_optimum(solved):
    for p, _, better, best, plain, tight in solved:
        assert p.cost(best) <= BUDGET
        assert obeys_rules(queries_of(p, best))
        assert p.aoi(better) <= p.aoi(best) + 1e-9 <= tight + 2e-9
        assert tight <= plain + 1e-12 <= 1 + 2e-12
    gaps = np.array(
        [
            [tight / p.aoi(best) - 1, plain / p.aoi(best) - 1]
            for p, _, _, best, plain, tight in solved
        ]
    )
    assert gaps[:, 0].mean() < 0.02
    assert gaps[:, 0].mean() < gaps[:, 1].mean()


def test_swaps_keep_the_tier_before():
    p = problem(7)
    floor = applied(p.none, greedy(p, p.none, 2000))
    start = applied(floor, greedy(p, floor, BUDGET))
    better = improve(p, start, BUDGET, floor=floor)
    assert (better >= floor).all()
    moves = ordered(p, floor, better)
    assert (applied(floor, moves) == better).all()
    for k in range(len(moves)):
        assert p.feasible(applied(floor, moves[:k]))


def test_a_generator_of_trajectories_will_do():
    listed = allocate(trajectories(3), budgets=(3000,), levels=LEVELS)
    assert allocate((t for t in trajectories(3)), budgets=(3000,), levels=LEVELS) == listed
