"""Every schedule at several steps against its formula: a constant in its place is found out."""

import math

import pytest
import torch
from solver_answers import answer_of
from support.runs import small

from advfrontier.pool import Run
from advfrontier.solvers import Alma, Ddn, FabMin, Fmn, Pdgd, Pdpgd, SigmaZero, solver_of

STEPS = pytest.mark.parametrize("i", [0, 100, 250, 400, 499])
N = 500  # steps of 2 queries


def annealed(first, last, i):
    return last + (first - last) * (1 + math.cos(math.pi * i / N)) / 2


def unit_in_the_middle(norm, run, **options):
    """A unit whose inputs are far from the ends of the box, with a copy of them as its point."""
    unit = small(norm).unit(run, **options)
    unit.problem.inputs.fill_(0.5)
    unit.state.point = unit.problem.inputs.clone()
    return unit


def full(unit, value):
    return torch.full((unit.rows,), value)


def shift(unit):
    return unit.state.point - unit.problem.inputs


@STEPS
def test_ddns_step(i):
    """At right angles to where the point is, so that the direction after rescaling tells the step."""
    unit = unit_in_the_middle("L2", "ddn")
    unit.state.point[:, 0] += 0.3
    unit.state.radius = full(unit, 0.3)
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.gradient.zero_()[:, 1] = -2.0
    answer.length.fill_(2.0)
    Ddn().step(unit.problem, unit.state, i, answer)
    moved = shift(unit)
    torch.testing.assert_close(0.3 * moved[:, 1] / moved[:, 0], full(unit, annealed(1.0, 0.01, i)))


@STEPS
@pytest.mark.parametrize(("norm", "alpha"), [("L0", 1.0), ("L1", 1.0), ("L2", 1.0), ("Linf", 10.0)])
def test_fmns_step(norm, alpha, i):
    unit = unit_in_the_middle(norm, "fmn")
    unit.state.radius = full(unit, 1e3)
    unit.problem.largest.fill_(1e3)
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.gradient.mul_(1e-2)  # so short that the box does not show
    answer.length.fill_(1e2 * alpha)
    gradient = answer.gradient.clone()
    Fmn(plain_step=True).step(unit.problem, unit.state, i, answer)
    torch.testing.assert_close(
        shift(unit),
        -gradient * annealed(alpha, alpha / 100, i) / (1e2 * alpha),
        rtol=1e-3,
        atol=1e-7,
    )


@STEPS
@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("run", ["fmn", "apgd_min-ce", "apgd_min-dlr"])
def test_radii_change_by_gamma(norm, run, i):
    """As in FMN; APGD_min takes its first radius from the first answer."""
    γ = annealed(0.05, 0.001, i)
    for wrong, factor in ((True, 1 - γ), (False, 1 + γ)):
        unit = small(norm).unit(run)
        unit.state.radius = full(unit, 0.2)
        unit.solver.step(
            unit.problem, unit.state, i, answer_of(unit, wrong=wrong, best=0.3, distance=0.3)
        )
        if i or run == "fmn":
            torch.testing.assert_close(unit.state.radius, full(unit, 0.2 * factor))


@pytest.mark.parametrize(("i", "fewer", "more"), [(0, 190, 211), (250, 195, 206), (499, 200, 202)])
def test_fmns_features_change_by_gamma(i, fewer, more):
    for wrong, after in ((True, fewer), (False, more)):
        unit = small("L0").unit("fmn")
        unit.problem.largest.fill_(1e3)
        unit.state.radius = full(unit, 201.0)
        Fmn().step(unit.problem, unit.state, i, answer_of(unit, wrong=wrong, best=300.0))
        assert (unit.state.radius == after).all()


def settled(unit, gradient):
    """Set Adam's moments as if it had seen this gradient for ever, and return what one more step divides by."""
    unit.state.first, unit.state.second = gradient.clone(), gradient * gradient


def adam_step(gradient, rate, i):
    """What Adam then does: its own correction of the moments' bias is out of place, and has to be allowed for."""
    return -rate * math.sqrt(1 - 0.999 ** (i + 1)) / (1 - 0.9 ** (i + 1)) * gradient.sign()


@STEPS
@pytest.mark.parametrize("solver", [Pdgd(primal_rate=1e-3), Pdpgd(primal_rate=1e-3)])
def test_the_primal_rate(solver, i):
    """With all weight on the margin, so that neither the norm nor its proximal step shows."""
    unit = unit_in_the_middle("L2", solver.facts.name)
    unit.state.margin_weight = full(unit, 1.0)
    answer = answer_of(unit, wrong=False, best=1.0)
    gradient = answer.gradient * solver._slope(unit.problem, answer.loss)[:, None]
    settled(unit, gradient)
    solver.step(unit.problem, unit.state, i, answer)
    torch.testing.assert_close(
        shift(unit), adam_step(gradient, 1e-3 * 0.01 ** (i / N), i), rtol=1e-3, atol=1e-7
    )


