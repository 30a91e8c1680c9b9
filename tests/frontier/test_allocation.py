from dataclasses import replace
from itertools import product

import frontier_instances
import numpy as np
import pytest
from frontier_instances import LEVELS, RUNS, problem, trajectories
from support.nesting import contains, obeys_rules

from advfrontier.errors import FrontierError
from advfrontier.frontier import (
    Trajectories,
    allocate,
    aoi,
    build_problem,
    exact_optimum,
    global_aoi,
    greedy,
    improve,
    staged,
)
from advfrontier.frontier.allocation import applied, gain, ordered
from advfrontier.frontier.certificate import bound_at, knapsack
from advfrontier.frontier.problem import levels_of

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


def test_levels_are_tenths_of_what_was_traced():
    assert levels_of(1000) == tuple(range(100, 1001, 100))
    assert levels_of(300) == (30, 60, 90, 120, 150, 180, 210, 240, 270, 300)
    assert levels_of(40) == (10, 20, 30, 40)
    traces = Trajectories(
        ("fmn",), np.array([10, 20]), np.array([[[2.0, 3.0], [1.0, 3.0]]]), ("a", "b"), "L2"
    )
    assert allocate([traces], budgets=(20,))[0].queries == {"fmn": 20}
    few = Trajectories(("fmn",), np.array([1, 2]), traces.distances, ("a", "b"), "L2")
    with pytest.raises(FrontierError, match=r"steps 1.queries = 2: .* a multiple of 10"):
        allocate([few], budgets=(2,))


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


def test_models_on_which_all_attacks_are_equal_count_as_one():
    ordinary, flat = trajectories(2, models=2)
    flat = replace(flat, distances=np.ones_like(flat.distances))
    p = build_problem([ordinary, flat], levels=LEVELS)
    assert p.constant == 0.5
    assert p.aoi(p.none + 4) == pytest.approx(1)
    assert "model 2" in p.flags[0]
    only = allocate([flat], budgets=(1000,), levels=LEVELS)[0]
    assert (only.total, only.aoi, only.bound) == (0, 1.0, 1.0)
    assert "AOI set to 1" in only.flags[0]


def test_a_generator_of_trajectories_will_do():
    listed = allocate(trajectories(3), budgets=(3000,), levels=LEVELS)
    assert allocate((t for t in trajectories(3)), budgets=(3000,), levels=LEVELS) == listed


def test_wrong_problems_are_refused():
    first, second = trajectories(0)
    with pytest.raises(FrontierError, match="same runs"):
        build_problem([first, second.select(runs=RUNS[:3])], levels=LEVELS)
    with pytest.raises(FrontierError, match="one norm"):
        build_problem([first, replace(second, norm="Linf")], levels=LEVELS)
    for levels in ((), (500, 250), (250, 250), (0, 250)):
        with pytest.raises(FrontierError, match="rising"):
            build_problem([first], levels=levels)
    with pytest.raises(FrontierError, match="fmn:target1, which has no trajectory"):
        build_problem([first.select(runs=["fmn", "fmn:target2"])], levels=LEVELS)
    with pytest.raises(FrontierError, match="at least one model"):
        build_problem([], levels=LEVELS)
    with pytest.raises(FrontierError, match="rising"):
        staged(problem(0), (4000, 2000))
    with pytest.raises(FrontierError, match="no checkpoint"):
        build_problem([first])
    with pytest.raises(FrontierError, match="too large"):
        exact_optimum(problem(0, samples=8000), 4000)
