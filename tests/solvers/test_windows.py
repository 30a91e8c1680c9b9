"""Moves inside random windows: sizes, places, and what they leave alone."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from advfrontier.solvers.windows import (
    DRAWS,
    Canvas,
    _pattern,
    move,
    pour,
    repaint,
    stripes,
    tiles,
)

SHAPES = [(3, 12, 12), (1, 5, 7), (1, 1, 20), (2, 1, 3), (1, 1, 1)]
CPU = torch.device("cpu")


def canvas_of(shape, *, seed=0, size=1.0, norm=2, rows=6):
    """Return a canvas with a perturbation of the given size."""
    rng = torch.Generator().manual_seed(seed)
    d = math.prod(shape)
    kept = tiles(shape, torch.rand(rows, d, generator=rng))
    kept = size * kept / kept.norm(norm, dim=1, keepdim=True)
    return Canvas(
        shape=shape,
        kept=kept,
        inputs=torch.rand(rows, d, generator=rng),
        radius=torch.full((rows,), 0.5),
        draw=torch.rand(rows, DRAWS + shape[0], generator=rng),
    )


def windows(canvas, side):
    """Return which pixels lie in the window to fill, and in the window to empty, by slicing."""
    height, width = canvas.shape[1:]
    rows, columns = min(side, height), min(side, width)
    inside = torch.zeros(2, len(canvas.kept), height, width, dtype=torch.bool)
    for k, draw in enumerate(canvas.draw.tolist()):
        for which in (0, 1):
            top = int(draw[2 * which] * (height - rows + 1))
            left = int(draw[2 * which + 1] * (width - columns + 1))
            inside[which, k, top : top + rows, left : left + columns] = True
    return inside[0], inside[1]


def spread(canvas, pixels):
    """Return the mask of pixels for all channels, flattened."""
    return pixels[:, None].expand(-1, *canvas.shape).flatten(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_first_perturbations_have_signs_per_tile_and_stripe(shape):
    draws = torch.rand(6, math.prod(shape), generator=torch.Generator().manual_seed(0))
    tiled, striped = tiles(shape, draws), stripes(shape, draws)
    assert (tiled != 0).any(1).all()
    assert set(striped.unique().tolist()) <= {-1.0, 1.0}
    image = striped.view(6, *shape)
    assert (image == image[:, :, :1]).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [1, 3, 5, 30])
def test_repaint_changes_one_window_to_one_sign_per_channel(shape, side):
    canvas = canvas_of(shape)
    painted = repaint(canvas, side)
    filled, _ = windows(canvas, side)
    outside = ~spread(canvas, filled)
    assert torch.equal(painted[outside], canvas.kept[outside])
    signs = (canvas.draw[:, DRAWS:] - 0.5).sign()[:, :, None, None].expand(-1, *shape).flatten(1)
    assert torch.equal(painted[~outside], signs[~outside])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("size", [1.0, 0.6])
def test_move_keeps_the_size_and_touches_two_windows(shape, side, size):
    canvas = canvas_of(shape, size=size)
    moved = move(canvas, side)
    torch.testing.assert_close(moved.norm(dim=1), torch.ones(6))
    filled, emptied = windows(canvas, side)
    outside = ~spread(canvas, filled | emptied)
    torch.testing.assert_close(moved[outside], canvas.kept[outside])
    only_emptied = spread(canvas, emptied & ~filled)
    assert (moved[only_emptied] == 0).all()


def test_move_takes_odd_sides():
    canvas = canvas_of((1, 12, 12))
    for side, odd in ((1, 3), (3, 3), (4, 5), (5, 5), (11, 11)):
        assert torch.equal(move(canvas, side), move(canvas, odd))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [3, 5])
def test_pour_fills_inside_the_box_and_touches_two_windows(shape, side):
    canvas = canvas_of(shape, norm=1)
    poured = pour(canvas, side)
    assert (poured.abs().sum(1) <= 1 + 1e-5).all()
    filled, emptied = windows(canvas, side)
    outside = ~spread(canvas, filled | emptied)
    assert torch.equal(poured[outside], canvas.kept[outside])
    fresh = spread(canvas, filled)
    point = canvas.inputs + canvas.radius[:, None] * poured
    assert ((point >= -1e-6) & (point <= 1 + 1e-6))[fresh].all()
    assert (poured[spread(canvas, emptied & ~filled)] == 0).all()


def test_pour_fills_from_the_middle_outwards_as_far_as_the_box_allows():
    """The only window is the whole image, and the sign is +."""
    canvas = Canvas(
        shape=(1, 5, 5),
        kept=torch.zeros(1, 25),
        inputs=torch.full((1, 25), 0.25),
        radius=torch.tensor([2.0]),
        draw=torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 0.9]]),
    )
    poured = 2 * pour(canvas, 5)
    image = poured.view(5, 5)
    assert image[2, 2] == 0.75
    assert image.flatten().sort(descending=True).values[:3].tolist() == [0.75, 0.75, 0.5]
    assert (image[1:4, 1:4] != 0).sum() == 3  # in the first ring
    assert poured.sum() == 2


def brute_force_pattern(rows, columns, *, across):
    """Return the Square Attack's ℓ2 pattern, entry by entry."""
    across = rows == 1 or (across and columns > 1)
    pattern = torch.zeros(rows, columns, dtype=torch.float64)
    whole = columns if across else rows
    for first, last, sign in ((0, whole // 2, 1), (whole // 2, whole, -1)):
        height, width = (rows, last - first) if across else (last - first, columns)
        outermost = max(height // 2, width // 2) + 1 if last > first else 0
        for r in range(height):
            for c in range(width):
                ring = max(abs(r - height // 2), abs(c - width // 2))
                value = sign * sum(1 / j**2 for j in range(ring + 1, outermost + 1))
                pattern[(r, first + c) if across else (first + r, c)] = value
    return pattern / pattern.norm()


@EXAMPLES
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), across=st.booleans())
def test_pattern_is_two_halves_that_fade_from_their_middles(rows, columns, across):
    pattern = _pattern(rows, columns, CPU, across=across).double()
    expected = brute_force_pattern(rows, columns, across=across)
    torch.testing.assert_close(pattern, expected, rtol=0, atol=1e-6)
