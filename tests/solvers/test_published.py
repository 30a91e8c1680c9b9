"""The published solvers are the papers', and each departure can be undone alone."""

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from searches import answer_of, full, search_of, shift, small, step

from advfrontier.errors import FrontierError
from advfrontier.pool import Run, pool
from advfrontier.solvers import (
    ALMA,
    DDN,
    DEPARTURES,
    FMN,
    PDGD,
    PDPGD,
    PUBLISHED,
    APGDMin,
    SigmaZero,
    check_published,
    published,
    solver_of,
)
from advfrontier.threat.losses import LOSSES
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import prox_two_thirds


def parameters(solver):
    """Return the hyper-parameters of a solver by name."""
    return {field.name: getattr(solver, field.name) for field in fields(solver)}


def overridden(solver):
    """Return the names of the methods that a variant of a solver overrides."""
    names = set()
    for kind in type(solver).__mro__:
        if kind.__module__ == published.__name__:
            names |= {name for name in vars(kind) if not name.startswith("__")}
    return names


def test_every_attack_of_the_papers_pool_has_a_published_solver():
    assert set(PUBLISHED) == {run.attack for norm in NORMS for run in pool(norm)}


@pytest.mark.parametrize("attack", PUBLISHED)
def test_published_solver_undoes_all_departures_of_its_attack(attack):
    own, whole = solver_of(Run.parse(attack)), PUBLISHED[attack]
    assert isinstance(whole, type(own))
    undone, methods = {}, set()
    for departure in DEPARTURES:
        if departure.attack == attack:
            alone = departure.solver
            assert isinstance(alone, type(own))
            changed = {
                name: value
                for name, value in parameters(alone).items()
                if value != parameters(own)[name]
            }
            assert len(changed) + len(overridden(alone)) == 1
            undone |= changed
            methods |= overridden(alone)
    assert parameters(whole) == parameters(own) | undone
    assert overridden(whole) == methods
    assert undone or methods


def test_published_parameters_are_those_of_the_papers():
    expected = {
        "alma": {"rate": 0.1, "rate_decrease": 0.01, "tau": 0.95, "gamma": 1.2, "alpha": 0.9},
        "apgd_min-ce": {"loss_name": "plain_ce"},
        "apgd_min-dlr": {"loss_name": "plain_dlr"},
        "ddn": {"gamma": 0.05, "radius": 1.0},
        "fmn": {"alpha": 1.0, "gamma": 0.05, "gamma_final": 0.001},
        "pdgd": {"primal_rate": 0.1, "primal_decrease": 0.01, "least_margin": 0.0},
        "pdpgd": {"primal_rate": 0.1, "least_margin": 0.0, "dual_rate": 0.1, "proximal_steps": 5},
        "sigma_zero": {"eta": 1.0, "sigma": 1e-3, "tau": 0.3, "t": 0.01},
    }
    for attack, values in expected.items():
        known = parameters(PUBLISHED[attack])
        assert {name: known[name] for name in values} == values


def test_switches_say_what_to_type():
    names = {name: getattr(published, name) for name in dir(published)}
    for departure in DEPARTURES:
        assert eval(departure.switch, names) == departure.solver  # noqa: S307
    switches = [departure.switch for departure in DEPARTURES]
    assert "FMN(alpha=1.0)" in switches
    assert "KeptMomentum()" in switches


def test_searches_that_no_paper_has_are_refused_among_published_ones():
    check_published(["fmn", "apgd_min-dlr:target2"])
    with pytest.raises(FrontierError, match=r"fab_min, square_min: no paper.*--ensemble paper-4k"):
        check_published(["fmn", "fab_min:restart1", "square_min", "fab_min"])


