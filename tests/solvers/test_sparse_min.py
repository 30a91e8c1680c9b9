"""Sparse search: how many features change, which, and to what."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from searches import answer_of, full, small, step
from support.examples import EXAMPLES

from advfrontier.solvers.sparse_min import _orders, choose, other_end
from advfrontier.threat.norms import make_norm

SHAPE = (3, 12, 12)


def search_in(**options):
    """Return a search on images of 12 × 12 pixels."""
    return small("L0", shape=SHAPE).search("sparse_min", **options)


def changed(search):
    """Return how many features of each point are not the input's."""
    return (search.state.point != search.problem.inputs).sum(1)


def test_start_has_as_many_features_as_estimated_at_ends_of_the_box():
    search = search_in()
    expected = torch.minimum(search.problem.boundary, search.problem.largest / 2).ceil()
    assert torch.equal(changed(search).float(), expected)
    fresh = search.state.point[search.state.point != search.problem.inputs]
    assert set(fresh.tolist()) == {0.0, 1.0}


def test_start_never_changes_more_than_half_of_the_features():
    search = search_in()
    far = type(search.problem)(**vars(search.problem) | {"boundary": full(search, 1e3)})
    search.state = search.solver.start(far)
    assert (changed(search) == 216).all()


@pytest.mark.parametrize(
    ("i", "best", "features"), [(0, 40, 28), (0, 3, 2), (0, 1, 1), (500, 40, 33), (999, 200, 197)]
)
def test_a_success_leaves_fewer_features(i, best, features):
    """⌊(1 − γ)·best⌋ with γ from 0.3 to 0.01 along a cosine, at least 1."""
    search = search_in()
    step(search, i, answer_of(search, wrong=True, best=float(best), loss=-0.5))
    assert (search.state.features == features).all()
    assert (changed(search) <= features).all()


@pytest.mark.parametrize(
    ("features", "found", "after"),
    [(10, False, 11), (101, False, 106), (401, False, 421), (432, False, 432), (9, True, 9)],
)
def test_features_grow_until_there_is_a_success(features, found, after):
    search = search_in()
    search.state.features = full(search, float(features))
    step(search, 0, answer_of(search, wrong=False, best=9.0 if found else math.inf))
    assert (search.state.features == after).all()
    assert (changed(search) == after).all()


@pytest.mark.parametrize(("i", "exchanged"), [(0, 10), (500, 6), (999, 2)])
def test_a_step_exchanges_a_share_of_the_features(i, exchanged):
    """Of 100 features ⌈100·share⌉, the share from 0.1 to 0.01 along a cosine."""
    search = search_in()
    search.state.features = full(search, 100.0)
    search.state.kept = search.problem.inputs.clone()
    search.state.kept[:, :100] = 1.0
    search.state.point, search.state.margin = search.state.kept.clone(), full(search, 0.1)
    step(search, i, answer_of(search, wrong=False, best=101.0))
    x, point = search.problem.inputs, search.state.point
    assert ((point == x)[:, :100].sum(1) == exchanged).all()
    added = (point != x)[:, 100:]
    assert (added.sum(1) == exchanged).all()
    assert set(point[:, 100:][added].tolist()) <= {0.0, 1.0}
    assert torch.equal(search.state.kept[:, :100], torch.ones(5, 100))


def test_a_refinement_begins_with_the_features_of_its_start():
    search = search_in()
    starts = search.problem.inputs.clone()
    starts[:, :20] = 1.0
    parts = vars(search.problem) | {"starts": starts, "refines": True}
    search.problem = type(search.problem)(**parts)
    search.state = search.solver.start(search.problem)
    assert torch.equal(search.state.point, starts)
    assert (search.state.features == 19).all()
    step(search, 0, answer_of(search, wrong=True, best=20.0, loss=-0.5))
    assert (search.state.features == 19).all()  # ⌊20·(1 − 0.3/6)⌋
    assert (changed(search) == 19).all()
    assert ((search.state.point != search.problem.inputs)[:, 20:].sum(1) == 0).all()


def test_points_with_logits_that_are_not_finite_are_not_kept():
    search = search_in()
    answer = answer_of(search, wrong=False, best=math.inf, loss=0.0)
    answer.logits.fill_(math.nan)
    step(search, 0, answer)
    assert torch.equal(search.state.kept, search.problem.inputs)


def test_restarts_draw_other_numbers_and_samples_keep_theirs():
    bench = small("L0", shape=SHAPE)
    together, alone = bench.search("sparse_min"), bench.search("sparse_min", [4])
    assert torch.equal(together.state.point[4:], alone.state.point)
    again = bench.search("sparse_min:restart1")
    assert (again.state.point != together.state.point).any(1).all()


def test_other_end_is_the_one_of_the_sign_unless_the_feature_is_there():
    inputs = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.3, 0.3, 1e-30, 1 - 1e-7]])
    signs = torch.tensor([[-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]])
    norm = make_norm("L0", (8,))
    assert other_end(norm, inputs, signs).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]]


@EXAMPLES
@given(features=st.integers(1, 3000), i=st.integers(0, 999))
def test_orders_are_permutations_and_inverse_to_each_other(features, i):
    order, back = _orders(features, i, torch.device("cpu"))
    places = torch.arange(features)
    assert torch.equal(order.sort().values, places)
    assert torch.equal(order[back], places)


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), features=st.integers(1, 400), i=st.integers(0, 999))
def test_choose_takes_exact_numbers_of_either_kind(seed, features, i):
    rng = torch.Generator().manual_seed(seed)
    marked = (torch.rand(8, features, generator=rng) < torch.rand(8, 1, generator=rng)).float()
    drop = (torch.rand(8, generator=rng) * 1.2 * features).floor()
    add = (torch.rand(8, generator=rng) * 1.2 * features).floor() - 1
    draws = torch.rand(8, 2, generator=rng)
    chosen = choose(marked.clone(), drop, add, draws, i)
    assert set(chosen.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert (marked[chosen == -1] == 1).all()
    assert (marked[chosen == 1] == 0).all()
    total = marked.sum(1)
    assert torch.equal((chosen == -1).sum(1).float(), torch.minimum(drop, total))
    expected = torch.minimum(add.clamp(min=0), features - total)
    assert torch.equal((chosen == 1).sum(1).float(), expected)


def test_every_feature_is_chosen_equally_often():
    """2000 steps of 1 of 20 and of 2 of 180: expected 100 and 22 times each."""
    marked = torch.zeros(1, 200)
    marked[:, :20] = 1
    rng = torch.Generator().manual_seed(0)
    dropped, added = torch.zeros(200), torch.zeros(200)
    for i in range(2000):
        draws = torch.rand(1, 2, generator=rng)
        chosen = choose(marked.clone(), torch.ones(1), torch.full((1,), 2.0), draws, i)[0]
        dropped += chosen == -1
        added += chosen == 1
    assert 60 < dropped[:20].min() <= dropped[:20].max() < 140
    assert 5 < added[20:].min() <= added[20:].max() < 45
