"""Every method of every norm against slow references, optimality and statistics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from norm_rows import (
    DTYPES,
    EVERY_NORM,
    PRECISION,
    as_tensors,
    norm_for,
    radii,
    rows,
    rows_of,
    shares,
)
from scipy.stats import kstest
from support import operators
from support.device import count_device_work
from support.examples import EXAMPLES
from support.oracles import halfspace_minimum

from advfrontier.errors import FrontierError
from advfrontier.threat.names import NORMS, NormFacts, register_norm
from advfrontier.threat.norms import L2, Norm, make_norm, prox_two_thirds
from advfrontier.threat.random import Draws, sample_keys

IDS = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)


def draws(ids=IDS, seed=43):
    return Draws(seed, sample_keys(ids))


# ------------------------------------------------------------------------------ making a norm


def test_make_norm_knows_names_shapes_and_norms():
    norm = make_norm("l2", (3, 4, 5))
    assert isinstance(norm, L2)
    assert (norm.name, norm.shape, norm.features) == ("L2", (3, 4, 5), 60)
    assert make_norm(norm, (3, 4, 5)) is norm
    assert [repr(make_norm(name, (2,))) for name in NORMS] == list(NORMS)


def test_make_norm_refuses_a_norm_of_another_shape():
    with pytest.raises(FrontierError, match=r"shape \(3, 4, 5\), and these have the shape \(60,\)"):
        make_norm(make_norm("L2", (3, 4, 5)), (60,))


def test_make_norm_refuses_a_class_that_is_no_norm():
    register_norm(NormFacts("Nothing", "ℓ?", dict))
    with pytest.raises(FrontierError, match="expected a subclass of"):
        make_norm("Nothing", (3,))


def test_sizes_are_whole_numbers_in_l0_alone():
    assert [name for name in NORMS if make_norm(name, (1,)).counts] == ["L0"]


# ---------------------------------------------------------------------------- sizes and slopes


@EVERY_NORM
@EXAMPLES
@given(v=rows)
def test_size(name, v):
    expected = [operators.size(row, name) for row in v]
    np.testing.assert_allclose(norm_for(name, v).size(torch.from_numpy(v)), expected, rtol=1e-14)


@EVERY_NORM
@EXAMPLES
@given(v=rows, g=rows)
def test_dual_size_bounds_the_gain_of_any_step_and_steepest_attains_it(name, v, g):
    d = min(v.shape[1], g.shape[1])
    v, g = v[:1, :d], g[:1, :d]
    if name == "L0":
        v = np.clip(v, -1, 1)  # ℓ0 measures gains per feature that moves by one at most
    norm = norm_for(name, v)
    dual = float(norm.dual_size(torch.from_numpy(g)))
    assert float((g * v).sum()) <= operators.size(v[0], name) * dual * (1 + 1e-12) + 1e-15
    steepest = norm.steepest(torch.from_numpy(g)).numpy()
    assert operators.size(steepest[0], name) <= 1 + 1e-12
    assert float((g * steepest).sum()) == pytest.approx(dual, rel=1e-12)


@pytest.mark.parametrize("name", ["L1", "L2", "Linf"])
@EXAMPLES
@given(v=rows, u=rows)
def test_subgradient_supports_the_norm(name, v, u):
    """‖u‖ ≥ ‖v‖ + ⟨subgradient, u − v⟩ for every u."""
    d = min(v.shape[1], u.shape[1])
    v, u = v[:1, :d], u[:1, :d]
    slope = norm_for(name, v).subgradient(torch.from_numpy(v)).numpy()
    bound = operators.size(v[0], name) + float((slope * (u - v)).sum())
    assert operators.size(u[0], name) >= bound - 1e-9 * max(1, abs(bound))


@EVERY_NORM
def test_subgradient_of_nothing_is_zero(name):
    v = torch.zeros(2, 5)
    assert torch.equal(norm_for(name, v).subgradient(v), v)


@EVERY_NORM
def test_boundary_of_a_linear_margin_is_where_it_vanishes(name):
    """Wide of the box the first-order estimate is exact for one half-space; ℓ0 knows the box."""
    rng = np.random.default_rng(3)
    g = torch.from_numpy(rng.normal(size=(6, 30)))
    x = torch.from_numpy(rng.uniform(0.4, 0.6, (6, 30)))
    gap = torch.from_numpy(rng.uniform(0.5, 5, 6) if name == "L0" else rng.uniform(0.01, 0.1, 6))
    exact = []
    for a, m, p in zip(g.numpy(), gap.numpy(), x.numpy(), strict=True):
        exact.append(halfspace_minimum(a, m - a @ p, p, name))
    np.testing.assert_allclose(norm_for(name, x).boundary(gap, g, x), exact, rtol=1e-9)


@EVERY_NORM
def test_boundary_without_gradient_is_as_far_as_the_box_goes(name):
    x = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0] = 0.5
    norm = norm_for(name, x)
    farthest = norm.size(torch.where(x > 0.5, x, 1 - x))
    assert torch.equal(norm.largest(x), farthest)
    one = torch.ones(4, dtype=x.dtype)
    assert torch.equal(norm.boundary(one, torch.zeros_like(x), x), farthest)


# --------------------------------------------------------------------------------- projections


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=shares)
def test_projection_is_the_nearest_point_of_the_ball(name, dtype, v, share):
    v, radius, v64, radius64 = as_tensors(v, radii(v, share, name), dtype)
    u = norm_for(name, v).project(v, radius).double().numpy()
    expected = []
    for row, r in zip(v64, radius64, strict=True):
        expected.append(operators.project(row, r, name))
    expected = np.array(expected)
    scale = np.abs(v64).max(1, keepdims=True)
    slack = PRECISION[dtype] * scale
    if name == "L0":  # of entries in a ratio of 1 + 2^-12 any is as good
        slack += 3e-4 * np.abs(v64).max(1, keepdims=True) * v64.shape[1]
        far, least = ((u - v64) ** 2).sum(1), ((expected - v64) ** 2).sum(1)
        assert (far <= least * (1 + 1e-3) + 1e-9 * scale[:, 0] ** 2).all()
    else:
        assert (np.abs(u - expected) <= slack).all()
    for row, r, allowed in zip(u, radius64, slack[:, 0], strict=True):
        assert operators.size(row, name) <= r + (0 if name == "L0" else len(row) * allowed)


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=st.floats(1.001, 3))
def test_projection_leaves_rows_inside_untouched(name, dtype, v, share):
    v, radius, *_ = as_tensors(v, radii(v, share, name) + (1 if name == "L0" else 1e-30), dtype)
    assert torch.equal(norm_for(name, v).project(v, radius), v)
    assert torch.equal(norm_for(name, v).project(v, torch.full_like(radius, torch.inf)), v)


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=shares)
def test_projection_twice_is_projection_once(name, dtype, v, share):
    v, radius, v64, _ = as_tensors(v, radii(v, share, name), dtype)
    once = norm_for(name, v).project(v, radius)
    twice = norm_for(name, v).project(once.clone(), radius)
    slack = PRECISION[dtype] * np.abs(v64).max(1, keepdims=True)
    assert ((twice - once).abs().double().numpy() <= slack).all()


@EVERY_NORM
def test_projection_onto_nothing_is_zero(name):
    v = torch.from_numpy(rows_of(0, 4, 9, "dense", 1.0))
    nothing = torch.zeros(4, dtype=v.dtype)
    torch.testing.assert_close(norm_for(name, v).project(v, nothing), torch.zeros_like(v))


def test_l0_projection_keeps_the_first_of_equal_entries():
    v = torch.tensor(
        [[1.0, -2, 2, -2, 1, 1], [3, 3, 3, 3, 3, 3], [0, 0, 1, 0, 0, 0], [-1, 1, 0, 0, 0, -1]]
    )
    kept = norm_for("L0", v).project(v, torch.tensor([4.0, 2, 3, 1]))
    expected = torch.tensor(
        [[1.0, -2, 2, -2, 0, 0], [3, 3, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [-1, 0, 0, 0, 0, 0]]
    )
    assert torch.equal(kept, expected)


@DTYPES
@EXAMPLES
@given(v=rows, share=shares, seed=st.integers(0, 1000))
def test_l1_projection_into_ball_and_box_is_the_nearest_point(dtype, v, share, seed):
    """Nearest for entries of at most 2, inside for all."""
    moderate = np.abs(v).max() <= 2 and (share == 0 or share > 0.3)
    x = np.random.default_rng(seed).random(v.shape)
    held = np.minimum(np.abs(v), np.where(v > 0, 1 - x, x)).sum(1)
    x = torch.tensor(x, dtype=dtype)
    v, radius, v64, radius64 = as_tensors(v, held * share, dtype)
    u = norm_for("L1", v).project_in_box(v, radius, x)
    slack = PRECISION[dtype] * np.maximum(np.abs(v64).max(1, keepdims=True), 1)
    point = (x + u).double().numpy()
    assert ((point >= -slack) & (point <= 1 + slack)).all()
    cases = zip(v64, radius64, x.double().numpy(), u.double().numpy(), slack[:, 0], strict=True)
    for row, r, around, got, allowed in cases:
        assert np.abs(got).sum() <= r + len(row) * allowed
        if moderate:
            nearest = operators.project_in_box(row, r, around)
            least, far = np.square(nearest - row).sum(), np.square(got - row).sum()
            assert far <= least * (1 + 1e-3) + len(row) * allowed


def test_l1_projection_into_ball_and_box_is_not_one_after_the_other():
    v = torch.tensor([[3.0, 2.0]], dtype=torch.float64)
    x = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    exact = norm_for("L1", v).project_in_box(v, torch.tensor([0.8], dtype=torch.float64), x)
    torch.testing.assert_close(exact, torch.tensor([[0.1, 0.7]], dtype=torch.float64))


@EVERY_NORM
def test_projection_into_ball_and_box_is_in_both(name):
    v = torch.from_numpy(rows_of(1, 8, 30, "dense", 1.0))
    x = torch.from_numpy(np.random.default_rng(2).random(v.shape))
    norm = norm_for(name, v)
    radius = (norm.size(v) / 3).floor() if norm.counts else norm.size(v) / 3
    u = norm.project_in_box(v, radius, x)
    assert ((x + u >= -1e-12) & (x + u <= 1 + 1e-12)).all()
    assert (norm.size(u) <= radius * (1 + 1e-9)).all()


# ------------------------------------------------------------------------------ proximal steps


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=st.floats(0.001, 1.3))
def test_prox_against_float64(name, dtype, v, share):
    """ℓ1 and ℓ2 in closed form, ℓ∞ by Moreau's identity, ℓ_{2/3} by brute force."""
    scale = np.abs(v).max(1)
    if name == "L0":
        weight = share * scale ** (4 / 3)
    else:
        weight = share * np.maximum(radii(v, 1, {"Linf": "L1"}.get(name, name)), 1e-9)
    v, weight, v64, weight64 = as_tensors(v, weight, dtype)
    u = norm_for(name, v).prox(v.clone(), weight).double().numpy()
    assert np.isfinite(u).all()
    for result, row, w in zip(u, v64, weight64, strict=True):
        got = result
        if name == "L0":
            cut = (2 / 3) * (24 * w**3) ** 0.25
            close = np.abs(np.abs(row) - cut) < 1e-5 * np.abs(row)  # 0 and u are equally good
            expected = np.array([operators.prox_two_thirds(entry, w) for entry in row])
            got, expected = got[~close], expected[~close]
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
    u = norm_for(name, v).prox(torch.tensor(v), torch.tensor(weight)).numpy()
    rng = np.random.default_rng(seed)
    for got, row, w in zip(u, v, weight, strict=True):
        least = operators.prox_value(got, row, w, name)
        for step in (1e-4, 1e-2, 1):
            noise = step * rng.normal(size=row.shape) * np.abs(row).max()
            for other in (got + noise, got * (1 - step), row * (1 - step), row):
                value = operators.prox_value(other, row, w, name)
                assert least <= value * (1 + 1e-9) + 1e-18


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows)
def test_prox_of_weight_zero_is_the_identity(name, dtype, v):
    v, weight, *_ = as_tensors(v, np.zeros(len(v)), dtype)
    rtol = 1e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(norm_for(name, v).prox(v.clone(), weight), v, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", ["L2", "Linf"])
@EXAMPLES
@given(seed=st.integers(0, 10_000), share=st.floats(0.01, 1.2), spread=st.floats(0, 6))
def test_prox_in_metric_is_exact(name, seed, share, spread):
    """No point that many proximal gradient steps reach is better, nor any near the result."""
    rng = np.random.default_rng(seed)
    anchor = torch.from_numpy(rng.normal(size=(4, 20)))
    metric = torch.from_numpy(10 ** (-spread * rng.random((4, 20))))
    metric /= metric.amax(1, keepdim=True)
    norm = norm_for(name, anchor)
    weight = share * norm.dual_size(metric * anchor)

    def value(z):
        return weight * norm.size(z) + 0.5 * (metric * (z - anchor) ** 2).sum(1)

    best = norm.prox_in_metric(anchor, weight, metric, steps=5)
    iterated = Norm.prox_in_metric(norm, anchor, weight, metric, steps=300)
    assert (value(best) <= value(iterated) * (1 + 1e-6)).all()
    for step in (1e-3, 1e-1):
        other = best + step * torch.from_numpy(rng.normal(size=best.shape))
        assert (value(best) <= value(other) * (1 + 1e-6)).all()


@pytest.mark.parametrize("name", ["L0", "L1"])
def test_prox_in_metric_of_sparse_norms_takes_that_many_steps(name):
    rng = np.random.default_rng(0)
    anchor = torch.from_numpy(rng.normal(size=(4, 20)))
    metric = torch.from_numpy(rng.random((4, 20)))
    norm, weight = norm_for(name, anchor), torch.full((4,), 0.02, dtype=anchor.dtype)
    z = norm.prox(anchor, weight)
    for steps in (1, 2, 3):
        got = norm.prox_in_metric(anchor, weight, metric, steps=steps)
        torch.testing.assert_close(got, z)
        z = norm.prox(z - metric * (z - anchor), weight)


@settings(EXAMPLES, max_examples=200)
@given(exponent=st.floats(-6, 1), ratio=st.floats(0.5, 1e4), sign=st.sampled_from([-1, 1]))
@example(exponent=-3, ratio=1.0, sign=1)
@example(exponent=-4, ratio=300.0, sign=-1)
def test_prox_two_thirds_in_float32(exponent, ratio, sign):
    """`ratio` is |v| over the threshold; the published form turns some of these into NaN."""
    weight = torch.tensor([10**exponent], dtype=torch.float32)
    w = float(weight.double())
    threshold = (2 / 3) * (24 * w**3) ** 0.25
    v = torch.tensor([[sign * ratio * threshold]], dtype=torch.float32)
    assume(abs(abs(float(v)) / threshold - 1) > 1e-5)
    got = float(prox_two_thirds(v, weight).double())
    expected = operators.prox_two_thirds(float(v.double()), w)
    assert got == pytest.approx(expected, abs=2e-6 * abs(float(v)))
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


# ------------------------------------------------------------------------------- random points


def drawn(name, radius, features, ids=IDS, seed=43):
    norm = make_norm(name, (features,))
    reach = torch.full((len(ids),), float(radius), dtype=torch.float64)
    return norm.random_in_ball(reach, draws(ids, seed)).numpy()


@EVERY_NORM
def test_random_points_depend_on_seed_and_sample_alone(name):
    radius = torch.linspace(1, 3, 50)
    norm = make_norm(name, (12,))
    together = norm.random_in_ball(radius, draws(IDS[:50]))
    order = np.random.default_rng(1).permutation(50)
    shuffled = norm.random_in_ball(radius[order], draws(IDS[:50][order]))
    torch.testing.assert_close(shuffled, together[order], rtol=1e-12, atol=0)
    other = norm.random_in_ball(radius, draws(IDS[:50], seed=44))
    assert (other != together).any(1).all()


@EVERY_NORM
@pytest.mark.parametrize("features", [2, 30])
def test_random_points_lie_in_the_ball(name, features):
    v = torch.from_numpy(drawn(name, 2.0, features))
    assert make_norm(name, (features,)).size(v).max() <= 2 * (1 + 1e-12)


@pytest.mark.parametrize("name", ["L1", "L2", "Linf"])
@pytest.mark.parametrize("features", [1, 2, 30])
def test_random_radii_follow_the_volume_of_the_ball(name, features):
    """A point is within share s of the radius with probability s^d: the mean is d/(d + 1)."""
    v = torch.from_numpy(drawn(name, 3.0, features))
    share = make_norm(name, (features,)).size(v).numpy() / 3
    assert share.mean() == pytest.approx(features / (features + 1), abs=0.01)
    assert kstest(share**features, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "mean"), [("L1", 1 / 3), ("L2", 4 / (3 * math.pi)), ("Linf", 1 / 2)]
)
def test_random_directions_are_uniform(name, mean):
    """In two dimensions: quadrants and axes alike, and the mean |v₁| of the ball's shape."""
    v = drawn(name, 1.0, 2)
    quadrant = (v[:, 0] > 0) + 2 * (v[:, 1] > 0)
    np.testing.assert_allclose(np.bincount(quadrant, minlength=4) / len(v), 0.25, atol=0.015)
    np.testing.assert_allclose(np.abs(v).mean(0), mean, atol=0.01)
    assert (np.abs(v[:, 0]) > np.abs(v[:, 1])).mean() == pytest.approx(0.5, abs=0.015)


