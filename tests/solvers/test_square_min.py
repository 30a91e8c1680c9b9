"""Square search: what a step changes, how much, and when."""

import math

import pytest
import torch
from searches import answer_of, full, small, step

from advfrontier.solvers.protocol import cosine
from advfrontier.solvers.square_min import image_shape
from advfrontier.threat.norms import make_norm

SHAPE = (3, 12, 12)
NORMS = ("L1", "L2", "Linf")


def search_in(norm, **options):
    """Return a search on images of 12 × 12 pixels."""
    return small(norm, shape=SHAPE).search("square_min", **options)


def refinement_of(norm):
    """Return the search as a refinement of points half-way to the corner of the box."""
    search = small(norm, shape=SHAPE).search("square_min")
    problem = search.problem
    starts = torch.lerp(problem.inputs, problem.inputs.round(), 0.5)
    search.problem = type(problem)(**vars(problem) | {"starts": starts, "refines": True})
    search.state = search.solver.start(search.problem)
    return search


def test_linf_search_moves_every_feature_by_the_radius():
    bench = small("Linf")
    search = bench.search("square_min")
    radii = []
    for stop in range(10, 301, 10):
        bench.go(search, stop)
        point = search.state.point
        moved = (point - search.problem.inputs).abs()
        free = (point > 0) & (point < 1)
        expected = search.state.radius[:, None].expand_as(moved)
        torch.testing.assert_close(moved[free], expected[free], rtol=0, atol=1e-6)
        assert set(search.state.trial.unique().tolist()) == {-1.0, 1.0}
        radii.append(search.state.radius)
    assert (search.best_distance < math.inf).all()
    assert (radii[-1] < search.best_distance).all()
    assert (radii[-1] < radii[0]).any()


def changed_extent(before, after):
    """Return the side of the smallest square around all changes of an image."""
    changed = (before != after).any(0)
    rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
    if not len(rows):
        return 0
    return max(int(rows.max() - rows.min()), int(columns.max() - columns.min())) + 1


