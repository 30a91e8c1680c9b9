"""FMN's radius and step against their formulas, and FMN in a norm of one's own."""

import math
from dataclasses import replace

import pytest
import torch
from colour_norm import Colours
from searches import Bench, annealed, answer_of, full, search_of, shift, small, step
from support.device import count_device_work
from support.models import samples, tanh_mlp

from advfrontier import attack
from advfrontier.solvers import FMN
from advfrontier.threat.names import NORMS, NormFacts, register_norm

STEPS = pytest.mark.parametrize("i", [0, 100, 250, 400, 499])


def moved_radius(radius, i=0, norm="L2", **answered):
    """Return the radius after a step, and the first-order estimate of the distance."""
    search = search_of(norm, "fmn")
    search.state.radius = full(search, radius)
    answer = answer_of(search, **answered)
    slope = search.problem.norm.dual_size(answer.gradient)
    step(search, i, answer)
    return search.state.radius, answered.get("distance", 0.0) + 0.5 / slope


def test_radius_shrinks_after_a_success_and_grows_after_a_failure():
    expected = [(True, 0.9, 0.38), (True, 0.3, 0.3), (False, 0.3, 0.42)]
    for wrong, best, radius in expected:
        got, _ = moved_radius(0.4, wrong=wrong, best=best)
        torch.testing.assert_close(got, torch.full((5,), radius))


def test_radius_before_the_first_success_never_stalls():
    got, estimate = moved_radius(0.4, wrong=False, best=math.inf, distance=0.1)
    torch.testing.assert_close(got, estimate.clamp(min=0.42))
    got, estimate = moved_radius(math.inf, wrong=False, best=math.inf, distance=0.1)
    half = small("L2").search("fmn").problem.boundary / 2
    torch.testing.assert_close(got, torch.maximum(estimate, half))


@STEPS
@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_radius_changes_by_gamma(norm, i):
    γ = annealed(0.05, 0.001, i)
    for wrong, factor in ((True, 1 - γ), (False, 1 + γ)):
        got, _ = moved_radius(0.2, i, norm, wrong=wrong, best=0.3, distance=0.3)
        torch.testing.assert_close(got, torch.full((5,), 0.2 * factor))


@pytest.mark.parametrize(
    ("wrong", "before", "best", "after"),
    [
        (True, 40, 39, 38),
        (True, 10, 30, 9),
        (True, 10, 4, 4),
        (False, 10, 4, 11),
        (False, 40, 4, 42),
        (True, 1, 1, 1),
    ],
)
def test_radius_is_a_whole_number_in_l0(wrong, before, best, after):
    search = search_of("L0", "fmn")
    search.state.radius = full(search, float(before))
    step(search, 0, answer_of(search, wrong=wrong, best=float(best)))
    assert (search.state.radius == after).all()
    assert (shift(search).sign().abs().sum(1) <= after).all()


@pytest.mark.parametrize(("i", "fewer", "more"), [(0, 190, 211), (250, 195, 206), (499, 200, 202)])
def test_radius_in_l0_changes_by_gamma(i, fewer, more):
    for wrong, after in ((True, fewer), (False, more)):
        search = search_of("L0", "fmn")
        search.problem.largest.fill_(1e3)
        search.state.radius = full(search, 201.0)
        step(search, i, answer_of(search, wrong=wrong, best=300.0))
        assert (search.state.radius == after).all()


@STEPS
@pytest.mark.parametrize(("norm", "alpha"), [("L0", 1.0), ("L1", 1.0), ("L2", 1.0), ("Linf", 10.0)])
def test_step_has_the_scheduled_length(norm, alpha, i):
    """Inputs far from the ends of the box, a step so short that the box does not show."""
    search = search_of(norm, "fmn", solver=FMN(alpha=1e-2 * alpha))
    search.problem.inputs.fill_(0.5)
    search.problem.largest.fill_(1e3)
    search.state.point = search.problem.inputs.clone()
    search.state.radius = full(search, 1e3)
    answer = answer_of(search, wrong=False, best=1.0)
    direction = answer.gradient / answer.length[:, None]
    step(search, i, answer)
    expected = -direction * annealed(1e-2 * alpha, 1e-4 * alpha, i)
    torch.testing.assert_close(shift(search), expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("norm", "alpha"), [("L1", 1.0), ("L2", 1.0), ("Linf", 10.0)])
