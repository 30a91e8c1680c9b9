"""Sizes, projections and proximal steps against slow references, and against what defines them."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support import operators
from support.examples import EXAMPLES
from support.oracles import halfspace_minimum

from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import get_norm, prox_two_thirds
from advfrontier.threat.thresholds import boxed_water_level, water_level

EVERY_NORM = pytest.mark.parametrize("name", NORMS)
PRECISION = {torch.float32: 2e-6, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", PRECISION, ids=["float32", "float64"])


def rows_of(seed, n, d, kind, scale):
    """Rows to try operators on: dense, sparse, with ties, or with one entry far above the others."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, d))
    if kind == "sparse":
        v *= rng.random((n, d)) < 0.3
    elif kind == "tied":
        v = rng.integers(-2, 3, size=(n, d)).astype(float)
    elif kind == "peaked":
        v[:, rng.integers(d)] *= 1000
    return v * scale


rows = st.builds(
    rows_of,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    d=st.integers(1, 40),
    kind=st.sampled_from(["dense", "sparse", "tied", "peaked"]),
    scale=st.sampled_from([1e-4, 1.0, 30.0]),
)
shares = st.one_of(
    st.just(0.0), st.floats(1e-3, 1.5)
)  # of the row's own size, for radii and weights inside and outside


def as_tensors(v, per_row, dtype):
    """The tensors the operator gets, and the same numbers back in float64 for the reference."""
    v, per_row = torch.tensor(v, dtype=dtype), torch.tensor(per_row, dtype=dtype)
    return v, per_row, v.double().numpy(), per_row.double().numpy()


def radii(v, share, name):
    sizes = np.array([operators.size(row, name) for row in v], dtype=float)
    return np.floor(sizes * share) if name == "L0" else sizes * share


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


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=shares)
def test_projection_is_the_nearest_point_of_the_ball(name, dtype, v, share):
    v, radius, v64, radius64 = as_tensors(v, radii(v, share, name), dtype)
    u = get_norm(name).project(v, radius).double().numpy()
    expected = np.array([operators.project(row, r, name) for row, r in zip(v64, radius64, strict=True)])
    scale = np.abs(v64).max(1, keepdims=True)
    assert (np.abs(u - expected) <= PRECISION[dtype] * scale).all()
    for row, r, slack in zip(u, radius64, PRECISION[dtype] * scale[:, 0], strict=True):
        assert operators.size(row, name) <= r + (0 if name == "L0" else len(row) * slack)


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=st.floats(1.001, 3))
def test_projection_leaves_rows_inside_untouched(name, dtype, v, share):
    v, radius, *_ = as_tensors(v, radii(v, share, name) + (1 if name == "L0" else 1e-30), dtype)
    assert torch.equal(get_norm(name).project(v, radius), v)
    assert torch.equal(get_norm(name).project(v, torch.full_like(radius, torch.inf)), v)


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=shares)
def test_projection_twice_is_projection_once(name, dtype, v, share):
    v, radius, v64, _ = as_tensors(v, radii(v, share, name), dtype)
    once = get_norm(name).project(v, radius)
    twice = get_norm(name).project(once.clone(), radius)
    assert ((twice - once).abs().double().numpy() <= PRECISION[dtype] * np.abs(v64).max(1, keepdims=True)).all()


@EVERY_NORM
def test_projection_onto_nothing_is_zero(name):
    v = torch.from_numpy(rows_of(0, 4, 9, "dense", 1.0))
    assert torch.equal(get_norm(name).project(v, torch.zeros(4, dtype=v.dtype)), torch.zeros_like(v))