def test_random_points_of_l0_choose_features_uniformly():
    v = drawn("L0", 2.3, 10)
    assert (np.count_nonzero(v, axis=1) == 3).all()
    np.testing.assert_allclose((v != 0).mean(0), 0.3, atol=0.015)
    pairs = (v[:, 0] != 0) & (v[:, 1] != 0)
    assert pairs.mean() == pytest.approx(3 / 10 * 2 / 9, abs=0.01)
    assert kstest(v[v != 0], "uniform", args=(-1, 2)).pvalue > 1e-3


@EVERY_NORM
def test_random_starts_lie_in_the_box_and_not_beyond_the_radius(name):
    norm = make_norm(name, (20,))
    x = torch.rand(200, 20, generator=torch.Generator().manual_seed(0))
    radius = torch.linspace(0.1, 8, 200)
    start = norm.random_start(x, radius, draws(IDS[:200]))
    assert start.dtype == x.dtype
    assert start.min() >= 0
    assert start.max() <= 1
    reach = radius.ceil() if norm.counts else radius * (1 + 1e-5)
    assert (norm.distance(start, x) <= reach).all()
    assert (norm.distance(start, x) > 0).all()


def test_random_starts_of_l0_set_features_anywhere_in_the_box():
    x = torch.full((20_000, 4), 0.25)
    start = make_norm("L0", (4,)).random_start(x, torch.full((20_000,), 2.0), draws())
    changed = start != x
    assert (changed.sum(1) == 2).all()
    assert kstest(start[changed].numpy(), "uniform").pvalue > 1e-3