def test_default_step_length(norm, alpha):
    one = Bench.distances(small(norm), "fmn", 60)
    two = Bench.distances(small(norm), "fmn", 60, solver=FMN(alpha=alpha))
    other = Bench.distances(small(norm), "fmn", 60, solver=FMN(alpha=3 * alpha))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_step_is_what_the_box_leaves_of_it_at_full_length():
    """Every feature at an end of the box; a large radius, so that nothing is projected."""
    search = search_of("L2", "fmn", solver=FMN(alpha=0.1))
    search.state.radius = full(search, 1e3)
    search.problem.largest.fill_(1e3)
    search.state.point = search.state.point.round()
    before = search.state.point.clone()
    answer = answer_of(search, wrong=False, best=1.0)
    inside = before - (before - 0.1 * answer.gradient / answer.length[:, None]).clamp(0, 1)
    step(search, 0, answer)
    expected = 0.1 * inside / inside.norm(dim=1, keepdim=True)
    torch.testing.assert_close(before - search.state.point, expected)
    assert inside.norm(dim=1).max() < 0.095  # the box takes some of every step


def test_step_in_l0_is_stretched_only_where_all_features_may_change_in_vain():
    for best, radius, stretched in (
        (math.inf, 1e3, True),
        (math.inf, 3.0, False),
        (9.0, 1e3, False),
    ):
        search = search_of("L0", "fmn")
        search.state.radius = full(search, radius)
        search.state.point = search.state.point.round()
        answer = answer_of(search, wrong=False, best=best)
        plain = answer.gradient / answer.length[:, None]
        inside = search.state.point - (search.state.point - plain).clamp(0, 1)
        solver, state = search.solver, search.state
        state.radius = torch.minimum(state.radius, search.problem.largest)
        got = solver._fit(search.problem, state, answer, plain.clone(), 1.0)
        expected = inside / inside.norm(dim=1, keepdim=True) if stretched else plain
        torch.testing.assert_close(got, expected)


def test_refinement_is_finer_in_the_end():
    search = search_of("Linf", "fmn")
    search.problem = replace(search.problem, refines=True)
    for wrong, factor in ((True, 1 - 0.02), (False, 1 + 0.02)):
        search.state.radius = full(search, 0.2)
        step(search, 0, answer_of(search, wrong=wrong, best=0.3, distance=0.3))
        torch.testing.assert_close(search.state.radius, full(search, 0.2 * factor))


@pytest.mark.parametrize("norm", NORMS)
def test_step_waits_for_nothing(norm):
    search = search_of(norm, "fmn")
    answer = answer_of(search, wrong=False, best=1.0)
    with count_device_work() as work:
        step(search, 3, answer)
    assert work.waits == 0, work.where
    assert work.operations <= (240 if norm == "L0" else 150 if norm == "L1" else 60), work.names


def test_runs_in_a_norm_of_ones_own():
    """One file, and one line: the sum of the pixels' lengths."""
    register_norm(NormFacts("Colours", "ℓ2,1", Colours))
    model = tanh_mlp((3, 4, 4), hidden=16, seed=3)
    images, labels = samples(model, 6, (3, 4, 4), seed=3)
    points, distances = attack(model, images, labels, solver=FMN(), norm="Colours", queries=400)
    lengths = (points - images).double().norm(dim=1).flatten(1).sum(1)
    torch.testing.assert_close(lengths, distances)
    assert (distances <= 2.2).all()
    assert (model(points).argmax(1) != labels).all()
