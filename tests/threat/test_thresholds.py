"""Levels against sorting in float64, and their convergence on long and heavy-tailed rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from norm_rows import rows
from support import operators
from support.examples import EXAMPLES

from advfrontier.threat.thresholds import (
    boxed_water_level,
    keep_largest,
    level_above,
    room_of,
    water_level,
)

SHARES = st.sampled_from([0.0, 0.001, 0.03, 0.3, 0.9, 0.99, 1.0, 2.0, np.inf])


def long_rows(kind, features, count=6):
    """Rows as perturbations have them: dense, sparse, sparse over a dense step, heavy-tailed."""
    rng = np.random.default_rng(features)
    dense = np.abs(rng.normal(size=(count, features)))
    if kind == "dense":
        v = dense
    elif kind == "flat":
        v = rng.random((count, features))
    elif kind == "sparse":
        v = dense * (rng.random(dense.shape) < 0.05)
    elif kind == "sparse and a step":
        v = dense / features**0.5 + rng.random(dense.shape) * (rng.random(dense.shape) < 0.03)
    else:
        v = np.exp(2 * rng.normal(size=dense.shape))
    return torch.tensor(v, dtype=torch.float32)


KINDS = pytest.mark.parametrize(
    "kind", ["dense", "flat", "sparse", "sparse and a step", "heavy-tailed"]
)
FEATURES = pytest.mark.parametrize("features", [784, 150_528])


@EXAMPLES
@given(v=rows, share=SHARES)
def test_water_level_leaves_the_total(v, share):
    heights = torch.from_numpy(np.abs(v))
    total = torch.nan_to_num(heights.sum(1) * share, nan=0.0)
    level = water_level(heights, total)
    expected = []
    for row, t in zip(heights.numpy(), total.numpy(), strict=True):
        expected.append(operators.sorted_level(row, t))
    np.testing.assert_allclose(level, expected, rtol=1e-9, atol=1e-12 * float(heights.max()))
    if share >= 1:
        assert (level == 0).all()


@EXAMPLES
@given(v=rows, share=SHARES, seed=st.integers(0, 1000))
def test_water_level_with_weights(v, share, seed):
    """Weights of whole numbers are entries that stand there several times."""
    times = np.random.default_rng(seed).integers(0, 4, v.shape[1])
    times[0] = 1
    heights = torch.from_numpy(np.abs(v))
    weights = torch.from_numpy(np.broadcast_to(times, v.shape).astype(float))
    total = torch.nan_to_num((heights * weights).sum(1) * share, nan=0.0)
    repeated = torch.from_numpy(np.repeat(np.abs(v), times, axis=1))
    torch.testing.assert_close(
        water_level(heights, total, weights),
        water_level(repeated, total),
        rtol=1e-9,
        atol=1e-12 * float(heights.max()),
    )


@KINDS
@FEATURES
@pytest.mark.parametrize("share", [0.001, 0.03, 0.3, 0.9])
def test_water_level_converges_in_float32(kind, features, share):
    heights = long_rows(kind, features)
    total = heights.sum(1) * share
    level = water_level(heights, total)
    left = (heights.double() - level.double()[:, None]).clamp_(min=0).sum(1)
    torch.testing.assert_close(left, total.double(), rtol=2e-5, atol=0)


@EXAMPLES
@given(v=rows, share=st.sampled_from([0.3, 0.5, 0.9, 1.0, 2.0, np.inf]), seed=st.integers(0, 1000))
def test_boxed_water_level_leaves_the_total(v, share, seed):
    """For entries of at most 2: a point of the box, moved by as much as the box is wide."""
    v = 2 * v / max(np.abs(v).max(), 2)
    x = np.random.default_rng(seed).random(v.shape)
    room = np.where(v > 0, 1 - x, x)
    held = np.minimum(np.abs(v), room).sum(1)
    total = np.nan_to_num(held * share, nan=0.0)
    level = boxed_water_level(*(torch.from_numpy(each) for each in (np.abs(v), room, total)))
    left = np.minimum(np.maximum(np.abs(v) - level.numpy()[:, None], 0), room).sum(1)
    np.testing.assert_allclose(left, np.minimum(held, total), rtol=1e-3, atol=1e-9)
    if share > 1:
        assert (level == 0).all()


@KINDS
@FEATURES
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
def test_boxed_water_level_converges_in_float32(kind, features, share):
    """Rooms as those of images: many inputs are at an end of the box."""
    rng = np.random.default_rng(1)
    heights = long_rows(kind, features)
    heights /= heights.amax(1, keepdim=True)
    room = torch.tensor(rng.random(heights.shape), dtype=torch.float32)
    room *= torch.tensor(rng.random(heights.shape) < 0.6)
    total = torch.minimum(heights, room).sum(1) * share
    level = boxed_water_level(heights, room, total)
    above = (heights.double() - level.double()[:, None]).clamp_(min=0)
    left = torch.minimum(above, room.double()).sum(1)
    torch.testing.assert_close(left, total.double(), rtol=1e-4, atol=0)


@EXAMPLES
@given(v=rows, share=st.floats(0, 1.2), seed=st.integers(0, 1000))
def test_level_above_separates_the_total(v, share, seed):
    values = torch.from_numpy(np.abs(v))
    weights = torch.from_numpy(np.random.default_rng(seed).random(v.shape))
    total = weights.sum(1) * share + 1e-9
    low, high = level_above(values, total, weights)
    assert (low < high).all()
    assert ((high <= low * (1 + 2**-11)) | (low == 0)).all()
    top = values.amax(1)
    assert (((weights * (values > high)).sum(1) < total) | (top == 0)).all()
    above = (weights * (values > low)).sum(1)
    assert ((above >= total) | (low[:, 0] == 0)).all()


@EXAMPLES
@given(v=rows, share=st.floats(0, 1.2))
def test_level_above_counts_without_weights(v, share):
    values = torch.from_numpy(np.abs(v))
    total = torch.full((len(v),), share * v.shape[1], dtype=torch.float64)
    one, two = level_above(values, total), level_above(values, total, torch.ones_like(values))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", [1, 7, 300])
def test_keep_largest_is_a_stable_sort_where_values_differ_or_are_equal(dtype, features):
    rng = np.random.default_rng(features)
    v = rng.integers(1, 2000, (40, features)) / 2000
    v[0] = 0.5
    v[1, ::2] = 0.25
    values = torch.tensor(v, dtype=dtype)
    count = torch.tensor(rng.integers(0, features + 2, 40), dtype=dtype)
    order = values.sort(dim=1, descending=True, stable=True).indices
    place = torch.empty_like(order).scatter_(1, order, torch.arange(features).expand(40, -1))
    assert torch.equal(keep_largest(values, count) > 0, place < count[:, None])


def test_keep_largest_keeps_no_zeros():
    values = torch.tensor([[0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    kept = keep_largest(values, torch.tensor([3.0, 2.0]))
    assert kept.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0]]


def test_keep_largest_of_very_small_and_very_large_numbers():
    """Below 2^-16 of the largest, the first is kept."""
    values = torch.tensor([[1e-42, 3e-42, 2e-42], [1e34, 3e38, 2e34], [1e-20, 1.0, 2e-20]])
    kept = keep_largest(values, torch.tensor([2.0, 2.0, 2.0]))
    assert kept.sum(1).tolist() == [2, 2, 2]
    assert kept[1].tolist() == [0, 1, 1]
    assert kept[2].tolist() == [1, 1, 0]


def test_room_of_a_direction_is_the_way_to_the_end_of_the_box():
    points = torch.tensor([[0.25, 0.25, 1.0, 0.0]])
    direction = torch.tensor([[3.0, -2.0, 1.0, -1.0]])
    assert room_of(points, direction).tolist() == [[0.75, 0.25, 0, 0]]