# --------------------------------------------------------------------- rows, waits, operations

METHODS = {
    "size": lambda n, v, _r, _x: n.size(v),
    "dual_size": lambda n, v, _r, _x: n.dual_size(v),
    "project": lambda n, v, r, _x: n.project(v, n.size(v) * r),
    "project_in_box": lambda n, v, r, x: n.project_in_box(v, n.size(v) * r, x),
    "prox": lambda n, v, r, _x: n.prox(v, r),
    "prox_in_metric": lambda n, v, r, x: n.prox_in_metric(v, r, x, steps=3),
    "boundary": lambda n, v, r, x: n.boundary(r, v, x),
    "subgradient": lambda n, v, _r, _x: n.subgradient(v),
    "steepest": lambda n, v, _r, _x: n.steepest(v),
    "move_onto_hyperplane": lambda n, v, r, x: n.move_onto_hyperplane(x, v, r),
    "random_start": lambda n, _v, r, x: n.random_start(x, 4 * r, draws(IDS[: len(x)])),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


@EVERY_NORM
@EVERY_METHOD
@settings(EXAMPLES, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 70),
    kinds=st.tuples(*[st.sampled_from(["dense", "sparse", "tied", "peaked"])] * 2),
)
def test_rows_do_not_depend_on_their_batch_mates(name, method, seed, d, kinds):
    """The same rows among other rows give the same bits."""
    rng = np.random.default_rng(seed)
    own, others = rows_of(seed, 3, d, kinds[0], 1.0), rows_of(seed + 1, 3, d, kinds[1], 1.0)
    stay = np.array([True, False, True])
    mixed = np.where(stay[:, None], own, others)
    x = torch.tensor(rng.random((3, d)), dtype=torch.float32)
    r = torch.tensor(rng.random(3), dtype=torch.float32)
    results = []
    for v in (own, mixed):
        tensor = torch.tensor(v, dtype=torch.float32)
        results.append(METHODS[method](make_norm(name, (d,)), tensor, r, x)[stay])
    assert torch.equal(*results)


