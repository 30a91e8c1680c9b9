"""The published solvers: they are the papers', and each departure from them has a switch with the published effect."""

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from solver_answers import answer_of
from support.runs import small

from advfrontier.errors import FrontierError
from advfrontier.pool import Run, pool
from advfrontier.solvers import (
    DEPARTURES,
    PUBLISHED,
    Alma,
    ApgdMin,
    Ddn,
    Fmn,
    Pdgd,
    Pdpgd,
    SigmaZero,
    solver_of,
)
from advfrontier.solvers.alma import BY_NORM
from advfrontier.solvers.pdpgd import prox_local
from advfrontier.solvers.published import check_published
from advfrontier.threat.losses import LOSSES
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import prox_two_thirds


def departed(attack):
    """Parameter → its published value, of all that the departures of an attack name."""
    return {each.parameter: each.value for each in DEPARTURES if each.attack == attack}


def test_every_attack_of_the_papers_pool_has_a_published_solver():
    assert set(PUBLISHED) == {run.attack for norm in NORMS for run in pool(norm)}


@pytest.mark.parametrize("attack", PUBLISHED)
def test_published_solvers_differ_from_the_own_ones_by_their_departures_alone(attack):
    own, published = solver_of(Run.parse(attack)), PUBLISHED[attack]
    assert type(own) is type(published)
    pairs = {
        each.name: (getattr(own, each.name), getattr(published, each.name)) for each in fields(own)
    }
    assert {name: new for name, (old, new) in pairs.items() if old != new} == departed(attack) != {}
    for each in (each for each in DEPARTURES if each.attack == attack):
        alone = each.taken_back()
        assert [name for name in pairs if getattr(alone, name) != getattr(own, name)] == [
            each.parameter
        ]
        assert each.switch == f"{type(own).__name__}({each.parameter}={each.value!r})"


def test_published_parameters_are_those_of_the_papers():
    assert {
        "alma": Alma(rate=0.1, rate_decrease=0.01, keep_momentum=True, loss_name="plain_dlr_plus"),
        "apgd_min-ce": ApgdMin(loss_name="plain_ce"),
        "apgd_min-dlr": ApgdMin(loss_name="plain_dlr"),
        "ddn": Ddn(gamma=0.05, radius=1.0, levels=256, loss_name="plain_ce"),
        "fmn": Fmn(alpha=1.0, gamma=0.05, gamma_final=0.001, strict=True, plain_step=True),
        "pdgd": Pdgd(primal_rate=0.1, primal_decrease=0.01, least_margin=0.0),
        "pdpgd": Pdpgd(
            primal_rate=0.1,
            primal_decrease=0.01,
            least_margin=0.0,
            dual_rate=0.1,
            local_minimum=True,
        ),
        "sigma_zero": SigmaZero(eta=1.0, sigma=1e-3, tau=0.3, t=0.01),
    } == PUBLISHED
    assert {norm: usual.distance for norm, usual in BY_NORM.items()} == {
        "L1": 0.5,
        "L2": 0.1,
    }  # of the first step


def test_searches_that_no_paper_has_are_refused_among_published_ones():
    check_published(["fmn", "apgd_min-dlr:target2"])
    with pytest.raises(
        FrontierError, match=r"fab_min, square_min: searches of this package.*--ensemble paper-4k"
    ):
        check_published(["fmn", "fab_min:restart1", "square_min", "fab_min"])


# The effect of each switch


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_published_ratios(classes, targeted):
    z = torch.randn(
        20, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(classes)
    )
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
        "alma": "plain_dlr_plus", "apgd_min-ce": "plain_ce", "apgd_min-dlr": "plain_dlr", "ddn": "plain_ce",
        "fmn": "margin", "pdgd": "margin", "pdpgd": "margin", "sigma_zero": "margin",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rate_decrease", "last"), [(0.01, 0.01), (0.003, 0.003), (None, BY_NORM["L2"].rate_decrease)]
)
def test_alma_rate_falls_to_a_share_of_the_first(rate_decrease, last):
    """Without a gradient the step is rate · decrease^waited · momentum, and momentum keeps 0.9 of itself."""
    unit = small("L2").unit("alma")
    steps = unit.problem.steps
    unit.state.point = torch.full_like(unit.state.point, 0.5)
    unit.state.momentum = torch.full_like(unit.state.momentum, 0.01)
    unit.state.first_success = torch.zeros_like(unit.state.first_success)
    answer = answer_of(unit, wrong=False, best=1.0)
    answer.gradient.zero_()
    δ = 0.5 - unit.problem.inputs
    unit.state.square = torch.full_like(
        unit.state.square, 1e16
    )  # the distance's own gradient then counts nothing
    Alma(rate_decrease=rate_decrease).step(unit.problem, unit.state, steps - 1, answer)
    assert δ.abs().max() > 0
    moved = float((0.5 - unit.state.point).mean())
    assert moved == pytest.approx(0.1 * last ** ((steps - 1) / steps) * 0.9 * 0.01, rel=0.02)


