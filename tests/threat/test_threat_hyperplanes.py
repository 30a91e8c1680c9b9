"""Projections onto a hyperplane inside the box, against bisection one row at a time and against optimality."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES
from support.operators import size
from support.oracles import halfspace_minimum

from advfrontier.threat.hyperplanes import move_onto_hyperplane
from advfrontier.threat.norms import get_norm

NORMS = ("L1", "L2", "Linf")


def instance(seed, n, d, dtype=torch.float64):
    """Points, unit slopes with some zeros, and gaps of both signs that the box allows for."""
    rng = np.random.default_rng(seed)
    points, slope = rng.random((n, d)), rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8)
    points[rng.random((n, d)) < 0.2] = 0.0
    points[rng.random((n, d)) < 0.2] = 1.0
    slope[:, 0] += 0.1
    slope /= np.linalg.norm(slope, axis=1, keepdims=True)
    down = (np.abs(slope) * np.where(slope > 0, points, 1 - points)).sum(1)
    up = (np.abs(slope) * np.where(slope < 0, points, 1 - points)).sum(1)
    share = rng.uniform(-0.95, 0.95, n)
    gap = np.where(share > 0, share * down, share * up)
    return *(torch.tensor(a, dtype=dtype) for a in (points, slope, gap)), down, up


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 30), norm=st.sampled_from(NORMS))
def test_the_move_is_the_smallest_one_onto_the_hyperplane(seed, d, norm):
    points, slope, gap, _, _ = instance(seed, 4, d)
    moves = move_onto_hyperplane(get_norm(norm), points, slope, gap)
    assert ((points + moves >= -1e-12) & (points + moves <= 1 + 1e-12)).all()
    torch.testing.assert_close((slope * moves).sum(1), -gap, rtol=1e-10, atol=1e-12)
    for x, w, c, move in zip(
        points.numpy(), slope.numpy(), gap.numpy(), moves.numpy(), strict=True
    ):
        a = w if c > 0 else -w
        least = halfspace_minimum(a, abs(c) - a @ x, x, norm) if c else 0.0
        assert size(move, norm) == pytest.approx(least, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("norm", NORMS)
def test_float32_is_exact_to_rounding(norm):
    points, slope, gap, _, _ = instance(0, 16, 3072, torch.float32)
    moves = move_onto_hyperplane(get_norm(norm), points, slope, gap)
    exact = move_onto_hyperplane(get_norm(norm), points.double(), slope.double(), gap.double())
    torch.testing.assert_close((slope.double() * moves).sum(1), -gap.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        get_norm(norm).size(moves.double()), get_norm(norm).size(exact), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_out_of_reach_it_is_the_nearest_corner(norm):
    points, slope, gap, down, up = instance(1, 6, 10)
    reach = torch.where(gap > 0, torch.tensor(down), -torch.tensor(up))
    moves = move_onto_hyperplane(get_norm(norm), points, slope, 2 * reach)
    expected = torch.where(slope * gap[:, None] > 0, -points, 1 - points) * (slope != 0)
    torch.testing.assert_close(moves, expected)


@pytest.mark.parametrize("norm", NORMS)
def test_no_gap_is_no_move_and_no_slope_is_no_trouble(norm):
    points, slope, _, _, _ = instance(2, 3, 10)
    slope[1] = 0
    gap = torch.tensor([0.0, 0.3, 0.0], dtype=torch.float64)
    assert (move_onto_hyperplane(get_norm(norm), points, slope, gap) == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_rows_and_stacked_points_do_not_touch_each_other(norm):
    points, slope, gap, _, _ = instance(3, 8, 40)
    both = torch.stack([points, 1 - points])
    gaps = torch.stack([gap, gap / 3])
    moves = move_onto_hyperplane(get_norm(norm), both, slope, gaps)
    for k in range(8):
        for j in range(2):
            alone = move_onto_hyperplane(
                get_norm(norm), both[j, k : k + 1], slope[k : k + 1], gaps[j, k : k + 1]
            )
            torch.testing.assert_close(moves[j, k], alone[0], rtol=1e-12, atol=1e-14)