@STEPS
def test_the_weight_of_pdpgds_proximal_step(i):
    """One proximal step in ℓ1 is a soft threshold at λ₀/λ₁·rate over Adam's largest entry."""
    solver = Pdpgd(primal_rate=1e-3, proximal_steps=1)
    unit = unit_in_the_middle("L1", "pdpgd")
    unit.state.margin_weight = full(unit, 0.5)
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.gradient.sign_()
    gradient = answer.gradient * solver._slope(unit.problem, answer.loss)[:, None]
    settled(unit, gradient)
    unit.state.first.mul_(3)
    rate, bias = 1e-3 * 0.01 ** (i / N), math.sqrt(1 - 0.999 ** (i + 1))
    steps = adam_step(gradient, rate, i) * (0.9 * 3 + 0.1)
    threshold = rate * bias / gradient.abs().amax(1, keepdim=True)
    solver.step(unit.problem, unit.state, i, answer)
    expected = steps.sign() * (steps.abs() - threshold).clamp(min=0)
    torch.testing.assert_close(shift(unit), expected, rtol=1e-3, atol=1e-7)


@STEPS
@pytest.mark.parametrize(
    ("norm", "run", "rate"), [("L2", "pdgd", 0.1), ("L1", "pdpgd", 0.1), ("Linf", "pdpgd", 0.07)]
)
def test_the_dual_rate_and_the_running_mean_of_the_weight(norm, run, rate, i):
    unit = small(norm).unit(run)
    before, weight = unit.state.dual_logit.clone(), unit.state.margin_weight.clone()
    unit.solver.step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=math.inf))
    after = before + rate * (0.1 + 0.9 * (N - 1 - i) / (N - 1))
    torch.testing.assert_close(unit.state.dual_logit, after)
    torch.testing.assert_close(unit.state.margin_weight, 0.9 * weight + 0.1 * after.sigmoid())


@pytest.mark.parametrize(
    ("i", "first", "decay"),
    [(50, 501, 1), (100, 100, 1), (300, 100, 0.01**0.5), (499, 0, 0.01**0.998)],
)
def test_almas_rate_falls_from_the_first_success_on(i, first, decay):
    unit = unit_in_the_middle("L2", "alma")
    unit.state.first_success = full(unit, float(first))
    unit.state.rate = full(unit, 1e-3)
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.gradient.sign_()
    unit.state.square = torch.full_like(unit.state.square, 1e-6)
    Alma().step(unit.problem, unit.state, i, answer)
    torch.testing.assert_close(
        shift(unit).abs() / 1e-3, torch.full_like(shift(unit), decay) / 0.1**0.5, rtol=1e-3, atol=0
    )


@pytest.mark.parametrize("i", [1, 250])
def test_almas_multiplier_is_a_running_mean_of_the_penaltys_slope(i):
    unit = small("L2").unit("alma")
    unit.state.μ = full(unit, 0.7)
    Alma().step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=1.0, loss=0.5))
    slope = 0.7 + 2 * 0.7 * 0.5 + 0.5**2 / 2
    torch.testing.assert_close(unit.state.μ, full(unit, 0.9 * 0.7 + 0.1 * slope))


@pytest.mark.parametrize(
    ("i", "checks"), [(7, False), (8, False), (9, True), (10, False), (19, True), (499, True)]
)
def test_alma_checks_the_penalty_every_ten_steps(i, checks):
    unit = small("L2").unit("alma")
    unit.state.checked = full(unit, 0.4)
    Alma().step(unit.problem, unit.state, i, answer_of(unit, wrong=False, best=1.0, loss=0.5))
    assert unit.state.ρ.tolist() == pytest.approx([1.2 if checks else 1.0] * 5)
    assert unit.state.checked.tolist() == pytest.approx([0.5 if checks else 0.4] * 5)


@STEPS
def test_sigma_zeros_rate(i):
    solver = SigmaZero(eta=1e-3)
    unit = unit_in_the_middle("L0", "sigma_zero")
    unit.state.threshold.zero_()
    answer = answer_of(unit, wrong=False, best=1.0)
    gradient = answer.gradient / answer.gradient.abs().amax(1, keepdim=True)
    settled(unit, gradient)
    solver.step(unit.problem, unit.state, i, answer)
    moved = shift(unit)
    torch.testing.assert_close(
        moved, adam_step(gradient, annealed(1e-3, 1e-4, i), i), rtol=2e-2, atol=1e-7
    )


@STEPS
@pytest.mark.parametrize(("wrong", "direction"), [(True, 1), (False, -1)])
def test_sigma_zeros_threshold(wrong, direction, i):
    unit = small("L0").unit("sigma_zero")
    unit.solver.step(unit.problem, unit.state, i, answer_of(unit, wrong=wrong, best=1.0))
    torch.testing.assert_close(
        unit.state.threshold, full(unit, 0.3 + direction * 0.01 * annealed(1.0, 0.1, i + 1))
    )