# What each departure does


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_published_ratios(classes, targeted):
    rng = torch.Generator().manual_seed(classes)
    z = torch.randn(20, classes, dtype=torch.float64, generator=rng)
    y = torch.arange(20) % classes
    t = (y + 1) % classes if targeted else None
    ratio = LOSSES["plain_dlr"](z, y, t, torch.full((20,), 7.0))
    plus = LOSSES["plain_dlr_plus"](z, y, t, torch.full((20,), 7.0))
    for k, row in enumerate(z.numpy()):
        ranked = np.sort(row)[::-1]
        enough = classes >= (4 if targeted else 3)
        spread = 1.0 if not enough else ranked[0] - (ranked[2:4].mean() if targeted else ranked[2])
        aim = int(t[k]) if targeted else int(y[k])
        gap = row[aim] - np.delete(row, aim).max()
        difference = row[y[k]] - row[aim] if targeted else gap
        ahead = -gap if targeted else gap
        assert float(ratio[k]) == pytest.approx(difference / (spread + 1e-12 * enough))
        assert float(plus[k]) == pytest.approx((ahead + 1e-4) / (spread + 1e-8 * enough))


def test_published_solvers_ask_for_the_published_losses():
    assert {attack: solver.loss(3) for attack, solver in PUBLISHED.items()} == {
        "alma": "plain_dlr_plus",
        "apgd_min-ce": "plain_ce",
        "apgd_min-dlr": "plain_dlr",
        "ddn": "plain_ce",
        "fmn": "margin",
        "pdgd": "margin",
        "pdpgd": "margin",
        "sigma_zero": "margin",
    }


@pytest.mark.parametrize("solver", [ALMA(), PUBLISHED["alma"]])
def test_alma_keeps_momentum_against_the_box_as_published(solver):
    search = search_of("L1", "alma", solver=solver)
    search.state.point = torch.zeros_like(search.state.point)
    search.state.momentum = torch.ones_like(search.state.momentum)  # the step is down
    step(search, 1, answer_of(search, wrong=False, best=1.0))
    pushing = search.state.momentum[search.state.point == 0] > 0
    assert pushing.all() if solver is PUBLISHED["alma"] else not pushing.any()


@pytest.mark.parametrize("solver", [DDN(), PUBLISHED["ddn"]])
def test_ddn_rounds_to_eight_bits_as_published(solver):
    search = search_of("L2", "ddn", solver=solver)
    step(search, 0, answer_of(search, wrong=False, best=math.inf))
    levels = search.state.point * 255
    off = (levels - levels.round()).abs().max()
    assert off < 1e-4 if solver is PUBLISHED["ddn"] else off > 0.1


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_fmn_takes_the_published_step(norm):
    """α = 1 along the unit gradient, then projected and clipped: what the box takes is lost."""
    search = search_of(norm, "fmn", solver=PUBLISHED["fmn"])
    x, largest = search.problem.inputs, search.problem.largest
    search.state.radius = largest.clone()
    answer = answer_of(search, wrong=False, best=1.0)
    gradient = answer.gradient.clone()
    step(search, 0, answer)
    moved = search.problem.norm.project(-gradient / gradient.norm(dim=1)[:, None], largest)
    torch.testing.assert_close(search.state.point, (x + moved).clamp(0, 1))


@pytest.mark.parametrize("solver", [FMN(), PUBLISHED["fmn"]])
def test_fmn_radius_before_the_first_success_is_the_estimate_as_published(solver):
    search = search_of("L2", "fmn", solver=solver)
    search.state.radius = full(search, 0.5)
    answer = answer_of(search, wrong=False, best=math.inf, loss=1e-3, distance=0.1)
    estimate = 0.1 + 1e-3 / answer.gradient.norm(dim=1)
    step(search, 0, answer)
    grown = estimate.clamp(min=0.5 * 1.05)
    expected = estimate if solver is PUBLISHED["fmn"] else grown
    torch.testing.assert_close(search.state.radius, expected)


@pytest.mark.parametrize("attack", ["pdgd", "pdpgd"])
def test_primal_dual_slope_is_the_softplus_of_the_margin(attack):
    search = search_of("L2", attack)
    margin = torch.linspace(-3, 3, len(search.problem.margin))
    torch.testing.assert_close(PUBLISHED[attack]._slope(search.problem, margin), margin.sigmoid())


