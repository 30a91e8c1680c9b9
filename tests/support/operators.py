"""Slow and plainly right versions of the norms' operators, in float64 NumPy, one row at a time."""

from __future__ import annotations

import numpy as np


def size(v, norm):
    """‖v‖."""
    return {
        "L0": np.count_nonzero(v),
        "L1": np.abs(v).sum(),
        "L2": np.sqrt((v * v).sum()),
        "Linf": np.abs(v).max(),
    }[norm]


def project(v, radius, norm):
    """The nearest point of the ball; in ℓ0, among equally near ones, the one that keeps the first
    of equal entries.
    """
    if norm == "L0":
        kept = np.argsort(-np.abs(v), kind="stable")[: int(max(radius, 0))]
        result = np.zeros_like(v)
        result[kept] = v[kept]
        return result
    if size(v, norm) <= radius:
        return v.copy()
    if norm == "L1":
        return soft(v, sorted_level(np.abs(v), radius))
    if norm == "L2":
        return v * radius / size(v, norm)
    return np.clip(v, -radius, radius)


def project_in_box(v, radius, x):
    """Onto {‖u‖₁ ≤ radius, x + u in [0, 1]}: bisection on the Lagrange multiplier of the ball."""
    room = np.where(v > 0, 1 - x, x)

    def at(level):
        return np.minimum(np.maximum(np.abs(v) - level, 0), room)

    low, high = 0.0, float(np.abs(v).max())
    if at(low).sum() <= radius:
        return np.sign(v) * at(low)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).sum() > radius else (low, middle)
    return np.sign(v) * at(high)


def soft(v, level):
    """sign(v)·max(|v| − level, 0)."""
    return np.sign(v) * np.maximum(np.abs(v) - level, 0)


def sorted_level(heights, total):
    """The level above which exactly `total` lies, by sorting; 0 where the row holds no more."""
    if heights.sum() <= total:
        return 0.0
    ranked = np.sort(heights)[::-1]
    levels = (ranked.cumsum() - total) / np.arange(1, len(ranked) + 1)
    return (
        float(levels[np.nonzero(ranked > levels)[0].max()])
        if (ranked > levels).any()
        else float(ranked[0])
    )


def prox_value(u, v, weight, norm):
    """What the proximal step minimises; in ℓ0 the ℓ_{2/3} surrogate."""
    penalty = (np.abs(u) ** (2 / 3)).sum() if norm == "L0" else size(u, norm)
    return ((u - v) ** 2).sum() / 2 + weight * penalty


def prox_two_thirds(v, weight):
    """argmin ½(u − v)² + weight·|u|^{2/3} of one number: a fine grid, then bisection on the
    derivative.
    """
    a = abs(v)
    if a == 0 or weight == 0:
        return float(v)

    def value(u):
        return (u - a) ** 2 / 2 + weight * u ** (2 / 3)

    grid = np.linspace(0, a, 20_001)
    best = int(value(grid).argmin())
    if best == 0:
        return 0.0
    low, high = grid[best - 1], grid[min(best + 1, len(grid) - 1)]
    for _ in range(100):  # the derivative u − a + ⅔·weight·u^{−1/3} rises through 0 at the minimum
        middle = (low + high) / 2
        rising = middle - a + 2 / 3 * weight * middle ** (-1 / 3) > 0
        low, high = (low, middle) if rising else (middle, high)
    u = (low + high) / 2
    return float(np.sign(v) * u) if value(u) < value(0.0) else 0.0
