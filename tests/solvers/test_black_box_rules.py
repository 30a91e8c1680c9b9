"""Rules of the black-box searches: what a step changes, how much, and when."""

import math

import numpy as np
import pytest
import torch
from solver_answers import answer_of
from support.models import samples, tanh_mlp
from support.runs import Bench, small

from advfrontier.solvers import square_min
from advfrontier.solvers.protocol import cosine
from advfrontier.solvers.square_min import _image
from advfrontier.solvers.windows import _windows, move, pour, tiles

SHAPE = (3, 12, 12)


def unit_of(norm, run, shape=SHAPE):
    model = tanh_mlp(shape, hidden=4)
    return Bench.of(model, *samples(model, 5, shape), norm).unit(run)


def test_square_search_moves_every_feature_by_the_radius():
    bench = small("Linf")
    unit = bench.unit("square_min")
    radii = []
    for stop in range(10, 301, 10):
        bench.go(unit, stop)
        moved = unit.state.point - unit.problem.inputs
        free = (unit.state.point > 0) & (unit.state.point < 1)
        expected = unit.state.radius[:, None].expand_as(moved)
        torch.testing.assert_close(moved.abs()[free], expected[free], rtol=0, atol=1e-6)
        assert set(unit.state.trial.unique().tolist()) == {-1.0, 1.0}
        radii.append(unit.state.radius)
    found = unit.best_distance < math.inf
    assert found.all()
    assert (radii[-1] < unit.best_distance).all()
    assert (radii[-1] < radii[0]).any()