def test_ddn_rounds_to_eight_bits():
    unit = small("L2").unit("ddn")
    PUBLISHED["ddn"].step(unit.problem, unit.state, 0, answer_of(unit, wrong=False, best=math.inf))
    levels = unit.state.point * 255
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
    other = small("L2").unit("ddn")
    Ddn().step(other.problem, other.state, 0, answer_of(other, wrong=False, best=math.inf))
    assert (other.state.point * 255 - (other.state.point * 255).round()).abs().max() > 0.1


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_fmn_takes_the_published_step(norm):
    """α = 1 along the unit gradient, then projected and clipped: what the box takes is lost."""
    unit = small(norm).unit("fmn")
    x, largest = unit.problem.inputs, unit.problem.largest
    unit.state.radius = largest.clone()
    answer = answer_of(unit, wrong=False, best=1.0)
    g = answer.gradient.clone()
    PUBLISHED["fmn"].step(unit.problem, unit.state, 0, answer)
    step = unit.problem.norm.project(-g / g.norm(dim=1)[:, None], largest)
    torch.testing.assert_close(unit.state.point, (x + step).clamp(0, 1))


def test_fmn_radius_before_the_first_success_is_the_estimate_alone():
    unit = small("L2").unit("fmn")
    unit.state.radius = torch.full_like(unit.state.radius, 0.5)
    answer = answer_of(unit, wrong=False, best=math.inf, loss=1e-3, distance=0.1)
    estimate = 0.1 + 1e-3 / answer.gradient.norm(dim=1)
    PUBLISHED["fmn"].step(unit.problem, unit.state, 0, answer)
    torch.testing.assert_close(unit.state.radius, estimate)


@pytest.mark.parametrize("attack", ["pdgd", "pdpgd"])
def test_primal_dual_slope_is_the_softplus_of_the_margin(attack):
    unit = small("L2").unit(attack)
    margin = torch.linspace(-3, 3, len(unit.problem.margin))
    torch.testing.assert_close(PUBLISHED[attack]._slope(unit.problem, margin), margin.sigmoid())


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_published_dual_rate_is_the_same_in_every_norm(norm):
    unit = small(norm).unit("pdpgd")
    before = unit.state.dual_logit.clone()
    PUBLISHED["pdpgd"]._dual_step(unit.problem, unit.state, 0, torch.ones_like(before))
    torch.testing.assert_close(unit.state.dual_logit, before + 0.1)


def test_published_proximal_step_keeps_every_local_minimum():
    """Stationary where it is not 0; 0 just below 4·(2μ/9)^{3/4}; and elsewhere the global minimum."""
    μ = 0.05
    v, weight = (
        torch.linspace(-1, 1, 4001, dtype=torch.float64)[None],
        torch.tensor([μ], dtype=torch.float64),
    )
    u, best = prox_local(v, weight), prox_two_thirds(v, weight)
    kept = u != 0
    torch.testing.assert_close((u + 2 / 3 * μ * u.sign() * u.abs() ** (-1 / 3))[kept], v[kept])
    assert torch.equal(kept, v.abs() >= 4 * (2 * μ / 9) ** 0.75)
    torch.testing.assert_close(u[best != 0], best[best != 0])
    assert (kept & (best == 0)).any()
    torch.testing.assert_close(prox_local(v, torch.zeros(1, dtype=torch.float64)), v)


def test_published_pdpgd_uses_it_in_l0_alone():
    anchor = torch.full((2, 3), 0.14)
    weight, metric = torch.full((2,), 0.05), torch.ones(2, 3)
    assert (
        PUBLISHED["pdpgd"]._proximal(small("L0").unit("pdpgd").problem, anchor, weight, metric) > 0
    ).all()
    assert (Pdpgd()._proximal(small("L0").unit("pdpgd").problem, anchor, weight, metric) == 0).all()
    torch.testing.assert_close(
        PUBLISHED["pdpgd"]._proximal(small("L1").unit("pdpgd").problem, anchor, weight, metric),
        anchor - 0.05,
    )


def test_sigma_zero_has_the_published_width():
    """At a point beyond the boundary only the surrogate's gradient 2σδ/(δ² + σ)² acts; its largest entry becomes 1."""
    unit = small("L0").unit("sigma_zero")
    δ = torch.linspace(0.01, 0.3, unit.problem.inputs.shape[1]).repeat(len(unit.problem.inputs), 1)
    unit.state.point = unit.problem.inputs + δ
    PUBLISHED["sigma_zero"].step(
        unit.problem, unit.state, 0, answer_of(unit, wrong=True, best=9.0, loss=-1.0)
    )
    pull = δ / (δ**2 + 1e-3) ** 2
    torch.testing.assert_close(
        unit.state.first, 0.1 * pull / pull.amax(1, keepdim=True), rtol=1e-3, atol=1e-5
    )
