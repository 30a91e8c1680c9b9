"""Rules of single solvers, checked step by step against their formulas."""

import math

import pytest
import torch
from solver_answers import answer_of
from support.models import Answering, linear, samples
from support.runs import Bench, catalogue, runs_of, small

from advfrontier.pool import CATALOGUE, Run
from advfrontier.solvers import Alma, Ddn, Fmn, SigmaZero, solver_of
from advfrontier.solvers.alma import _slope
from advfrontier.solvers.apgd_min import _window
from advfrontier.solvers.ddn import DdnState
from advfrontier.solvers.protocol import adam, cosine
from advfrontier.threat.names import NORMS


def test_every_solver_of_the_catalogue_can_be_run_and_declares_the_same_facts():
    for norm in NORMS:
        for run in runs_of(norm, "restart1", "target1"):
            assert solver_of(run).facts is CATALOGUE[run.solver]
            assert (solver_of(run).loss(3) is None) == (CATALOGUE[run.solver].step_queries == 1)


def test_the_losses_that_solvers_descend():
    asked = {
        str(run): {solver_of(run).loss(i) for i in (1, 250)}
        for norm in NORMS
        for run in runs_of(norm)
    }
    assert asked == {
        "sigma_zero": {"margin"}, "pdpgd": {"margin"}, "pdgd": {"margin"}, "fmn": {"margin"}, "alma": {"dlr_plus"},
        "ddn": {"ce"}, "apgd_min-ce": {"ce"}, "apgd_min-dlr": {"dlr"}, "fab_min": {"difference"}, "square_min": {None},
        "sparse_min": {None},
    }  # fmt: skip
    assert solver_of(Run("apgd_min", "ce")).loss(0) == "margin"


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_base_runs_start_at_the_input_and_restarts_elsewhere(norm, run):
    bench = small(norm)
    base = bench.unit(run)
    if (
        CATALOGUE[run.split("-")[0]].step_queries == 2
    ):  # a black-box search starts from a random perturbation
        assert torch.equal(base.state.point, base.problem.inputs)
    if CATALOGUE[base.run.solver].restarts:
        again = bench.unit(f"{run}:restart1")
        assert (again.state.point != base.state.point).any(1).all()
        reach = again.problem.norm.distance(again.problem.starts, again.problem.inputs)
        assert (
            reach <= again.problem.boundary.ceil()
            if norm == "L0"
            else reach <= again.problem.boundary * 1.0001
        ).all()


def test_cosine_schedule():
    assert cosine(1.0, 0.01, 0, 500) == 1
    assert cosine(1.0, 0.01, 500, 500) == pytest.approx(0.01)
    assert cosine(1.0, 0.01, 250, 500) == pytest.approx(0.505)
    assert cosine(0.05, 0.001, 100, 500) == pytest.approx(
        0.001 + 0.049 * (1 + math.cos(math.pi / 5)) / 2
    )


def test_adam_is_torchs():
    rng = torch.Generator().manual_seed(0)
    point = torch.rand(3, 5, generator=rng, dtype=torch.float64)
    theirs = point.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    first, second = torch.zeros_like(point), torch.zeros_like(point)
    for i in range(20):
        g = torch.randn(3, 5, generator=rng, dtype=torch.float64)
        theirs.grad = g.clone()
        optimiser.step()
        scale, factor = adam(first, second, g, i)
        point = point - 0.1 * factor * first / scale
        torch.testing.assert_close(point, theirs.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("norm", "ends"), [
    ("L2", [110, 205, 285, 350, 400, 435, 465, 495]), ("Linf", [110, 205, 285, 350, 400, 435, 465, 495]),
    ("L1", list(range(20, 501, 20))),
])  # fmt: skip
def test_apgd_min_checks_at_apgds_checkpoints(norm, ends):
    problem = small(norm).unit("apgd_min-dlr").problem
    windows = {i + 1: _window(i, problem) for i in range(500) if _window(i, problem)}
    assert list(windows) == ends
    assert list(windows.values()) == [
        end - start for start, end in zip([0, *ends], ends, strict=False)
    ]


def test_fmns_radius():
    """SOLVERS.md §3 at step 0, where γ = 0.05, with a radius of 0.4."""

    def radius(solver, **answered):
        unit = small("L2").unit("fmn", solver=solver)
        unit.state.radius = torch.full_like(unit.state.radius, 0.4)
        answer = answer_of(unit, **answered)
        estimate = 0.1 + 0.5 / answer.gradient.norm(dim=1)
        solver.step(unit.problem, unit.state, 0, answer)
        return unit.state.radius, estimate

    torch.testing.assert_close(radius(Fmn(), wrong=True, best=0.9)[0], torch.full((5,), 0.38))
    torch.testing.assert_close(radius(Fmn(), wrong=True, best=0.3)[0], torch.full((5,), 0.3))
    torch.testing.assert_close(radius(Fmn(), wrong=False, best=0.3)[0], torch.full((5,), 0.42))
    got, estimate = radius(Fmn(), wrong=False, best=math.inf, distance=0.1)
    torch.testing.assert_close(got, estimate.clamp(min=0.42))  # never stalls inside the boundary
    got, estimate = radius(Fmn(strict=True), wrong=False, best=math.inf, distance=0.1)
    torch.testing.assert_close(got, estimate)