def test_square_search_tries_squares_that_shrink():
    """With a margin that never improves the kept signs stay, and what a trial changes lies in one square."""
    unit = unit_of("Linf", "square_min")
    kept, sides = unit.state.kept.clone(), {}
    for i in (0, 1, 2, 3, 4, 150, 151, 152, 153, 900, 901, 902, 903):
        unit.solver.step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=math.inf))
        assert torch.equal(unit.state.kept, kept)
        for before, after in zip(
            kept.view(-1, *SHAPE), unit.state.trial.view(-1, *SHAPE), strict=True
        ):
            changed = (before != after).any(0)
            rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
            if len(rows):
                extent = max(int(rows.max() - rows.min()), int(columns.max() - columns.min())) + 1
                sides[i // 100] = max(sides.get(i // 100, 0), extent)
                inside = after[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
                assert (inside == inside[:, :1, :1]).all()  # one sign per channel
    assert sides[0] == 11  # √(0.8·144), the first share of the image
    assert sides[0] > sides[1] > sides[9] == 1


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_windows_of_the_other_norms_shrink_too(norm):
    """A side is √(0.8·144) = 11 at first, and its area halves four times; in ℓ2 it is odd, for a middle."""
    unit = unit_of(norm, "square_min")
    sides = [
        unit.solver._side(unit.problem, i, 144)
        for i in (0, 10, 11, 50, 51, 200, 201, 500, 501, 999)
    ]
    assert sides == [11, 11, 8, 8, 5, 5, 4, 4, 3, 3]
    extents = []
    unit.state.margin = torch.full_like(unit.state.margin, 0.1)
    for i in (0, 1, 2, 990, 991, 992):
        before = unit.state.kept.clone()
        unit.solver.step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=math.inf))
        assert torch.equal(unit.state.kept, before)  # the margin did not fall
        changed = (unit.state.trial - before).abs().view(-1, *SHAPE) > 1e-6
        extents.append(int(changed.any(1).sum((1, 2)).max()))
    assert max(extents[3:]) <= 2 * 3 * 3 < min(extents[:3])


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("i", [0, 300, 999])
def test_the_radius_of_the_square_search(norm, i):
    """Less by γ after a success, more by γ before the first, and as it is otherwise; γ falls along a cosine."""
    γ = cosine(0.015, 0.001, i, 1000)
    for wrong, best, factor in (
        (True, 0.3, 0.75 * (1 - γ)),
        (False, math.inf, 1 + γ),
        (False, 0.3, 1),
    ):
        unit = unit_of(norm, "square_min")
        unit.state.radius = torch.full_like(unit.state.radius, 0.4)
        unit.solver.step(
            unit.problem, unit.state, i, answer_of(unit, wrong=wrong, best=best, distance=0.4)
        )
        torch.testing.assert_close(unit.state.radius, torch.full((5,), 0.4 * factor))


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_a_success_is_tried_again_at_the_smaller_radius_and_a_worse_margin_is_dropped(norm):
    unit = unit_of(norm, "square_min")
    point, x = unit.state.point.clone(), unit.problem.inputs
    unit.state.margin = torch.full_like(unit.state.margin, 1.0)
    distance = unit.problem.norm.distance(point, x)
    answer = answer_of(unit, wrong=True, best=1.0, loss=-0.5)
    answer.distance.copy_(distance)
    answer.best_distance.copy_(distance)
    unit.solver.step(unit.problem, unit.state, 0, answer)
    assert (unit.state.margin == math.inf).all()
    if norm != "Linf":
        torch.testing.assert_close(unit.state.point, x + (1 - 0.015) * (point - x))
    kept = unit.state.kept.clone()
    for loss, stays in (
        (0.5, False),
        (0.7, True),
    ):  # any margin is better than none; then only a lower one is
        unit.solver.step(
            unit.problem, unit.state, 1, answer_of(unit, wrong=False, best=0.3, loss=loss)
        )
        assert (unit.state.margin == 0.5).all()
        assert torch.equal(unit.state.kept, kept) == (stays or norm == "Linf")
        kept = unit.state.kept.clone()


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 5, 7), (1, 1, 20), (2, 1, 3), (1, 1, 1)])
def test_moves_keep_the_size_and_touch_two_windows_only(shape):
    d, rng = math.prod(shape), torch.Generator().manual_seed(0)
    x = torch.rand(6, d, generator=rng)
    kept = tiles(shape, torch.rand(6, d, generator=rng))
    assert (kept != 0).any(1).all()
    radius = torch.full((6,), 0.5)
    for side in (3, 5):
        draw = torch.rand(6, 5 + shape[0], generator=rng)
        unit = kept / kept.norm(dim=1, keepdim=True)
        moved = move(shape, unit, side, draw)
        torch.testing.assert_close(moved.norm(dim=1), torch.ones(6))
        less = move(
            shape, 0.6 * unit, side, draw
        )  # what is missing goes into the window, and not everywhere
        torch.testing.assert_close(less.norm(dim=1), torch.ones(6))
        windows = torch.cat(_windows(shape, min(side, shape[1]), min(side, shape[2]), draw), 1)
        outside = torch.ones_like(unit).scatter(1, windows, 0) > 0
        torch.testing.assert_close(less[outside], 0.6 * unit[outside])
        small = kept / kept.abs().sum(1, keepdim=True)
        poured = pour(shape, small, side, draw, inputs=x, radius=radius)
        assert (poured.abs().sum(1) <= 1 + 1e-5).all()
        changed = (poured != small).view(6, *shape).any(1).sum((1, 2))
        assert (changed <= 2 * min(side, shape[1]) * min(side, shape[2])).all()
        fresh = (poured != 0) & (poured != small)
        inside = x + radius[:, None] * poured
        assert ((inside >= -1e-6) & (inside <= 1 + 1e-6))[fresh].all()


def test_poured_windows_are_filled_from_the_middle_as_far_as_the_box_allows():
    shape, x = (1, 5, 5), torch.full((1, 25), 0.25)
    draw = torch.tensor(
        [[0.0, 0.0, 0.0, 0.0, 0.0, 0.9]]
    )  # the sign is +, and the only window is the whole image
    poured = 2 * pour(shape, torch.zeros(1, 25), 5, draw, inputs=x, radius=torch.tensor([2.0]))
    ordered = poured.view(5, 5)
    assert ordered[2, 2] == 0.75
    assert (
        ordered.flatten().sort(descending=True).values[:3] == torch.tensor([0.75, 0.75, 0.5])
    ).all()
    assert (ordered[1:4, 1:4] != 0).sum() == 3  # in the first ring
    assert poured.sum() == 2


