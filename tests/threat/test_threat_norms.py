"""Sizes, boundaries and water levels against slow references, and that rows do not depend on each other."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from norm_rows import EVERY_NORM, rows, rows_of
from support import operators
from support.examples import EXAMPLES
from support.oracles import halfspace_minimum

from advfrontier.threat.norms import get_norm
from advfrontier.threat.thresholds import boxed_water_level, water_level


@EVERY_NORM
@EXAMPLES
@given(v=rows)
def test_size(name, v):
    expected = [operators.size(row, name) for row in v]
    np.testing.assert_allclose(get_norm(name).size(torch.from_numpy(v)), expected, rtol=1e-14)


@EVERY_NORM
@EXAMPLES
@given(v=rows, g=rows)
def test_dual_size_bounds_the_gain_of_any_step_and_is_attained(name, v, g):
    norm, d = get_norm(name), min(v.shape[1], g.shape[1])
    v, g = v[:1, :d], g[:1, :d]
    if name == "L0":
        v = np.clip(v, -1, 1)  # ℓ0 measures gains per feature that moves by one at most
    dual = float(norm.dual_size(torch.from_numpy(g)))
    assert float((g * v).sum()) <= operators.size(v[0], name) * dual * (1 + 1e-12) + 1e-15
    steepest = np.zeros(d)
    steepest[np.abs(g[0]).argmax()] = np.sign(g[0, np.abs(g[0]).argmax()])
    step = {"L0": steepest, "L1": steepest, "L2": g[0], "Linf": np.sign(g[0])}[name]
    assert float(g[0] @ step) == pytest.approx(operators.size(step, name) * dual, rel=1e-12)


@EXAMPLES
@given(v=rows, share=st.sampled_from([0.0, 0.3, 0.9, 1.0, 2.0, np.inf]))
def test_water_level(v, share):
    heights = torch.from_numpy(np.abs(v))
    total = (
        heights.sum(1) * share
        if np.isfinite(share)
        else torch.full((len(v),), torch.inf, dtype=torch.float64)
    )
    level = water_level(heights, total)
    expected = [
        operators.sorted_level(row, t)
        for row, t in zip(heights.numpy(), total.numpy(), strict=True)
    ]
    np.testing.assert_allclose(level, expected, rtol=1e-12, atol=1e-13 * float(heights.max()))
    if share >= 1.001:
        assert (level == 0).all()
    if share == 0:
        np.testing.assert_allclose(level, heights.amax(1), rtol=1e-14)


@EXAMPLES
@given(v=rows, share=st.sampled_from([0.0, 0.3, 0.9, 1.0, 2.0, np.inf]), seed=st.integers(0, 1000))
def test_boxed_water_level(v, share, seed):
    x = np.random.default_rng(seed).random(v.shape)
    room = np.where(v > 0, 1 - x, x)
    held = np.minimum(np.abs(v), room).sum(1)
    total = held * share if np.isfinite(share) else np.full(len(v), np.inf)
    level = boxed_water_level(
        torch.from_numpy(v), torch.from_numpy(x), torch.from_numpy(total)
    ).numpy()
    left = np.minimum(np.maximum(np.abs(v) - level[:, None], 0), room).sum(1)
    np.testing.assert_allclose(
        left, np.minimum(held, total), rtol=1e-9, atol=1e-11 * max(1, float(np.abs(v).max()))
    )
    if share >= 1.001:
        assert (level == 0).all()


OPERATORS = {
    "project L0": lambda v, r, _: get_norm("L0").project(v, (r * v.shape[1]).floor()),
    "project L1": lambda v, r, _: get_norm("L1").project(v, 5 * r),
    "project L2": lambda v, r, _: get_norm("L2").project(v, r),
    "project Linf": lambda v, r, _: get_norm("Linf").project(v, r),
    "project L1 in the box": lambda v, r, inputs: get_norm("L1").project_in_box(v, 5 * r, inputs),
    "prox L0": lambda v, r, _: get_norm("L0").prox(v, r),
    "prox L1": lambda v, r, _: get_norm("L1").prox(v, r),
    "prox L2": lambda v, r, _: get_norm("L2").prox(v, r),
    "prox Linf": lambda v, r, _: get_norm("Linf").prox(v, 10 * r),
    "boundary L0": lambda v, r, x: get_norm("L0").boundary(r, v, x),
    "boundary L1": lambda v, r, x: get_norm("L1").boundary(r, v, x),
    "boundary L2": lambda v, r, x: get_norm("L2").boundary(r, v, x),
    "boundary Linf": lambda v, r, x: get_norm("Linf").boundary(r, v, x),
}


@pytest.mark.parametrize("name", OPERATORS)
@EXAMPLES
@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 70),
    kinds=st.tuples(*[st.sampled_from(["dense", "sparse", "tied", "peaked"])] * 2),
)
def test_rows_do_not_depend_on_their_batch_mates(name, seed, d, kinds):
    """The same rows among other rows give the same bits."""
    rng = np.random.default_rng(seed)
    own, others = rows_of(seed, 3, d, kinds[0], 1.0), rows_of(seed + 1, 3, d, kinds[1], 1.0)
    stay = np.array([True, False, True])
    mixed = np.where(stay[:, None], own, others)
    x = torch.tensor(rng.random((3, d)), dtype=torch.float32)
    r = torch.tensor(rng.random(3), dtype=torch.float32)
    one, two = (
        OPERATORS[name](torch.tensor(v, dtype=torch.float32), r, x)[stay] for v in (own, mixed)
    )
    assert torch.equal(one, two)


@EVERY_NORM
def test_boundary_of_a_linear_margin_is_where_it_vanishes(name):
    """Wide of the box the first-order estimate is exact for one half-space; ℓ0 knows the box."""
    rng = np.random.default_rng(3)
    g, x = (
        torch.from_numpy(rng.normal(size=(6, 30))),
        torch.from_numpy(rng.uniform(0.4, 0.6, (6, 30))),
    )
    gap = (
        torch.from_numpy(rng.uniform(0.01, 0.1, 6))
        if name != "L0"
        else torch.from_numpy(rng.uniform(0.5, 5, 6))
    )
    estimate = get_norm(name).boundary(gap, g, x)
    exact = [
        halfspace_minimum(a, m - a @ p, p, name)
        for a, m, p in zip(g.numpy(), gap.numpy(), x.numpy(), strict=True)
    ]
    np.testing.assert_allclose(estimate, exact, rtol=1e-9)


@EVERY_NORM
def test_boundary_without_gradient_is_as_far_as_the_box_goes(name):
    x = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0] = 0.5
    norm = get_norm(name)
    farthest = norm.size(torch.where(x > 0.5, x, 1 - x))
    assert torch.equal(norm.largest(x), farthest)
    assert torch.equal(
        norm.boundary(torch.ones(4, dtype=x.dtype), torch.zeros_like(x), x), farthest
    )
