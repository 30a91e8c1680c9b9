"""The exact oracles against enumeration, a linear programme and the solvers of scipy."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from support.examples import EXAMPLES
from support.operators import size
from support.oracles import halfspace_minimum, linear_minimum

NORMS = ("L0", "L1", "L2", "Linf")


def instance(seed, d):
    rng = np.random.default_rng(seed)
    a, x = rng.normal(size=d), rng.random(d)
    reach = (np.abs(a) * np.where(a > 0, x, 1 - x)).sum()
    return a, rng.uniform(0.02, 0.95) * reach - a @ x, x


def fewest_by_enumeration(a, c, x):
    """Every subset of features, each moved to the end of the box that helps."""
    end = np.where(a > 0, 0.0, 1.0)
    for count in range(len(a) + 1):
        for chosen in combinations(range(len(a)), count):
            point = x.copy()
            point[list(chosen)] = end[list(chosen)]
            if a @ point + c <= 1e-12:
                return count
    return np.inf


def by_linear_programme(a, c, x, norm):
    """δ = p − n with p, n ≥ 0; ℓ1 minimises Σ(p + n), ℓ∞ one more variable above all of them."""
    d = len(a)
    gap = a @ x + c
    bounds = [(0, 1 - v) for v in x] + [(0, v) for v in x]
    if norm == "L1":
        return linprog(np.ones(2 * d), A_ub=[[*a, *-a]], b_ub=[-gap], bounds=bounds).fun
    below = np.hstack([np.eye(2 * d), -np.ones((2 * d, 1))])
    rows = np.vstack([[*a, *-a, 0], below])
    return linprog(
        [*np.zeros(2 * d), 1], A_ub=rows, b_ub=[-gap, *np.zeros(2 * d)], bounds=[*bounds, (0, 1)]
    ).fun


def by_quadratic_programme(a, c, x):
    gap = a @ x + c
    constraint = {"type": "ineq", "fun": lambda v: -(gap + a @ v), "jac": lambda _: -a}
    bounds = list(zip(-x, 1 - x, strict=True))
    start = np.where(a > 0, -x, 1 - x)
    found = minimize(
        lambda v: v @ v,
        start,
        jac=lambda v: 2 * v,
        bounds=bounds,
        constraints=[constraint],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-15},
    )
    return float(np.sqrt(found.fun))


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 8))
def test_half_spaces_have_the_least_distance(seed, d):
    a, c, x = instance(seed, d)
    assert halfspace_minimum(a, c, x, "L0") == fewest_by_enumeration(a, c, x)
    for norm in ("L1", "Linf"):
        assert halfspace_minimum(a, c, x, norm) == pytest.approx(
            by_linear_programme(a, c, x, norm), rel=1e-6, abs=1e-9
        )
    assert halfspace_minimum(a, c, x, "L2") == pytest.approx(
        by_quadratic_programme(a, c, x), rel=1e-5, abs=1e-6
    )


@pytest.mark.parametrize("norm", NORMS)
def test_no_random_point_is_nearer(norm):
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(4, 3)), rng.normal(size=4)
    x = rng.random((5, 3))
    y = (x @ weight.T + bias).argmax(1)
    least = linear_minimum(weight, bias, x, y, norm)
    for sample, label, distance in zip(x, y, least, strict=True):
        points = rng.random((40_000, 3))
        points[::2] = np.where(
            rng.random((20_000, 3)) < 0.5, sample, points[::2]
        )  # some change few features only
        wrong = points[(points @ weight.T + bias).argmax(1) != label]
        sizes = np.array([size(point - sample, norm) for point in wrong])
        assert (sizes >= distance - 1e-12).all()
        if np.isfinite(distance):
            assert sizes.min() <= distance * 1.25 + 0.02


@pytest.mark.parametrize("norm", NORMS)
def test_half_spaces_at_the_ends_of_the_box(norm):
    a, x = np.array([1.0, -1.0]), np.array([0.5, 0.5])
    assert halfspace_minimum(a, -0.1, x, norm) == 0
    assert halfspace_minimum(a, 1.5, x, norm) == np.inf
    assert halfspace_minimum(a, 1.0 - 1e-12, x, norm) == pytest.approx(
        {"L0": 2, "L1": 1, "L2": 0.5**0.5, "Linf": 0.5}[norm]
    )
