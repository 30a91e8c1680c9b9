"""Moves onto a hyperplane inside the box, against bisection one row at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES
from support.operators import size
from support.oracles import halfspace_minimum

from advfrontier.threat.norms import make_norm

NORMS = pytest.mark.parametrize("name", ["L1", "L2", "Linf"])


def move(name, points, slope, gap):
    return make_norm(name, points.shape[1:]).move_onto_hyperplane(points, slope, gap)


def instance(seed, n, d, dtype=torch.float64, reach=0.95):
    """Points, unit slopes with some zeros, and gaps of both signs up to a share of the reach."""
    rng = np.random.default_rng(seed)
    points, slope = rng.random((n, d)), rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8)
    points[rng.random((n, d)) < 0.2] = 0.0
    points[rng.random((n, d)) < 0.2] = 1.0
    slope[:, 0] += 0.1
    slope /= np.linalg.norm(slope, axis=1, keepdims=True)
    down = (np.abs(slope) * np.where(slope > 0, points, 1 - points)).sum(1)
    up = (np.abs(slope) * np.where(slope < 0, points, 1 - points)).sum(1)
    share = rng.uniform(-reach, reach, n)
    gap = np.where(share > 0, share * down, share * up)
    return *(torch.tensor(each, dtype=dtype) for each in (points, slope, gap)), down, up


@NORMS
@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 30))
def test_move_is_the_smallest_one_onto_the_hyperplane(name, seed, d):
    points, slope, gap, _, _ = instance(seed, 4, d, reach=0.6)
    moves = move(name, points, slope, gap)
    assert ((points + moves >= -1e-12) & (points + moves <= 1 + 1e-12)).all()
    torch.testing.assert_close((slope * moves).sum(1), -gap, rtol=1e-9, atol=1e-12)
    rows = zip(points.numpy(), slope.numpy(), gap.numpy(), moves.numpy(), strict=True)
    for x, w, c, row in rows:
        a = w if c > 0 else -w
        least = halfspace_minimum(a, abs(c) - a @ x, x, name) if c else 0.0
        # In ℓ1, features whose slopes are nearly equal share the last part of the move.
        assert size(row, name) == pytest.approx(least, rel=3e-4 if name == "L1" else 1e-8)


@NORMS
@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 30))
def test_move_near_the_reach_of_the_box_falls_short_by_little(name, seed, d):
    """A fixed number of passes can fall short where nearly every feature ends in a corner."""
    points, slope, gap, _, _ = instance(seed, 4, d)
    gained = -(slope * move(name, points, slope, gap)).sum(1)
    assert (gained * gap.sign() <= gap.abs() * (1 + 1e-9) + 1e-12).all()
    assert (gained * gap.sign() >= gap.abs() * (1 - 0.02) - 1e-12).all()


@NORMS
def test_move_in_float32_is_exact_to_rounding(name):
    points, slope, gap, _, _ = instance(0, 16, 3072, torch.float32, reach=0.5)
    moves = move(name, points, slope, gap)
    exact = move(name, points.double(), slope.double(), gap.double())
    torch.testing.assert_close((slope.double() * moves).sum(1), -gap.double(), rtol=1e-5, atol=1e-5)
    norm = make_norm(name, (3072,))
    torch.testing.assert_close(norm.size(moves.double()), norm.size(exact), rtol=1e-5, atol=0)


@NORMS
def test_move_out_of_reach_is_to_the_nearest_corner(name):
    points, slope, gap, down, up = instance(1, 6, 10)
    reach = torch.where(gap > 0, torch.tensor(down), -torch.tensor(up))
    moves = move(name, points, slope, 20 * reach)
    expected = torch.where(slope * gap[:, None] > 0, -points, 1 - points) * (slope != 0)
    torch.testing.assert_close(moves, expected)


@NORMS
def test_move_without_gap_or_without_slope_is_zero(name):
    points, slope, _, _, _ = instance(2, 3, 10)
    slope[1] = 0
    gap = torch.tensor([0.0, 0.3, 0.0], dtype=torch.float64)
    assert (move(name, points, slope, gap) == 0).all()


@NORMS
def test_move_does_not_depend_on_the_rows_beside_it(name):
    points, slope, gap, _, _ = instance(3, 8, 40)
    moves = move(name, points, slope, gap)
    for k in range(8):
        alone = move(name, points[k : k + 1], slope[k : k + 1], gap[k : k + 1])
        torch.testing.assert_close(moves[k], alone[0], rtol=1e-12, atol=1e-14)