@pytest.mark.parametrize(
    ("changed", "before", "step"), [(20, 48, 1.0), (46, 48, 0.6), (47, 48, 0.6), (20, 20, 0.6)]
)
def test_apgd_mins_sparsity_in_l1(changed, before, step):
    """At a checkpoint: the largest step where the best point lost a twentieth of its features, else a shorter one."""
    unit = unit_in_the_middle("L1", "apgd_min-dlr")
    unit.state.relative_step, unit.state.features = full(unit, 0.9), full(unit, float(before))
    best = unit.problem.inputs.clone()
    best[:, :changed] = 0.6
    answer = answer_of(unit, wrong=False, best=0.5)
    answer.best_point.copy_(unit.problem.inputs)
    answer = type(answer)(**vars(answer) | {"best_point": best})
    unit.solver.step(unit.problem, unit.state, 19, answer)
    sparser = changed < 0.95 * before
    torch.testing.assert_close(unit.state.relative_step, full(unit, 1.0 if sparser else step))
    torch.testing.assert_close(unit.state.sparsity, full(unit, changed / 72))
    assert (unit.state.features == changed).all()


def test_apgd_mins_step_in_l1_never_falls_below_a_tenth():
    unit = unit_in_the_middle("L1", "apgd_min-dlr")
    unit.state.relative_step, unit.state.features = full(unit, 0.12), full(unit, 1.0)
    unit.solver.step(unit.problem, unit.state, 19, answer_of(unit, wrong=False, best=math.inf))
    torch.testing.assert_close(unit.state.relative_step, full(unit, 0.1))


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_the_first_steps_of_apgd_min(norm):
    state = small(norm).unit("apgd_min-ce").state
    assert (state.relative_step == (1 if norm == "L1" else 2)).all()
    assert state.sparsity.tolist() == pytest.approx([0.2] * 5)


@pytest.mark.parametrize("waited", [0, 1, 7, 30])
def test_fabs_pull_towards_the_input_fades_while_nothing_succeeds(waited):
    """The input at right angles to the slope: the mean's component along it is the weight of the input's projection."""
    unit = unit_in_the_middle("L2", "fab_min")
    unit.state.point[:, 0] += 0.3
    unit.state.waited = full(unit, float(waited))
    answer = answer_of(unit, wrong=False, best=1.0, loss=0.2)
    answer.gradient.zero_()[:, 1] = 2.0
    answer.length.fill_(2.0)
    FabMin().step(unit.problem, unit.state, 5, answer)
    moved = shift(unit)
    α = 0.1 * 1.1 ** -(waited + 1)
    torch.testing.assert_close(moved[:, 0], full(unit, 0.3 * (1 - α)))
    torch.testing.assert_close(moved[:, 1], full(unit, -1.05 * 0.1))
    assert (unit.state.waited == waited + 1).all()


def test_fab_goes_back_from_a_success_and_starts_to_wait_anew():
    """β of the way, then onto the hyperplane, which is where the margin's slope says."""
    unit = unit_in_the_middle("L2", "fab_min")
    unit.state.point[:, 1] -= 0.3
    unit.state.waited = full(unit, 9.0)
    answer = answer_of(unit, wrong=True, best=0.3, loss=-0.2)
    answer.gradient.zero_()[:, 1] = 2.0
    answer.length.fill_(2.0)
    FabMin().step(unit.problem, unit.state, 5, answer)
    # The boundary is at −0.2. From −0.27 the way back is 0.07, from the input it is 0.2: the weights are 0.9 and 0.1.
    torch.testing.assert_close(
        shift(unit)[:, 1], full(unit, 0.9 * (-0.27 + 1.05 * 0.07) + 0.1 * (-1.05 * 0.2))
    )
    assert (unit.state.waited == 0).all()


def test_fab_weighs_the_two_projections_by_their_lengths():
    unit = unit_in_the_middle("L2", "fab_min")
    unit.state.point[:, 1] -= 0.19
    answer = answer_of(unit, wrong=False, best=1.0, loss=0.02)
    answer.gradient.zero_()[:, 1] = 2.0
    answer.length.fill_(2.0)
    FabMin(alpha=1.0).step(unit.problem, unit.state, 5, answer)
    α = 0.01 / 0.21
    torch.testing.assert_close(
        shift(unit)[:, 1], full(unit, (1 - α) * (-0.19 - 1.05 * 0.01) - α * 1.05 * 0.2)
    )


def test_restarts_of_fab_begin_half_way_to_the_random_point():
    unit = small("L2").unit("fab_min:restart1")
    torch.testing.assert_close(unit.state.point, (unit.problem.inputs + unit.problem.starts) / 2)


def test_fab_stays_where_the_model_fails_no_longer_than_a_step():
    unit = unit_in_the_middle("L2", "fab_min")
    unit.state.point += 0.1
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.logits.fill_(math.nan)
    solver_of(Run("fab_min")).step(unit.problem, unit.state, 5, answer)
    torch.testing.assert_close(shift(unit), torch.full_like(shift(unit), 0.09))
