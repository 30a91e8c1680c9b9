"""An ensemble on a shard: exact cost, prefixes, resuming, forks and credit."""

from functools import cache

import pytest
import torch
from support.ensembles import BLACK_BOX, advanced, problem, resumed, small_ensemble
from support.models import Answering, Watch
from support.runs import Bench
from support.tensors import same

from advfrontier import FrontierError
from advfrontier.engine import Search, Unit, advance, advance_search, classify
from advfrontier.pool import Run, make_ensemble
from advfrontier.solvers import FMN, solver_of

NORMS = ("L0", "L1", "L2", "Linf")
TOTAL = 600


@cache
def whole(norm):
    """Return the small ensemble advanced in one go; tests do not change it."""
    return advanced(norm, TOTAL)


@pytest.mark.parametrize("norm", NORMS)
def test_small_ensemble_has_every_kind_of_step(norm):
    assert small_ensemble(norm).longest == TOTAL


@pytest.mark.parametrize("norm", NORMS)
def test_cost_is_exact_after_every_checkpoint_and_stops_leave_no_trace(norm):
    oracle, shard = problem(norm)
    watch = Watch.on(oracle.model)
    unit = Unit.start(small_ensemble(norm), shard)
    with oracle:
        for stop in range(10, TOTAL + 1, 10):
            advance(oracle, unit, stop)
            assert watch.total == stop * len(shard)
    assert same(unit.tensors(), whole(norm).tensors())


