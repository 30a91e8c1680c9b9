"""Rows, radii and weights to try the operators of norms on."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from support import operators

from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import make_norm

EVERY_NORM = pytest.mark.parametrize("name", NORMS)
PRECISION = {torch.float32: 2e-6, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", PRECISION, ids=["float32", "float64"])


def rows_of(seed, n, d, kind, scale):
    """Rows to try operators on: dense, sparse, with ties, or with one entry far above the
    others.
    """
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


def norm_for(name, v):
    """Return the norm for rows like these."""
    return make_norm(name, tuple(v.shape[1:]))


def radii(v, share, name):
    sizes = np.array([operators.size(row, name) for row in v], dtype=float)
    return np.floor(sizes * share) if name == "L0" else sizes * share