MOST = {"project": 200, "project_in_box": 210, "move_onto_hyperplane": 210, "boundary": 25}
MOST |= {"prox": 110, "prox_in_metric": 165, "random_start": 290}


@EVERY_NORM
@EVERY_METHOD
def test_nothing_waits_for_the_device_and_operations_are_few(name, method):
    norm, v = make_norm(name, (30,)), torch.from_numpy(rows_of(0, 4, 30, "dense", 1.0))
    x = torch.from_numpy(np.random.default_rng(0).random((4, 30)))
    r = torch.full((4,), 0.4, dtype=v.dtype)
    keys = draws(IDS[:4])
    with count_device_work() as work:
        if method == "random_start":
            norm.random_start(x, 4 * r, keys)
        else:
            METHODS[method](norm, v, r, x)
    assert work.waits == 0, work.where
    assert work.operations <= MOST.get(method, 20), work.names


# -------------------------------------------------------------------- defaults of a norm of one's
# own


class Weighted(Norm):
    """ℓ2 in which the first half of the features counts four times: what must be defined, alone."""

    name = "Weighted"

    def _weights(self, v):
        return torch.where(torch.arange(self.features) < self.features // 2, 2.0, 1.0).to(v)

    def size(self, v):
        return (v * self._weights(v)).norm(dim=1)

    def dual_size(self, g):
        return (g / self._weights(g)).norm(dim=1)

    def project(self, v, radius):
        return v * (radius / self.size(v)).clamp(max=1)[:, None]

    def prox(self, v, weight):
        return v * (1 - weight / self.size(v)).clamp(min=0)[:, None]


def test_defaults_of_a_norm_are_consistent():
    norm, x = Weighted((40,)), torch.rand(30, 40, generator=torch.Generator().manual_seed(0))
    radius = torch.linspace(0.1, 2, 30)
    start = norm.random_start(x, radius, draws(IDS[:30]))
    assert ((start >= 0) & (start <= 1)).all()
    assert (norm.distance(start, x) <= radius * (1 + 1e-5)).all()
    assert (norm.distance(start, x) > 0).all()
    u = norm.project_in_box(torch.randn_like(x), radius, x)
    assert ((x + u >= -1e-6) & (x + u <= 1 + 1e-6)).all()
    assert (norm.size(u) <= radius * (1 + 1e-5)).all()
    slope = torch.randn(30, 40, generator=torch.Generator().manual_seed(1))
    slope /= slope.norm(dim=1, keepdim=True)
    moves = norm.move_onto_hyperplane(x, slope, 0.1 * radius)
    torch.testing.assert_close((slope * moves).sum(1), -0.1 * radius)
    assert (norm.boundary(radius, slope, x) <= norm.largest(x)).all()
    assert norm.steepest(slope).norm(dim=1).tolist() == pytest.approx([1.0] * 30)
