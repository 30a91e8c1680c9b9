"""Projections onto balls against slow references, and against what defines them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from norm_rows import DTYPES, EVERY_NORM, PRECISION, as_tensors, radii, rows, rows_of, shares
from support import operators
from support.examples import EXAMPLES

from advfrontier.threat.norms import get_norm


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=shares)
def test_projection_is_the_nearest_point_of_the_ball(name, dtype, v, share):
    v, radius, v64, radius64 = as_tensors(v, radii(v, share, name), dtype)
    u = get_norm(name).project(v, radius).double().numpy()
    expected = np.array(
        [operators.project(row, r, name) for row, r in zip(v64, radius64, strict=True)]
    )
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
    assert (
        (twice - once).abs().double().numpy()
        <= PRECISION[dtype] * np.abs(v64).max(1, keepdims=True)
    ).all()


@EVERY_NORM
def test_projection_onto_nothing_is_zero(name):
    v = torch.from_numpy(rows_of(0, 4, 9, "dense", 1.0))
    assert torch.equal(
        get_norm(name).project(v, torch.zeros(4, dtype=v.dtype)), torch.zeros_like(v)
    )


def test_l0_projection_keeps_the_first_of_equal_entries():
    v = torch.tensor(
        [[1.0, -2, 2, -2, 1, 1], [3, 3, 3, 3, 3, 3], [0, 0, 1, 0, 0, 0], [-1, 1, 0, 0, 0, -1]]
    )
    kept = get_norm("L0").project(v, torch.tensor([4.0, 2, 3, 1]))
    expected = torch.tensor(
        [[1.0, -2, 2, -2, 0, 0], [3, 3, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [-1, 0, 0, 0, 0, 0]]
    )
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
    for row, r, around, got, slack in zip(
        v64, radius64, x64, u.double().numpy(), tolerance, strict=True
    ):
        np.testing.assert_allclose(
            got, operators.project_in_box(row, r, around), atol=slack[0], rtol=0
        )
        assert np.abs(got).sum() <= r + len(row) * slack[0]
    assert (point >= -tolerance).all()
    assert (point <= 1 + tolerance).all()


def test_l1_projection_into_ball_and_box_is_not_one_after_the_other():
    v, x = (
        torch.tensor([[3.0, 2.0]], dtype=torch.float64),
        torch.tensor([[0.9, 0.1]], dtype=torch.float64),
    )
    exact = get_norm("L1").project_in_box(v, torch.tensor([0.8], dtype=torch.float64), x)
    torch.testing.assert_close(exact, torch.tensor([[0.1, 0.7]], dtype=torch.float64))
