"""Random points: where they lie, how they are spread, and what they depend on."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import get_norm
from advfrontier.threat.random import normal, sample_ids, uniform

EVERY_NORM = pytest.mark.parametrize("name", NORMS)
IDS = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
COUNTED = np.arange(20_000, dtype=np.uint64)  # ids that differ in few bits


def drawn(name, radius, features, ids=IDS, seed=43):
    return (
        get_norm(name)
        .random_in_ball(
            np.broadcast_to(np.float64(radius), len(ids)), features=features, seed=seed, ids=ids
        )
        .numpy()
    )


@pytest.mark.parametrize("ids", [IDS, COUNTED], ids=["hashes", "small numbers"])
def test_uniform_numbers_are_uniform_and_independent(ids):
    u = uniform(7, ids, "stream", 3)
    assert u.min() > 0
    assert u.max() < 1
    for column in u.T:
        assert kstest(column, "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(u.T) - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.03


def test_normal_numbers_are_normal():
    for column in normal(7, IDS, "stream", 2).T:
        assert kstest(column, "norm").pvalue > 1e-3


def test_seed_stream_and_id_all_matter():
    one = uniform(7, IDS[:5], "a", 4)
    for other in (
        uniform(8, IDS[:5], "a", 4),
        uniform(7, IDS[:5], "b", 4),
        uniform(7, IDS[5:10], "a", 4),
    ):
        assert np.abs(one - other).min() > 0


@EVERY_NORM
def test_points_depend_on_seed_and_id_alone(name):
    radius = np.linspace(1, 3, 50)
    norm = get_norm(name)
    together = norm.random_in_ball(radius, features=12, seed=43, ids=IDS[:50])
    order = np.random.default_rng(1).permutation(50)
    assert torch.equal(
        norm.random_in_ball(radius[order], features=12, seed=43, ids=IDS[:50][order]),
        together[order],
    )
    for row in (0, 17, 49):
        alone = norm.random_in_ball(radius[[row]], features=12, seed=43, ids=IDS[[row]])
        assert torch.equal(alone[0], together[row])
    other = norm.random_in_ball(radius, features=12, seed=44, ids=IDS[:50])
    assert (other != together).any(1).all()


@EVERY_NORM
@pytest.mark.parametrize("features", [2, 30])
def test_points_lie_in_the_ball(name, features):
    v = torch.from_numpy(drawn(name, 2.0, features))
    assert get_norm(name).size(v).max() <= 2 * (1 + 1e-12)


@pytest.mark.parametrize("name", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("features", [1, 2, 30])
def test_radii_follow_the_volume_of_the_ball(name, features):
    """A point is within share s of the radius with probability s^d, which makes the mean d/(d + 1)."""
    share = get_norm(name).size(torch.from_numpy(drawn(name, 3.0, features))).numpy() / 3
    assert share.mean() == pytest.approx(features / (features + 1), abs=0.01)
    assert kstest(share**features, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "mean"), [("L1", 1 / 3), ("L2", 4 / (3 * math.pi)), ("Linf", 1 / 2)]
)
def test_directions_are_uniform(name, mean):
    """In two dimensions: all quadrants and both axes alike, and the mean of |v₁| that the ball's shape gives."""
    v = drawn(name, 1.0, 2)
    quadrant = (v[:, 0] > 0) + 2 * (v[:, 1] > 0)
    np.testing.assert_allclose(np.bincount(quadrant, minlength=4) / len(v), 0.25, atol=0.015)
    np.testing.assert_allclose(np.abs(v).mean(0), mean, atol=0.01)
    assert (np.abs(v[:, 0]) > np.abs(v[:, 1])).mean() == pytest.approx(0.5, abs=0.015)


def test_l0_points_choose_features_uniformly():
    v = drawn("L0", 2.3, 10)
    assert (np.count_nonzero(v, axis=1) == 3).all()
    np.testing.assert_allclose((v != 0).mean(0), 0.3, atol=0.015)
    pairs = (v[:, 0] != 0) & (v[:, 1] != 0)
    assert pairs.mean() == pytest.approx(3 / 10 * 2 / 9, abs=0.01)
    assert kstest(v[v != 0], "uniform", args=(-1, 2)).pvalue > 1e-3


@EVERY_NORM
def test_starts_lie_in_the_box_and_not_beyond_the_radius(name):
    norm = get_norm(name)
    x = torch.rand(200, 20, generator=torch.Generator().manual_seed(0))
    radius = torch.linspace(0.1, 8, 200)
    start = norm.random_start(x, radius, seed=43, ids=IDS[:200])
    assert start.dtype == x.dtype
    assert start.min() >= 0
    assert start.max() <= 1
    assert (
        norm.distance(start, x) <= (radius.ceil() if name == "L0" else radius * (1 + 1e-5))
    ).all()
    assert (norm.distance(start, x) > 0).all()


def test_l0_starts_set_features_anywhere_in_the_box():
    x = torch.full((20_000, 4), 0.25)
    start = get_norm("L0").random_start(x, torch.full((20_000,), 2.0), seed=43, ids=IDS)
    changed = start != x
    assert (changed.sum(1) == 2).all()
    assert kstest(start[changed].numpy(), "uniform").pvalue > 1e-3


def test_ids_belong_to_the_content_of_an_image():
    images = np.random.default_rng(0).random((6, 3, 4, 4), dtype=np.float32)
    ids = sample_ids(images)
    assert len(set(ids.tolist())) == 6
    order = [3, 0, 5, 1, 4, 2]
    assert (sample_ids(images[order]) == ids[order]).all()
    assert sample_ids(images[2:3]) == ids[2]
    assert (sample_ids(images[:, ::-1].copy()[:, ::-1]) == ids).all()
    changed = images.copy()
    changed[4, 0, 0, 0] = np.nextafter(changed[4, 0, 0, 0], np.float32(2))
    assert ((sample_ids(changed) == ids) == (np.arange(6) != 4)).all()