def test_l0_projection_keeps_the_first_of_equal_entries():
    v = torch.tensor([[1.0, -2, 2, -2, 1, 1], [3, 3, 3, 3, 3, 3], [0, 0, 1, 0, 0, 0], [-1, 1, 0, 0, 0, -1]])
    kept = get_norm("L0").project(v, torch.tensor([4.0, 2, 3, 1]))
    expected = torch.tensor([[1.0, -2, 2, -2, 0, 0], [3, 3, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [-1, 0, 0, 0, 0, 0]])
    assert torch.equal(kept, expected)


@DTYPES
@EXAMPLES
@given(v=rows, share=shares, seed=st.integers(0, 1000))
def test_l1_projection_into_ball_and_box(dtype, v, share, seed):
    inputs = np.random.default_rng(seed).random(v.shape)
    inputs[:, ::5], inputs[:, 1::7] = 0, 1  # some at the ends of the box already
    v, radius, v64, radius64 = as_tensors(v, radii(v, share, "L1"), dtype)
    x = torch.tensor(inputs, dtype=dtype)
    u = get_norm("L1").project_in_box(v, radius, x)
    point = (x + u).double().numpy()
    x64 = x.double().numpy()
    tolerance = PRECISION[dtype] * np.maximum(np.abs(v64).max(1, keepdims=True), 1)
    for row, r, around, got, slack in zip(v64, radius64, x64, u.double().numpy(), tolerance, strict=True):
        np.testing.assert_allclose(got, operators.project_in_box(row, r, around), atol=slack[0], rtol=0)
        assert np.abs(got).sum() <= r + len(row) * slack[0]
    assert (point >= -tolerance).all()
    assert (point <= 1 + tolerance).all()


def test_l1_projection_into_ball_and_box_is_not_one_after_the_other():
    v, x = torch.tensor([[3.0, 2.0]], dtype=torch.float64), torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    exact = get_norm("L1").project_in_box(v, torch.tensor([0.8], dtype=torch.float64), x)
    torch.testing.assert_close(exact, torch.tensor([[0.1, 0.7]], dtype=torch.float64))


@EXAMPLES
@given(v=rows, share=st.sampled_from([0.0, 0.3, 0.9, 1.0, 2.0, np.inf]))
def test_water_level(v, share):
    heights = torch.from_numpy(np.abs(v))
    total = heights.sum(1) * share if np.isfinite(share) else torch.full((len(v),), torch.inf, dtype=torch.float64)
    level = water_level(heights, total)
    expected = [operators.sorted_level(row, t) for row, t in zip(heights.numpy(), total.numpy(), strict=True)]
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
    level = boxed_water_level(torch.from_numpy(v), torch.from_numpy(x), torch.from_numpy(total)).numpy()
    left = np.minimum(np.maximum(np.abs(v) - level[:, None], 0), room).sum(1)
    np.testing.assert_allclose(left, np.minimum(held, total), rtol=1e-9, atol=1e-11 * max(1, float(np.abs(v).max())))
    if share >= 1.001:
        assert (level == 0).all()


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=st.floats(0.001, 1.3))
def test_prox_against_float64(name, dtype, v, share):
    """ℓ1 and ℓ2 in closed form, ℓ∞ by Moreau's identity, ℓ_{2/3} by brute force."""
    scale = np.abs(v).max(1)
    weight = share * (
        scale ** (4 / 3) if name == "L0" else np.maximum(radii(v, 1, {"Linf": "L1"}.get(name, name)), 1e-9)
    )
    v, weight, v64, weight64 = as_tensors(v, weight, dtype)
    u = get_norm(name).prox(v.clone(), weight).double().numpy()
    assert np.isfinite(u).all()
    for got, row, w in zip(u, v64, weight64, strict=True):
        if name == "L0":
            close = np.abs(np.abs(row) - (2 / 3) * (24 * w**3) ** 0.25) < 1e-5 * np.abs(
                row
            )  # 0 and u equally good there
            expected = np.array([operators.prox_two_thirds(entry, w) for entry in row])
            got, expected = got[~close], expected[~close]  # noqa: PLW2901
        elif name == "L1":
            expected = operators.soft(row, w)
        elif name == "L2":
            expected = row * max(1 - w / max(operators.size(row, "L2"), 1e-300), 0)
        else:
            expected = row - operators.project(row, w, "L1")
        assert (np.abs(got - expected) <= PRECISION[dtype] * np.abs(row).max()).all()