@pytest.mark.parametrize("norm", NORMS)
def test_every_budget_is_a_prefix(norm):
    full = whole(norm)
    for stop in (10, 90, 150, 310):
        part = advanced(norm, stop)
        assert torch.equal(part.trajectory[: stop // 10], full.trajectory[: stop // 10])
        assert torch.equal(part.best_distance, full.trajectory[stop // 10 - 1])


@pytest.mark.parametrize("norm", NORMS)
def test_units_resumed_in_every_step_have_the_same_bits(norm):
    """Stored and restored at 15 places: inside raises, refinements and both parts of a fork."""
    unit = advanced(norm, 10)
    for stop in range(50, TOTAL + 1, 40):
        unit = resumed(norm, unit, stop)
        assert unit.queries == stop
    assert resumed(norm, unit, TOTAL).resumable
    assert same(resumed(norm, unit, TOTAL).tensors(), whole(norm).tensors())


def test_stored_tensors_share_no_memory_with_the_unit():
    unit = advanced("L2", 130)
    stored = unit.tensors()
    copies = {name: tensor.clone() for name, tensor in stored.items()}
    oracle, _ = problem("L2")
    with oracle:
        advance(oracle, unit, TOTAL)
    assert same(stored, copies)


@pytest.mark.parametrize("norm", NORMS)
def test_distances_never_rise_and_are_those_of_the_points(norm):
    unit, (_, shard) = whole(norm), problem(norm)
    assert (unit.trajectory[1:] <= unit.trajectory[:-1]).all()
    assert unit.best_distance.isfinite().all()
    measured = shard.norm.distance(unit.best_point.double(), shard.inputs.double())
    torch.testing.assert_close(measured, unit.best_distance, rtol=1e-14, atol=0)
    assert unit.best_point.min() >= 0
    assert unit.best_point.max() <= 1


def test_states_are_kept_only_of_runs_that_continue():
    assert advanced("L2", 60).states.keys() == {"fmn"}
    assert advanced("L2", 90).states.keys() == {"fmn", "fmn:restart1"}
    assert advanced("L2", 120).states.keys() == {"fmn"}
    assert advanced("L2", 290).states.keys() == {"fmn", "step 4"}
    assert advanced("L2", TOTAL).states == {}


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_fork_takes_samples_that_gained_one_way_and_the_others_another(norm):
    unit = advanced(norm, 200)
    names = unit.ensemble.names
    gained = unit.trajectory[11] < (1 - 1e-3) * unit.trajectory[5]
    assert 0 < gained.sum() < len(gained)
    assert {"step 2 gained 0", "step 2 otherwise 0"} <= advanced(norm, 150).states.keys()
    searched = unit.found[names.index(f"{BLACK_BOX[norm]}:refine")] < torch.inf
    refined = unit.found[names.index("pdpgd:refine")] < torch.inf
    assert not (searched & ~gained).any()
    assert not (refined & gained).any()


def test_fork_takes_one_way_where_no_sample_gained():
    unit = advanced("L0", 200)
    assert (unit.found[unit.ensemble.names.index("sparse_min:refine")] == torch.inf).all()


def test_fork_gives_both_groups_the_same_queries():
    oracle, shard = problem("L2")
    watch = Watch.on(oracle.model)
    unit = Unit.start(small_ensemble("L2"), shard)
    with oracle:
        advance(oracle, unit, 120)
        before = watch.total
        advance(oracle, unit, 200)
    assert watch.total - before == 80 * len(shard)


def test_winner_is_what_found_the_point_and_origin_the_run_that_was_refined():
    unit = whole("L2")
    names = unit.ensemble.names
    assert (unit.origin >= 0).all()
    assert all(":refine" not in names[k] for k in unit.origin.tolist())
    refined = unit.winner != unit.origin
    assert refined.any()
    assert all(":refine" in names[k] for k in unit.winner[refined].tolist())
    reached = unit.found.min(0).values
    assert torch.equal(reached, unit.best_distance)


def test_larger_ensemble_resumes_a_smaller_one_that_it_holds():
    norm = "L2"
    small = small_ensemble(norm)
    first = make_ensemble(name="first", norm=norm, steps=small.steps[:3])
    assert small.holds(first)
    begun = advanced(norm, first.total, ensemble=first)
    oracle, shard = problem(norm)
    larger = Unit.start(small, shard)
    larger.restore(begun.tensors(), begun.queries, first.names)
    assert not larger.resumable  # the smaller one raises fmn once, and keeps no state of it
    kept = advanced(norm, first.total)
    larger = Unit.start(small, shard)
    larger.restore(kept.tensors(), kept.queries)
    assert larger.resumable
    with oracle:
        advance(oracle, larger, TOTAL)
    assert same(larger.tensors(), whole(norm).tensors())


def test_advance_refuses_queries_between_checkpoints_and_beyond_the_list():
    unit, (oracle, _) = advanced("L2", 100), problem("L2")
    for queries in (95, 90, TOTAL + 10):
        with pytest.raises(FrontierError, match=f"cannot advance small from 100 to {queries}"):
            advance(oracle, unit, queries)


def test_classify_sees_kept_points_again_in_other_batches():
    unit, (oracle, shard) = advanced("L2", 100), problem("L2")
    unit.best_distance[2] = torch.inf  # nothing was kept there
    before = oracle.counts.verification
    with oracle:
        classes, shares = classify(oracle, unit, batch_size=3)
    assert oracle.counts.verification - before == len(shard) - 1
    assert classes[2] == -1
    kept = torch.arange(len(shard)) != 2
    assert (classes != shard.labels)[kept].all()
    assert shares.tolist() == kept.float().tolist()


RUNS = ("fmn", "fmn:restart1", "pdpgd", "fmn:target1")
RAISES = [
    {"run": "fmn", "queries": 40},
    {"run": "fmn:restart1", "queries": 30},
    {"run": "pdpgd", "queries": 30},
    {"run": "fmn", "queries": 60},
    {"run": "fmn:target1", "queries": 20},
    {"run": "pdpgd", "queries": 50},
]


@pytest.mark.parametrize("norm", NORMS)
def test_raises_alone_give_the_minimum_of_their_runs(norm):
    """An ensemble without refinements is read off the traces of its runs, checkpoint by
    checkpoint.
    """
    ensemble = make_ensemble(name="raises", norm=norm, steps=RAISES)
    unit = advanced(norm, ensemble.total, ensemble=ensemble)
    oracle, shard = problem(norm)
    traces = {}
    with oracle:
        for run in RUNS:
            search = Search.start(shard, solver_of(Run.parse(run)), Run.parse(run), horizon=1000)
            traces[run] = advance_search(oracle, search, 60)
    expected = torch.full((len(shard),), torch.inf, dtype=torch.float64)
    for span in ensemble.spans:
        for queries in range(span.reached + 10, span.step.queries + 1, 10):
            expected = torch.minimum(expected, traces[span.step.run][queries // 10 - 1])
            place = (span.begin + queries - span.reached) // 10 - 1
            assert torch.equal(unit.trajectory[place], expected)
    for name, queries in ensemble.queries.items():
        found = unit.found[ensemble.names.index(name)]
        assert torch.equal(found, traces[name][queries // 10 - 1])


def test_first_of_equal_runs_is_the_winner():
    steps = [{"run": "fmn", "queries": 40}, {"run": "fmn:restart1", "queries": 40}]
    unit = advanced("L2", 80, ensemble=make_ensemble(name="two", norm="L2", steps=steps))
    expected = (unit.found[1] < unit.found[0]).short()
    assert torch.equal(unit.winner, expected)
    assert torch.equal(unit.origin, expected)


def test_refinement_of_samples_never_broken_starts_at_the_inputs_and_is_their_origin():
    search = BLACK_BOX["L2"]
    steps = [
        {"run": search, "queries": 10},
        {"run": search, "queries": 300, "start": "best"},
        {"run": "fmn", "queries": 100, "start": "beyond"},
    ]
    ensemble = make_ensemble(name="refined", norm="L2", steps=steps)
    unit = advanced("L2", 10, ensemble=ensemble)
    late = unit.best_distance.isinf()
    assert late.any()
    oracle, _ = problem("L2")
    with oracle:
        advance(oracle, unit, 410)
    assert unit.best_distance[late].isfinite().all()
    origins = {ensemble.names[k] for k in unit.origin[late].tolist()}
    assert origins <= {f"{search}:refine", "fmn:refine"}
    assert all(ensemble.names[k] == search for k in unit.origin[~late].tolist())


def test_winners_are_translated_into_the_names_of_the_ensemble_that_resumes():
    steps = small_ensemble("L2").steps
    begun = advanced("L2", 120, ensemble=make_ensemble(name="a", norm="L2", steps=steps[:2]))
    assert begun.ensemble.names == ("fmn", "fmn:restart1")
    other = make_ensemble(name="b", norm="L2", steps=[steps[1], *steps[3:5]])
    unit = Unit.start(other, problem("L2")[1])
    unit.restore(begun.tensors(), 120, begun.ensemble.names)
    restarted = begun.winner == 1
    assert 0 < restarted.sum() < len(restarted)
    assert (unit.winner[restarted] == other.names.index("fmn:restart1")).all()
    assert (unit.winner[~restarted] == -1).all()  # fmn is none of its names
    assert torch.equal(unit.found[other.names.index("fmn:restart1")], begun.found[1])


def test_restored_unit_knows_nothing_beyond_its_queries():
    stored = advanced("L2", 130)
    unit = Unit.start(stored.ensemble, problem("L2")[1])
    unit.restore(stored.tensors(), 130)
    assert unit.trajectory[:13].isfinite().any()
    assert unit.trajectory[13:].isinf().all()


def test_unit_that_kept_no_states_is_resumable_only_between_runs():
    for stop, whole_steps in ((40, False), (60, False), (600, True)):
        unit = advanced("L2", stop)
        unit.states = {}
        assert unit.resumable == whole_steps
    steps = [{"run": "fmn", "queries": 40}, {"run": "ddn", "queries": 40}]
    unit = advanced("L2", 40, ensemble=make_ensemble(name="two", norm="L2", steps=steps))
    assert unit.states == {}
    assert unit.resumable


def test_vanishing_gradients_are_counted_for_the_run_that_met_them():
    model = Answering(lambda x: torch.tensor([2.0, 1.0, 0.0]).to(x) + 0 * x.sum(1, keepdim=True))
    bench = Bench.of(model, torch.rand(3, 1, 4, 4), torch.zeros(3, dtype=torch.long), "L2")
    steps = [
        {"run": "fmn", "queries": 20},
        {"run": "square_min", "queries": 20},
        {"run": "fmn", "queries": 40},
        {"run": "ddn", "queries": 10},
    ]
    unit = bench.unit(make_ensemble(name="counts", norm="L2", steps=steps), 30, 70)
    counts = dict(zip(unit.ensemble.names, unit.zero_gradients.tolist(), strict=True))
    assert counts == {"fmn": [20] * 3, "square_min": [0] * 3, "ddn": [5] * 3}
    assert (unit.bad_gradients == 0).all()
    assert (unit.winner == -1).all()


def test_shard_without_samples_is_advanced_for_nothing():
    oracle, shard = problem("L2")
    unit = Unit.start(small_ensemble("L2"), shard.select(torch.tensor([], dtype=torch.long)))
    before = oracle.counts.attack
    with oracle:
        advance(oracle, unit, 300)
        classes, shares = classify(oracle, unit, batch_size=10)
    assert unit.queries == 300
    assert unit.best_distance.shape == classes.shape == shares.shape == (0,)
    assert oracle.counts.attack == before


def test_solvers_of_the_caller_take_the_place_of_the_attacks_own():
    oracle, shard = problem("L2")
    ensemble = make_ensemble(name="one", norm="L2", steps=[{"run": "fmn:target1", "queries": 60}])
    found = []
    for solvers in ({}, {"fmn": FMN()}, {"fmn": FMN(alpha=0.1)}):
        unit = Unit.start(ensemble, shard, solvers)
        with oracle:
            advance(oracle, unit, 60)
        found.append(unit.best_distance)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
