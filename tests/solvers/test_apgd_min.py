"""APGD_min: radius, checkpoints, sparse steps."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from searches import annealed, answer_of, full, search_of, step
from support.examples import EXAMPLES

from advfrontier.pool import Run
from advfrontier.solvers import APGDMin, solver_of
from advfrontier.solvers.apgd_min import SparseSteps, Steps, sparse_sign


def test_first_step_differentiates_the_margin():
    for loss in ("ce", "dlr"):
        solver = solver_of(Run("apgd_min", loss))
        assert [solver.loss(i) for i in (0, 1, 250)] == ["margin", loss, loss]


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        (Steps(), [110, 205, 285, 350, 400, 435, 465, 495]),
        (SparseSteps(), list(range(20, 501, 20))),
    ],
)
def test_checkpoints_are_those_of_apgd(steps, ends):
    windows = {}
    for i in range(500):
        window = steps.window(i, 500)
        if window is not None:
            windows[i + 1] = window
    assert list(windows) == ends
    starts = [0, *ends[:-1]]
    assert list(windows.values()) == [end - start for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_first_radius_is_the_first_order_estimate(norm):
    search = search_of(norm, "apgd_min-dlr")
    answer = answer_of(search, wrong=False, best=math.inf, loss=1e-2)
    slope = search.problem.norm.dual_size(answer.gradient)
    expected = torch.maximum(1e-2 / slope, search.problem.boundary / 2)
    step(search, 0, answer)
    torch.testing.assert_close(search.state.radius, expected)


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("run", ["apgd_min-ce", "apgd_min-dlr"])
@pytest.mark.parametrize("i", [1, 100, 250, 499])
def test_radius_changes_by_gamma(norm, run, i):
    γ = annealed(0.05, 0.001, i)
    for wrong, factor in ((True, 1 - γ), (False, 1 + γ)):
        search = search_of(norm, run)
        search.state.radius = full(search, 0.2)
        step(search, i, answer_of(search, wrong=wrong, best=0.3, distance=0.3))
        torch.testing.assert_close(search.state.radius, full(search, 0.2 * factor))


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_radius_falls_to_the_best_distance(norm):
    search = search_of(norm, "apgd_min-ce")
    search.state.radius = full(search, 0.2)
    step(search, 5, answer_of(search, wrong=True, best=0.1, distance=0.2))
    torch.testing.assert_close(search.state.radius, full(search, 0.1))


@pytest.mark.parametrize(("norm", "size"), [("L1", 1), ("L2", 2), ("Linf", 2)])
def test_first_step_size(norm, size):
    assert (search_of(norm, "apgd_min-ce").state.relative_step == size).all()
    given_size = search_of(norm, "apgd_min-ce", solver=APGDMin(step_size=0.5))
    assert (given_size.state.relative_step == 0.5).all()


def test_reference_is_the_lowest_loss_and_then_the_nearest_success():
    search = search_of("L2", "apgd_min-dlr")
    state = search.state
    state.point = search.problem.inputs * 0.9
    points = [state.point.clone()]
    step(search, 1, answer_of(search, wrong=False, best=math.inf, loss=0.4))
    assert torch.equal(state.reference, points[0])
    points.append(state.point.clone())
    step(search, 2, answer_of(search, wrong=False, best=math.inf, loss=0.6))
    assert torch.equal(state.reference, points[0])
    points.append(state.point.clone())
    step(search, 3, answer_of(search, wrong=True, best=0.5, loss=0.5, distance=0.5))
    assert torch.equal(state.reference, points[2])
    gradient = state.reference_gradient.clone()
    step(search, 4, answer_of(search, wrong=False, best=0.5, loss=0.1))
    assert torch.equal(state.reference, points[2])  # a low loss counts no longer
    assert torch.equal(state.reference_gradient, gradient)


def after_first_checkpoint(*, falls, nearer=True):
    """Return the run after its first checkpoint in ℓ2, and the point before it."""
    search = search_of("L2", "apgd_min-dlr")
    state = search.state
    state.point = state.point + 0.01
    state.previous = state.previous - 0.02
    state.reference = state.point + 0.03
    state.falls = full(search, falls - 1.0)  # the loss of this step falls as well
    state.last_loss = full(search, 9.0)
    state.lowest_loss = full(search, -9.0)
    state.reduced = torch.zeros_like(state.reduced)
    state.checked_distance = full(search, 0.7 if nearer else 0.5)
    before = state.point.clone()
    answer = answer_of(search, wrong=False, best=0.5)
    step(search, 109, answer)
    return search, before


@pytest.mark.parametrize(("falls", "nearer"), [(82, True), (83, False)])  # 110 · 0.75 = 82.5
def test_checkpoint_goes_back_with_half_the_step(falls, nearer):
    search, before = after_first_checkpoint(falls=falls, nearer=nearer)
    assert (search.state.relative_step == 1).all()
    assert search.state.reduced.all()
    assert (search.state.falls == 0).all()
    torch.testing.assert_close(search.state.previous, before + 0.03)  # from where it moves on


def test_checkpoint_keeps_step_and_momentum_while_loss_and_distance_fall():
    search, before = after_first_checkpoint(falls=83)
    assert (search.state.relative_step == 2).all()
    assert not search.state.reduced.any()
    assert torch.equal(search.state.previous, before)
    problem, ε = search.problem, search.state.radius

    def project(point):
        return (problem.inputs + problem.norm.project(point - problem.inputs, ε)).clamp(0, 1)

    gradient = torch.randn(before.shape, generator=torch.Generator().manual_seed(0))
    ahead = project(before - 2 * ε[:, None] * gradient / gradient.norm(dim=1, keepdim=True))
    drift = before - (problem.starts - 0.02)
    torch.testing.assert_close(
        search.state.point, project(before + 0.75 * (ahead - before) + 0.25 * drift)
    )


def test_linf_steps_along_the_signs():
    search = search_of("Linf", "apgd_min-ce")
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    answer = answer_of(search, wrong=False, best=math.inf, loss=1e-2)
    gradient = answer.gradient.clone()
    step(search, 0, answer)
    expected = 0.5 - search.state.radius[:, None] * gradient.sign()
    torch.testing.assert_close(search.state.point, expected)


@pytest.mark.parametrize(
    ("changed", "before", "size"), [(20, 48, 1.0), (46, 48, 0.6), (47, 48, 0.6), (20, 20, 0.6)]
)
def test_sparse_checkpoint_follows_the_features_of_the_reference(changed, before, size):
    """The largest step where it lost a twentieth of its features, else a shorter one."""
    search = search_of("L1", "apgd_min-dlr")
    search.problem.inputs.fill_(0.5)
    search.state.relative_step = full(search, 0.9)
    search.state.features = full(search, float(before))
    search.state.reference = search.problem.inputs.clone()
    search.state.reference[:, :changed] = 0.6
    step(search, 19, answer_of(search, wrong=False, best=0.5))
    sparser = changed < 0.95 * before
    torch.testing.assert_close(search.state.relative_step, full(search, 1.0 if sparser else size))
    torch.testing.assert_close(search.state.share, full(search, changed / 72))
    assert (search.state.features == changed).all()


def test_sparse_step_never_falls_below_a_tenth():
    search = search_of("L1", "apgd_min-dlr")
    search.state.relative_step, search.state.features = full(search, 0.12), full(search, 1.0)
    step(search, 19, answer_of(search, wrong=False, best=1.0))
    torch.testing.assert_close(search.state.relative_step, full(search, 0.1))


@EXAMPLES
@given(
    seed=st.integers(0, 2**32 - 1),
    features=st.sampled_from([1, 2, 7, 100, 784, 5000]),
    tail=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_sparse_sign_keeps_as_many_as_asked_for(seed, features, tail):
    rng = torch.Generator().manual_seed(seed)
    gradient = torch.randn(6, features, generator=rng)
    gradient = gradient.sign() * gradient.abs() ** tail
    share = torch.tensor([1e-9, 0.01, 0.05, 0.2, 0.5, 1.0])
    signs = sparse_sign(gradient, share)
    count = (share * features).ceil().clamp(1, features)
    kept = (signs != 0).sum(1)
    assert (kept >= count).all()
    assert (kept <= count * 1.01 + 1).all()
    torch.testing.assert_close(signs.abs().sum(1), torch.ones(6))
    for row, magnitude in zip(signs, gradient.abs(), strict=True):
        if (row == 0).any():
            assert magnitude[row != 0].min() >= magnitude[row == 0].max()
    assert ((signs == 0) | (signs.sign() == gradient.sign())).all()


def test_sparse_sign_of_ties_and_zeros():
    gradient = torch.zeros(3, 8)
    gradient[1] = 2.0
    gradient[2, 3] = -1.0
    signs = sparse_sign(gradient, torch.full((3,), 0.25))
    assert (signs[0] == 0).all()
    assert signs[1].tolist() == [1 / 8] * 8
    assert signs[2].tolist() == [0, 0, 0, -1, 0, 0, 0, 0]