def test_squares_shrink_while_the_margin_never_improves():
    """The kept signs stay, and all changes lie in one square."""
    search = search_in("Linf")
    kept = search.state.kept.clone()
    search.state.margin = full(search, -math.inf)
    sides = {}
    for i in (0, 1, 2, 3, 4, 150, 151, 152, 153, 900, 901, 902, 903):
        step(search, i, answer_of(search, wrong=False, best=math.inf))
        assert torch.equal(search.state.kept, kept)
        pairs = zip(kept.view(-1, *SHAPE), search.state.trial.view(-1, *SHAPE), strict=True)
        for before, after in pairs:
            sides[i // 100] = max(sides.get(i // 100, 0), changed_extent(before, after))
    assert sides[0] == 11  # √(0.8·144), the first share of the image
    assert sides[0] > sides[1] > sides[9] == 1


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_windows_halve_their_area_four_times(norm):
    search = search_in(norm)
    sides = [
        search.solver._side(search.problem, i, 144)
        for i in (0, 10, 11, 50, 51, 200, 201, 500, 501, 999)
    ]
    assert sides == [11, 11, 8, 8, 5, 5, 4, 4, 3, 3]


@pytest.mark.parametrize(
    ("norm", "sides"), [("L1", [4, 3, 2, 1]), ("L2", [2, 1, 1, 1]), ("Linf", [1, 1, 1, 1])]
)
def test_windows_of_a_refinement_are_small(norm, sides):
    search = refinement_of(norm)
    assert [search.solver._side(search.problem, i, 144) for i in (0, 250, 500, 999)] == sides


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("i", [0, 300, 999])
def test_radius_shrinks_on_success_and_grows_before_the_first(norm, i):
    γ = cosine(0.015, 0.001, i, 1000)
    cases = ((True, 0.3, 0.3 * (1 - γ)), (False, math.inf, 0.4 * (1 + γ)), (False, 0.3, 0.4))
    for wrong, best, expected in cases:
        search = search_in(norm)
        search.state.radius = full(search, 0.4)
        step(search, i, answer_of(search, wrong=wrong, best=best, distance=0.4))
        torch.testing.assert_close(search.state.radius, full(search, expected))


@pytest.mark.parametrize("norm", NORMS)
def test_radius_of_a_refinement_shrinks_by_a_quarter(norm):
    search = refinement_of(norm)
    size = search.problem.norm.distance(search.problem.starts, search.problem.inputs)
    torch.testing.assert_close(search.state.radius, size * (1 - 0.015 / 4))
    step(search, 0, answer_of(search, wrong=True, best=0.3, distance=0.3))
    torch.testing.assert_close(search.state.radius, full(search, 0.3 * (1 - 0.015 / 4)))


@pytest.mark.parametrize("norm", NORMS)
def test_a_refinement_starts_from_its_point_and_elsewhere_anew(norm):
    search = refinement_of(norm)
    problem = search.problem
    starts = problem.starts.clone()
    starts[2] = problem.inputs[2]  # where nothing was found
    search.problem = type(problem)(**vars(problem) | {"starts": starts})
    state = search.solver.start(search.problem)
    expected = problem.inputs + (1 - 0.015 / 4) * (starts - problem.inputs)
    rows = [0, 1, 3, 4]
    torch.testing.assert_close(state.point[rows], expected[rows])
    assert torch.equal(state.point[2], small(norm, shape=SHAPE).search("square_min").state.point[2])


@pytest.mark.parametrize("norm", NORMS)
def test_first_radius_is_no_more_than_half_the_box(norm):
    search = search_in(norm)
    problem = search.problem
    far = type(problem)(**vars(problem) | {"boundary": full(search, 1e3)})
    state = search.solver.start(far)
    torch.testing.assert_close(state.radius, problem.largest / 2)
    near = type(problem)(**vars(problem) | {"boundary": full(search, 1e-2)})
    reach = 2 if norm == "Linf" else 1
    torch.testing.assert_close(search.solver.start(near).radius, full(search, reach * 1e-2))


@pytest.mark.parametrize("norm", NORMS)
def test_a_success_is_tried_again_and_a_worse_margin_is_dropped(norm):
    search = search_in(norm)
    x, point = search.problem.inputs, search.state.point.clone()
    search.state.margin = full(search, 1.0)
    distance = search.problem.norm.distance(point, x)
    answer = answer_of(search, wrong=True, best=1.0, loss=-0.5)
    answer.distance.copy_(distance)
    answer.best_distance.copy_(distance)
    step(search, 0, answer)
    assert (search.state.margin == math.inf).all()
    if norm != "Linf":
        torch.testing.assert_close(search.state.point, x + (1 - 0.015) * (point - x))
    kept = search.state.kept.clone()
    for loss, stays in ((0.5, False), (0.7, True)):  # any margin is lower than none
        step(search, 1, answer_of(search, wrong=False, best=0.3, loss=loss))
        assert (search.state.margin == 0.5).all()
        assert torch.equal(search.state.kept, kept) == (stays or norm == "Linf")
        kept = search.state.kept.clone()


@pytest.mark.parametrize("norm", NORMS)
def test_points_with_logits_that_are_not_finite_are_not_kept(norm):
    search = search_in(norm)
    kept = search.state.kept.clone()
    answer = answer_of(search, wrong=False, best=math.inf, loss=0.0)
    answer.logits.fill_(math.nan)
    step(search, 0, answer)
    assert torch.equal(search.state.kept, kept)
    assert (search.state.margin == math.inf).all()


@pytest.mark.parametrize("norm", NORMS)
def test_restarts_draw_other_numbers_and_samples_keep_theirs(norm):
    bench = small(norm)
    together, alone = bench.search("square_min"), bench.search("square_min", [4])
    assert torch.equal(together.state.point[4:], alone.state.point)
    again = bench.search("square_min:restart1")
    assert (again.state.point != together.state.point).any(1).all()


def test_samples_that_are_not_images_are_one_row():
    assert image_shape((3, 8, 9)) == (3, 8, 9)
    assert image_shape((64,)) == (1, 1, 64)
    assert make_norm("L2", (64,)).features == 64