@pytest.mark.parametrize(("plain", "fills"), [(False, True), (True, False)])
def test_fmns_step_is_what_the_box_leaves_of_it_at_full_length(plain, fills):
    """A large radius, so that nothing is projected: the way gone is the step itself."""
    unit = small("L2").unit("fmn", solver=Fmn(plain_step=plain))
    unit.state.radius = torch.full_like(unit.state.radius, 1e3)
    unit.state.point = unit.state.point.round()  # every feature at an end of the box
    before = unit.state.point.clone()
    answer = answer_of(unit, wrong=False, best=1.0)
    inside = before - (before - answer.gradient / answer.length[:, None]).clamp(0, 1)
    Fmn(plain_step=plain, alpha=0.1).step(unit.problem, unit.state, 0, answer)
    expected = 0.1 * (inside / inside.norm(dim=1, keepdim=True) if fills else inside)
    torch.testing.assert_close(before - unit.state.point, expected)
    assert inside.norm(dim=1).max() < 0.95  # the box takes some of every step


def checkpoint_of_apgd(*, falls, found=True):
    """The state after APGD_min's first checkpoint in ℓ2, and the answer it took in; a window is 110 steps."""
    unit = small("L2").unit("apgd_min-dlr")
    state = unit.state
    state.point = state.point + 0.01
    state.previous = state.previous - 0.02
    state.falls = torch.full_like(state.falls, falls - 1)  # this step's loss falls as well
    state.last_loss = torch.full_like(state.last_loss, 9.0)
    state.lowest_loss = torch.full_like(state.lowest_loss, -9.0)
    state.lowest_point = state.point + 0.03
    state.reduced = torch.zeros_like(state.reduced)
    state.checked_distance = torch.full_like(state.checked_distance, 0.7)
    before = state.point.clone()
    answer = answer_of(unit, wrong=False, best=0.5 if found else math.inf)
    unit.solver.step(unit.problem, state, 109, answer)
    return unit, before, answer


def test_apgd_min_halves_its_step_and_goes_back_where_the_loss_rarely_fell():
    unit, _, answer = checkpoint_of_apgd(falls=82)  # 110 · 0.75 = 82.5
    assert (unit.state.relative_step == 1).all()
    assert unit.state.reduced.all()
    assert (unit.state.falls == 0).all()
    assert torch.equal(unit.state.previous, answer.best_point)  # from where it moves on
    unit, _, _ = checkpoint_of_apgd(falls=82, found=False)
    assert torch.equal(unit.state.previous, unit.state.lowest_point)  # before any success


def test_apgd_min_keeps_its_step_and_momentum_while_the_loss_falls_and_distances_too():
    unit, before, answer = checkpoint_of_apgd(falls=83)
    assert (unit.state.relative_step == 2).all()
    assert not unit.state.reduced.any()
    assert torch.equal(unit.state.previous, before)
    problem, ε = unit.problem, unit.state.radius

    def project(point):
        return (problem.inputs + problem.norm.project(point - problem.inputs, ε)).clamp(0, 1)

    gradient = torch.randn(answer.gradient.shape, generator=torch.Generator().manual_seed(0))
    ahead = project(before - 2 * ε[:, None] * gradient / gradient.norm(dim=1, keepdim=True))
    drift = before - (problem.starts - 0.02)
    torch.testing.assert_close(
        unit.state.point, project(before + 0.75 * (ahead - before) + 0.25 * drift)
    )


@pytest.mark.parametrize(("now", "before", "grows"), [(0.9, 1.0, False), (0.96, 1.0, True)])
def test_almas_penalty_grows_where_the_loss_did_not_fall_by_a_twentieth(now, before, grows):
    unit = small("L2").unit("alma")
    unit.state.checked = torch.full_like(unit.state.checked, before)
    unit.solver.step(
        unit.problem, unit.state, 9, answer_of(unit, wrong=False, best=math.inf, loss=now)
    )
    assert unit.state.ρ.tolist() == pytest.approx([1.2 if grows else 1.0] * 5)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_almas_first_step_leaves_room_where_the_box_does_not_allow_the_wanted_distance(norm):
    """One feature counts, and can go 0.06 down."""
    x = torch.full((2, 8), 0.06)
    model = Answering(lambda images: torch.stack([images[:, 0] - 0.04, 0.04 - images[:, 0]], 1))
    unit = Bench.of(model, x, torch.zeros(2, dtype=torch.long), norm).finished("alma", 400)
    torch.testing.assert_close(
        unit.distances(), torch.full((2,), 0.02, dtype=torch.float64), rtol=0.02, atol=0
    )


