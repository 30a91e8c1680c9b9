"""The pixel-wise ℓ0 against ℓ0 of whole pixels, enumeration and closed forms."""

from itertools import product

import numpy as np
import pytest
import torch
from support.device import count_device_work
from support.operators import prox_two_thirds

from advfrontier.threat.names import NORMS, norm_name, norm_symbol
from advfrontier.threat.norms import make_norm
from advfrontier.threat.pixels import L0Pixel
from advfrontier.threat.random import Draws, sample_keys

SHAPE = (3, 2, 3)
NORM = L0Pixel(SHAPE)


def rows(count=8, *, seed=0, sparse=0.5):
    """Return perturbations of which some pixels are 0."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(count, *SHAPE)) * (rng.random((count, 1, *SHAPE[1:])) < sparse)
    return torch.from_numpy(v).flatten(1)


def draws(count=8):
    return Draws(43, sample_keys(np.arange(count, dtype=np.uint64)))


def test_names():
    assert [norm_name(text) for text in ("L0pixel", "l0pixel", "pixel")] == ["L0pixel"] * 3
    assert norm_symbol("L0pixel") == "ℓ0 pixels"
    assert "L0pixel" not in NORMS  # `all` stays the four norms
    assert isinstance(make_norm("L0pixel", SHAPE), L0Pixel)


def test_a_pixel_counts_once():
    v = torch.zeros(3, *SHAPE)
    v[1, 2, 0, 1] = 1e-30
    v[2, :, 1, :] = -0.5
    assert NORM.size(v.flatten(1)).tolist() == [0, 1, 3]
    assert L0Pixel((7,)).size(torch.ones(1, 7)).tolist() == [7]  # no image: features are pixels


def test_with_one_channel_every_method_is_that_of_l0():
    """Such samples have the bits of ℓ0."""
    v, x = rows().float(), torch.rand(8, 18, generator=torch.Generator().manual_seed(0))
    weight = torch.rand(8, generator=torch.Generator().manual_seed(1))
    l0, pixels = make_norm("L0", (1, 3, 6)), make_norm("L0pixel", (1, 3, 6))
    for name, arguments in {
        "size": (v,),
        "dual_size": (v,),
        "project": (v, 5 * weight),
        "boundary": (weight, v, x),
        "steepest": (v,),
        "largest": (x,),
    }.items():
        assert torch.equal(getattr(l0, name)(*arguments), getattr(pixels, name)(*arguments)), name
    torch.testing.assert_close(l0.prox(v, weight), pixels.prox(v, weight))


def test_projection_keeps_the_pixels_that_changed_most():
    v = rows()
    for count in range(7):
        kept = NORM.project(v, torch.full((8,), count + 0.5))
        lengths = v.view(8, 3, 6).norm(dim=1)
        assert (NORM.size(kept) <= count).all()
        assert torch.equal(kept, torch.where(kept != 0, v, 0))
        lost = (v - kept).view(8, 3, 6).norm(dim=1).square().sum(1)
        least = lengths.square().sort(dim=1).values[:, : 6 - count].sum(1)
        torch.testing.assert_close(lost, least)


def test_prox_shortens_every_pixel_by_the_scalar_minimum():
    v = rows(sparse=0.9)
    weight = torch.linspace(0.01, 0.8, 8, dtype=torch.float64)
    found = NORM.prox(v, weight).view(8, 3, 6)
    for row, column in product(range(8), range(6)):
        pixel = v.view(8, 3, 6)[row, :, column]
        length = float(pixel.norm())
        expected = pixel * (prox_two_thirds(length, float(weight[row])) / max(length, 1e-12))
        torch.testing.assert_close(found[row, :, column], expected, rtol=1e-5, atol=1e-7)


def test_boundary_of_a_linear_margin_is_the_fewest_pixels():
    """Every set of pixels, each at the corner of the box that helps most."""
    generator = torch.Generator().manual_seed(0)
    slope = torch.randn(8, 18, generator=generator, dtype=torch.float64)
    x = torch.rand(8, 18, generator=generator, dtype=torch.float64)
    gains = (torch.where(slope > 0, x, 1 - x) * slope.abs()).view(8, 3, 6).sum(1)
    margin = gains.sum(1) * torch.linspace(0.05, 0.95, 8)
    fewest = torch.full((8,), torch.inf)
    for chosen in product([0, 1], repeat=6):
        enough = gains @ torch.tensor(chosen, dtype=gains.dtype) >= margin
        fewest = torch.where(enough, fewest.clamp(max=sum(chosen)), fewest)
    assert NORM.boundary(margin, slope, x).tolist() == fewest.tolist()


def test_dual_size_bounds_the_gain_of_one_pixel_and_steepest_attains_it():
    g = rows(sparse=1.0)
    step = NORM.steepest(g)
    assert (NORM.size(step) == 1).all()
    assert (step.abs() <= 1).all()
    torch.testing.assert_close((step * g).sum(1), NORM.dual_size(g))


def test_subgradient_is_that_of_the_sum_of_lengths():
    v, u = rows(), rows(seed=1)
    size = v.view(8, 3, 6).norm(dim=1).sum(1)
    other = u.view(8, 3, 6).norm(dim=1).sum(1)
    assert (other >= size + (NORM.subgradient(v) * (u - v)).sum(1) - 1e-9).all()


def test_random_starts_change_so_many_pixels_inside_the_box():
    x = torch.rand(8, 18, generator=torch.Generator().manual_seed(0))
    radius = torch.tensor([1.0, 1, 2, 3, 4, 5, 6, 6])
    start = NORM.random_start(x, radius, draws())
    assert torch.equal(NORM.distance(start, x), radius)
    assert ((start >= 0) & (start <= 1)).all()
    changed = (start != x).view(8, 3, 6)
    assert torch.equal(changed.any(1), changed.all(1))


@pytest.mark.parametrize("method", ["size", "dual_size", "project", "prox", "boundary", "steepest"])
def test_nothing_waits_for_the_device(method):
    v, weight = rows(4).float(), torch.full((4,), 0.4)
    arguments = {"project": (v, weight), "prox": (v, weight), "boundary": (weight, v, v.abs())}
    with count_device_work() as work:
        getattr(NORM, method)(*arguments.get(method, (v,)))
    assert work.waits == 0, work.where
    assert work.operations <= 250, work.names


def test_units_are_pixels():
    v = rows()
    image = v.view(8, 3, 6)
    torch.testing.assert_close(NORM.squares(v), image.square().sum(1))
    torch.testing.assert_close(NORM.magnitudes(v), image.norm(dim=1))
    torch.testing.assert_close(NORM.totals(v), image.sum(1))
    assert torch.equal(
        NORM.spread(NORM.totals(v)).view(8, 3, 6), image.sum(1, keepdim=True).expand(8, 3, 6)
    )
    places = NORM.features_of(torch.tensor([[0, 5]]).expand(8, 2))
    assert torch.equal(v.gather(1, places), image[:, :, [0, 5]].flatten(1))
