"""An ensemble on a shard: exact cost, prefixes, resuming, forks and credit."""

import pytest
import torch
from support.ensembles import BLACK_BOX, advanced, problem, resumed, small_ensemble
from support.models import Watch
from support.tensors import same

from advfrontier import FrontierError
from advfrontier.engine import Unit, advance, classify
from advfrontier.pool import make_ensemble

NORMS = ("L0", "L1", "L2", "Linf")
TOTAL = 600


def whole(norm):
    return advanced(norm, TOTAL)


@pytest.mark.parametrize("norm", NORMS)
def test_small_ensemble_has_every_kind_of_step(norm):
    assert small_ensemble(norm).longest == TOTAL


@pytest.mark.parametrize("norm", NORMS)
def test_cost_is_exact_after_every_checkpoint(norm):
    oracle, shard = problem(norm)
    watch = Watch.on(oracle.model)
    unit = Unit.start(small_ensemble(norm), shard)
    with oracle:
        for stop in range(10, TOTAL + 1, 10):
            advance(oracle, unit, stop)
            assert watch.total == stop * len(shard)


@pytest.mark.parametrize("norm", NORMS)
def test_every_budget_is_a_prefix(norm):
    full = whole(norm)
    for stop in (10, 60, 90, 120, 150, 170, 200, 300, 410, 590):
        part = advanced(norm, stop)
        assert torch.equal(part.trajectory[: stop // 10], full.trajectory[: stop // 10])
        assert torch.equal(part.best_distance, full.trajectory[stop // 10 - 1])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("stop", range(10, TOTAL, 70))
def test_resumed_units_have_the_same_bits(norm, stop):
    part = resumed(norm, advanced(norm, stop), TOTAL)
    assert same(part.tensors(), whole(norm).tensors())


@pytest.mark.parametrize("norm", NORMS)
def test_stops_leave_no_trace(norm):
    many = advanced(norm, *range(10, TOTAL + 1, 10))
    assert same(many.tensors(), whole(norm).tensors())


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
    unit, (oracle, shard) = whole("L2"), problem("L2")
    unit.best_distance[2] = torch.inf  # nothing was kept there
    before = oracle.counts.verification
    with oracle:
        classes, shares = classify(oracle, unit, batch_size=3)
    assert oracle.counts.verification - before == len(shard) - 1
    assert classes[2] == -1
    kept = torch.arange(len(shard)) != 2
    assert (classes != shard.labels)[kept].all()
    assert shares.tolist() == kept.float().tolist()