@pytest.mark.parametrize(
    ("i", "best", "features"), [(0, 40, 28), (0, 3, 2), (0, 1, 1), (500, 40, 33), (999, 200, 197)]
)
def test_sparse_search_goes_on_with_fewer_features(i, best, features):
    """⌊(1 − γ)·best⌋ with γ from 0.3 to 0.01 along a cosine, at least one less."""
    unit = unit_of("L0", "sparse_min")
    unit.solver.step(
        unit.problem, unit.state, i, answer_of(unit, wrong=True, best=float(best), loss=-0.5)
    )
    assert (unit.state.features == features).all()
    changed = (unit.state.point != unit.problem.inputs).sum(1)
    assert (changed <= features).all()


def test_sparse_search_takes_more_features_until_there_is_a_success():
    cases = ((10, False, 11), (101, False, 106), (401, False, 421), (432, False, 432), (9, True, 9))
    for features, found, after in cases:
        unit = unit_of("L0", "sparse_min")
        unit.state.features = torch.full((5,), float(features))
        unit.solver.step(
            unit.problem,
            unit.state,
            0,
            answer_of(unit, wrong=False, best=9.0 if found else math.inf),
        )
        assert (unit.state.features == after).all()
        assert ((unit.state.point != unit.problem.inputs).sum(1) == after).all()


@pytest.mark.parametrize(("i", "swapped"), [(0, 10), (500, 6), (999, 2)])
def test_sparse_search_exchanges_a_shrinking_share_of_the_features(i, swapped):
    """Of 100 features: ⌈100·share⌉ with the share from 0.1 to 0.01 along a cosine; all at ends of the box."""
    unit = unit_of("L0", "sparse_min")
    unit.state.features = torch.full((5,), 100.0)
    unit.state.kept = unit.problem.inputs.clone()
    unit.state.kept[:, :100] = 1.0
    unit.state.point, unit.state.margin = unit.state.kept.clone(), torch.full((5,), 0.1)
    unit.solver.step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=101.0))
    x, point = unit.problem.inputs, unit.state.point
    assert ((point == x)[:, :100].sum(1) == swapped).all()
    added = (point != x)[:, 100:]
    assert (added.sum(1) == swapped).all()
    assert set(point[:, 100:][added].tolist()) <= {0.0, 1.0}
    assert torch.equal(unit.state.kept[:, :100], torch.ones(5, 100))


def test_restarts_of_black_box_searches_draw_other_numbers_and_samples_keep_theirs():
    for norm, run in (
        ("L0", "sparse_min"),
        ("L1", "square_min"),
        ("L2", "square_min"),
        ("Linf", "square_min"),
    ):
        bench = small(norm)
        alone = bench.unit(run, [4])
        together = bench.unit(run)
        assert (together.state.point == alone.state.point).all(1).any()
        assert (bench.unit(f"{run}:restart1").state.point != together.state.point).any(1).all()


def test_numbers_that_round_to_one_stay_inside_the_image(monkeypatch):
    monkeypatch.setattr(
        square_min,
        "uniform",
        lambda _seed, ids, _stream, count: np.full((len(ids), count), 1 - 1e-12),
    )
    for norm in ("L1", "L2", "Linf"):
        bench = small(norm)
        unit = bench.finished("square_min", 100)
        assert (unit.state.draws < 1).all()
        assert unit.state.point.isfinite().all()


def test_samples_that_are_not_images_are_one_row():
    assert _image((3, 8, 9)) == (3, 8, 9)
    assert _image((64,)) == (1, 1, 64)