@pytest.mark.parametrize("norm", NORMS)
def test_published_dual_rate_is_the_same_in_every_norm(norm):
    search = search_of(norm, "pdpgd", solver=PUBLISHED["pdpgd"])
    before = search.state.dual_logit.clone()
    step(search, 0, answer_of(search, wrong=False, best=math.inf, loss=1.0))
    torch.testing.assert_close(search.state.dual_logit, before + 0.1)


def test_published_proximal_step_keeps_every_local_minimum():
    """It is stationary where it is not 0, and 0 just below 4·(2μ/9)^{3/4}."""
    μ = 0.05
    v = torch.linspace(-1, 1, 4001, dtype=torch.float64)[None]
    weight = torch.tensor([μ], dtype=torch.float64)
    u, best = published.prox_local(v, weight), prox_two_thirds(v, weight)
    kept = u != 0
    torch.testing.assert_close((u + 2 / 3 * μ * u.sign() * u.abs() ** (-1 / 3))[kept], v[kept])
    assert torch.equal(kept, v.abs() >= 4 * (2 * μ / 9) ** 0.75)
    torch.testing.assert_close(u[best != 0], best[best != 0])
    assert (kept & (best == 0)).any()
    torch.testing.assert_close(published.prox_local(v, torch.zeros(1, dtype=torch.float64)), v)


def test_local_minima_are_kept_in_l0_alone():
    anchor, weight, metric = torch.full((2, 48), 0.14), torch.full((2,), 0.05), torch.ones(2, 48)
    l0, l1 = small("L0").search("pdpgd").problem, small("L1").search("pdpgd").problem
    for solver in (PUBLISHED["pdpgd"], published.LocalMinimum()):
        assert (solver._proximal(l0, anchor, weight, metric) > 0).all()
        torch.testing.assert_close(solver._proximal(l1, anchor, weight, metric), anchor - 0.05)
    assert (PDPGD()._proximal(l0, anchor, weight, metric) == 0).all()
    assert (published.Settling()._proximal(l0, anchor, weight, metric) == 0).all()


def settled(prox, anchor, weight, metric, *, steps):
    """Return the published inner iteration of one sample, in plain Python."""
    z = prox(anchor, weight)
    change = (z - anchor).norm() / z.norm()
    for _ in range(steps - 1):
        if not change > 1e-2:
            break
        ahead = prox(z - metric * (z - anchor), weight)
        change = (ahead - z).norm() / ahead.norm()
        z = ahead
    return z


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_published_inner_iteration_ends_for_each_sample_when_it_settles(norm):
    rng = torch.Generator().manual_seed(0)
    problem = small(norm).search("pdpgd").problem
    anchor = torch.randn(40, 48, generator=rng, dtype=torch.float64)
    weight = 10 ** torch.linspace(-4, 0.5, 40, dtype=torch.float64)
    metric = torch.rand(40, 48, generator=rng, dtype=torch.float64)
    found = PUBLISHED["pdpgd"]._proximal(problem, anchor, weight, metric)
    rows = []
    for k in range(40):
        row = slice(k, k + 1)
        rows.append(settled(problem.norm.prox, anchor[row], weight[row], metric[row], steps=5))
    torch.testing.assert_close(found, torch.cat(rows))


def test_sigma_zero_has_the_published_width():
    """Beyond the boundary only the surrogate's gradient acts, scaled to a largest entry of 1."""
    search = search_of("L0", "sigma_zero", solver=PUBLISHED["sigma_zero"])
    rows, features = search.problem.inputs.shape
    δ = torch.linspace(0.01, 0.3, features).repeat(rows, 1)
    search.state.point = search.problem.inputs + δ
    step(search, 0, answer_of(search, wrong=True, best=9.0, loss=-1.0))
    pull = δ / (δ**2 + 1e-3) ** 2
    expected = 0.1 * pull / pull.amax(1, keepdim=True)
    torch.testing.assert_close(search.state.first, expected, rtol=1e-3, atol=1e-5)
    assert (shift(search) < δ).any()


def test_published_solvers_of_other_attacks_have_other_types_or_parameters():
    own = {ALMA(), APGDMin(loss_name="ce"), APGDMin(), DDN(), FMN(), PDGD(), PDPGD(), SigmaZero()}
    assert not own & set(PUBLISHED.values())
