"""Proximal steps against slow references, and against what they minimise."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from norm_rows import DTYPES, EVERY_NORM, PRECISION, as_tensors, radii, rows
from support import operators
from support.examples import EXAMPLES

from advfrontier.threat.norms import get_norm, prox_two_thirds


@EVERY_NORM
@DTYPES
@EXAMPLES
@given(v=rows, share=st.floats(0.001, 1.3))
def test_prox_against_float64(name, dtype, v, share):
    """ℓ1 and ℓ2 in closed form, ℓ∞ by Moreau's identity, ℓ_{2/3} by brute force."""
    scale = np.abs(v).max(1)
    weight = share * (
        scale ** (4 / 3)
        if name == "L0"
        else np.maximum(radii(v, 1, {"Linf": "L1"}.get(name, name)), 1e-9)
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
        get_norm(name).prox(v.clone(), weight),
        v,
        rtol=1e-6 if dtype == torch.float32 else 1e-14,
        atol=0,
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
    assert got == pytest.approx(
        operators.prox_two_thirds(float(v.double()), w), abs=2e-6 * abs(float(v))
    )
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