@EVERY_NORM
@EXAMPLES
@given(v=rows, share=st.floats(0.001, 1.3), seed=st.integers(0, 1000))
def test_prox_minimises_what_it_should(name, v, share, seed):
    weight = share * np.maximum(np.abs(v).max(1), 1e-6)
    u = get_norm(name).prox(torch.tensor(v), torch.tensor(weight)).numpy()
    rng = np.random.default_rng(seed)
    for got, row, w in zip(u, v, weight, strict=True):
        least = operators.prox_value(got, row, w, name)
        for step in (1e-4, 1e-2, 1):
            for other in (
                got + step * rng.normal(size=row.shape) * np.abs(row).max(),
                got * (1 - step),
                row * (1 - step),
                row,
            ):
                assert least <= operators.prox_value(other, row, w, name) * (1 + 1e-9) + 1e-18


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows)
def test_prox_of_weight_zero_is_the_identity(name, dtype, v):
    v, weight, *_ = as_tensors(v, np.zeros(len(v)), dtype)
    torch.testing.assert_close(
        get_norm(name).prox(v.clone(), weight), v, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0
    )


@settings(EXAMPLES, max_examples=200)
@given(exponent=st.floats(-6, 1), ratio=st.floats(0.5, 1e4), sign=st.sampled_from([-1, 1]))
@example(exponent=-3, ratio=1.0, sign=1)
@example(exponent=-4, ratio=300.0, sign=-1)
def test_prox_two_thirds_in_float32(exponent, ratio, sign):
    """`ratio` is |v| over the threshold; the published closed form turns a few per cent of these into NaN."""
    weight = torch.tensor([10**exponent], dtype=torch.float32)
    w = float(weight.double())
    threshold = (2 / 3) * (24 * w**3) ** 0.25
    v = torch.tensor([[sign * ratio * threshold]], dtype=torch.float32)
    assume(abs(abs(float(v)) / threshold - 1) > 1e-5)
    got = float(prox_two_thirds(v, weight).double())
    assert got == pytest.approx(operators.prox_two_thirds(float(v.double()), w), abs=2e-6 * abs(float(v)))
    assert (got == 0) == (abs(float(v)) < threshold)


@pytest.mark.parametrize("weight", [1e-1, 1e-3, 1e-4, 1e-6])
def test_prox_two_thirds_never_loses_a_large_entry(weight):
    v = torch.linspace(0.05, 1, 20_000)[None]
    v = torch.cat([v, -v])
    got = prox_two_thirds(v, torch.full((2,), weight))
    reference = prox_two_thirds(v.double(), torch.full((2,), weight, dtype=torch.float32).double())
    assert got.isfinite().all()
    assert (got - reference).abs().max() < 2e-6
    assert torch.equal(got == 0, v.abs() < (2 / 3) * (24 * weight**3) ** 0.25)


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
    one, two = (OPERATORS[name](torch.tensor(v, dtype=torch.float32), r, x)[stay] for v in (own, mixed))
    assert torch.equal(one, two)


@EVERY_NORM
def test_boundary_of_a_linear_margin_is_where_it_vanishes(name):
    """Wide of the box the first-order estimate is exact for one half-space; ℓ0 knows the box."""
    rng = np.random.default_rng(3)
    g, x = torch.from_numpy(rng.normal(size=(6, 30))), torch.from_numpy(rng.uniform(0.4, 0.6, (6, 30)))
    gap = torch.from_numpy(rng.uniform(0.01, 0.1, 6)) if name != "L0" else torch.from_numpy(rng.uniform(0.5, 5, 6))
    estimate = get_norm(name).boundary(gap, g, x)
    exact = [
        halfspace_minimum(a, m - a @ p, p, name) for a, m, p in zip(g.numpy(), gap.numpy(), x.numpy(), strict=True)
    ]
    np.testing.assert_allclose(estimate, exact, rtol=1e-9)


@EVERY_NORM
def test_boundary_without_gradient_is_as_far_as_the_box_goes(name):
    x = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0] = 0.5
    norm = get_norm(name)
    farthest = norm.size(torch.where(x > 0.5, x, 1 - x))
    assert torch.equal(norm.largest(x), farthest)
    assert torch.equal(norm.boundary(torch.ones(4, dtype=x.dtype), torch.zeros_like(x), x), farthest)
