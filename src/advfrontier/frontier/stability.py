"""Rank stability: how the order of the models changes with the ε at which robust accuracy is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from advfrontier.errors import FrontierError
from advfrontier.frontier.measure import as_table, check_epsilon


@dataclass(frozen=True, eq=False)
class RankStability:
    """Ranks of the models at every ε, and how far each model moves."""

    models: tuple[str, ...]
    epsilons: NDArray[np.float64]
    accuracies: NDArray[np.float64]  # (model, ε)
    ranks: NDArray[np.int64]  # (model, ε), 1 = most robust; models with equal accuracy share the better rank
    moved: dict[str, int]  # positions between a model's best and worst rank, as far as ties leave no doubt


@dataclass(frozen=True)
class Reversal:
    """A pair whose order at the reference ε is reversed beyond it."""

    leader: str  # ahead at the reference ε
    overtaken_by: str
    epsilon: float  # the first ε where the other is strictly ahead
    lead: float  # the most robust accuracy by which it is ahead anywhere beyond


def rank_stability(distances: Mapping[str, ArrayLike], *, epsilons: ArrayLike | None = None) -> RankStability:
    """Rank the models at these ε, or at every ε where any curve drops, which misses nothing.

    Where curves are equal (all are 0 in the end) models share a rank. A move counts only if it does not depend on how
    such ties are broken: from the last place a model may hold at one ε to the first it may hold at another. Far out a
    rank is decided by single samples: the paper reads ranks at ten radii, which `baseline_radii` gives for the
    defence frontier.
    """
    names, table = as_table(distances)
    grid = np.unique(np.append(table[np.isfinite(table)], 0.0) if epsilons is None else check_epsilon(epsilons))
    if grid.size == 0 or not np.isfinite(grid).all():
        raise FrontierError("radii must be finite: expected at least one, such as [2 / 255, 4 / 255, 8 / 255]")
    robust = _robust(table, grid) / table.shape[1]
    return rank_accuracies(dict(zip(names, robust, strict=True)), epsilons=grid)


def rank_accuracies(accuracies: Mapping[str, ArrayLike], *, epsilons: ArrayLike) -> RankStability:
    """Rank models of which only the robust accuracy at rising radii is known, as of AutoAttack, and no distances."""
    grid = check_epsilon(epsilons)
    rows = [np.asarray(row, dtype=np.float64) for row in accuracies.values()]
    if not rows or grid.ndim != 1 or (np.diff(grid) <= 0).any() or any(row.shape != grid.shape for row in rows):
        raise FrontierError(
            f"{len(rows)} models at radii of shape {grid.shape}: expected at least one, each with an accuracy at every "
            "radius, in rising order"
        )
    names, table = tuple(accuracies), np.stack(rows)
    score = -np.round(table, 12)  # equal accuracies that were rounded differently stay equal
    first, last = (rankdata(score, method=tie, axis=0).astype(np.int64) for tie in ("min", "max"))
    moved = np.maximum(first.max(axis=1) - last.min(axis=1), 0)
    return RankStability(names, grid, table, first, dict(zip(names, moved.tolist(), strict=True)))


def reversals(distances: Mapping[str, ArrayLike], *, reference: float) -> tuple[Reversal, ...]:
    """The pairs whose curves cross beyond the reference ε, largest reversal first.

    A lead of one or two samples is chance: look for one that the curve's band does not cover.
    """
    names, table = as_table(distances)
    steps = np.unique(np.append(table[np.isfinite(table)], check_epsilon(reference)))
    later = steps[steps >= reference]
    robust = _robust(table, later)
    found = []
    for i, j in combinations(range(len(names)), 2):
        ahead, behind = (i, j) if robust[i, 0] > robust[j, 0] else (j, i)
        gap = (robust[behind] - robust[ahead]) / table.shape[1]
        if gap[0] < 0 and gap.max() > 0:
            found.append(Reversal(names[ahead], names[behind], float(later[int(np.argmax(gap > 0))]), float(gap.max())))
    return tuple(sorted(found, key=lambda reversal: (-reversal.lead, reversal.leader, reversal.overtaken_by)))


def _robust(table: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many samples of each model are robust at each ε: whole numbers, so that ties are exact."""
    return np.stack([row.size - np.searchsorted(np.sort(row), grid, side="right") for row in table])