@pytest.mark.parametrize("keep", [False, True])
def test_alma_drops_momentum_that_pushes_against_the_box(keep):
    unit = small("L2").unit("alma")
    unit.state.point = torch.zeros_like(unit.state.point)
    unit.state.momentum = torch.ones_like(unit.state.momentum)  # the step is down
    Alma(keep_momentum=keep).step(
        unit.problem, unit.state, 1, answer_of(unit, wrong=False, best=1.0)
    )
    assert (unit.state.point == 0).any()
    pushing = unit.state.momentum[unit.state.point == 0] > 0
    assert pushing.all() if keep else not pushing.any()


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
def test_fmns_radius_in_l0(wrong, before, best, after):
    unit = small("L0").unit("fmn")
    unit.state.radius = torch.full_like(unit.state.radius, before)
    Fmn().step(unit.problem, unit.state, 0, answer_of(unit, wrong=wrong, best=float(best)))
    assert (unit.state.radius == after).all()
    assert ((unit.state.point != unit.problem.inputs).sum(1) <= after).all()


@pytest.mark.parametrize(("wrong", "factor"), [(True, 0.95), (False, 1.05)])
def test_ddn_moves_on_spheres(wrong, factor):
    unit = small("L2").unit("ddn")
    unit.problem.inputs.fill_(0.5)  # far from the ends of the box
    answer = answer_of(unit, wrong=wrong, best=math.inf)
    downhill = -answer.gradient / answer.length[:, None]
    state = DdnState(unit.problem.inputs.clone(), torch.full((5,), 0.3))
    Ddn().step(unit.problem, state, 0, answer)
    torch.testing.assert_close(state.radius, torch.full((5,), 0.3 * factor))
    torch.testing.assert_close(state.point - 0.5, 0.3 * factor * downhill)


def test_ddn_can_round_to_images_of_eight_bits():
    unit = small("L2").finished("ddn", 60, solver=Ddn(levels=256))
    steps = unit.state.point * 255
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("norm", "distance"), [("L1", 0.5), ("L2", 0.1)])
def test_almas_first_plain_step_goes_the_wanted_distance(norm, distance):
    unit = small(norm).unit("alma")
    answer = answer_of(unit, wrong=False, best=math.inf)
    g = answer.gradient.clone() * _slope(answer.loss, unit.state.ρ, unit.state.μ)[:, None]
    Alma().step(unit.problem, unit.state, 0, answer)
    moved = (unit.problem.inputs - unit.state.rate[:, None] * g).clamp(0, 1) - unit.problem.inputs
    torch.testing.assert_close(
        unit.problem.norm.size(moved), torch.full((5,), distance), rtol=1e-3, atol=0
    )


def test_almas_penalty_and_its_slope():
    s = torch.linspace(-2, 2, 41, dtype=torch.float64, requires_grad=True)
    μ, ρ = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.7, dtype=torch.float64)
    penalty = torch.where(s >= 0, μ * s + μ * ρ * s**2 + ρ**2 * s**3 / 6, μ * s / (1 - ρ * s))
    (slope,) = torch.autograd.grad(penalty.sum(), s)
    torch.testing.assert_close(_slope(s.detach(), ρ, μ), slope)


def test_sigma_zero_keeps_no_change_below_its_threshold():
    bench = small("L0")
    unit = bench.unit("sigma_zero")
    for stop in (10, 100, 400):
        bench.go(unit, stop)
        change = (unit.state.point - unit.problem.inputs).abs()
        smallest = torch.where(change > 0, change, 2).amin(1)
        assert (smallest >= unit.state.threshold - 1e-6).all()
    assert (unit.state.threshold != SigmaZero().tau).all()


def test_the_pdgd_weight_follows_the_margin():
    """More weight on the margin while the sample is classified correctly, less when it is not."""
    for loss, direction in ((0.5, 1), (-0.5, -1)):
        unit = small("L2").unit("pdgd")
        before, weight = unit.state.dual_logit.clone(), unit.state.margin_weight.clone()
        solver_of(Run("pdgd")).step(
            unit.problem, unit.state, 0, answer_of(unit, wrong=loss < 0, best=math.inf, loss=loss)
        )
        torch.testing.assert_close(
            unit.state.dual_logit - before, torch.full((5,), 0.1 * direction), rtol=1e-4, atol=0
        )
        assert ((unit.state.margin_weight - weight).sign() == direction).all()
    assert weight.tolist() == pytest.approx([1 / 1.01] * 5)


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_hyper_parameters_change_a_run(alpha):
    model = linear(16, 3)
    bench = Bench.of(model, *samples(model, 4, (16,)), "Linf")
    usual, other = (
        bench.finished("fmn", 60, solver=solver).distances()
        for solver in (Fmn(alpha=10.0), Fmn(alpha=alpha))
    )
    assert torch.equal(usual, other) == (alpha == 10)
