"""What each run adds to a frontier: whether a new attack matters, and to how many samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from advfrontier.frontier.curve import check_limit, epsilon_min
from advfrontier.frontier.measure import as_table


@dataclass(frozen=True)
class Contribution:
    """What one run adds, over the samples that are classified correctly and were broken."""

    run: str
    wins: int  # samples on which it is on the frontier; equal distances count for each run that has them
    alone: int  # samples on which no other run comes as close
    loss: float  # how much the frontier's AOI, 1 by definition, falls without it


def contributions(distances: Mapping[str, ArrayLike], *, E: float | None = None) -> tuple[Contribution, ...]:
    """Leave-one-out and winner counts of every run, in the order given; E is ε_min of the frontier unless given."""
    names, table = as_table(distances)
    frontier = table.min(axis=0)
    limit = epsilon_min(frontier).value if E is None else check_limit(E)
    counted = (frontier > 0) & np.isfinite(frontier)
    d, best = table[:, counted], frontier[counted]
    second = np.partition(d, 1, axis=0)[1] if len(names) > 1 else np.full(best.size, np.inf)
    on_frontier = d == best
    sole = on_frontier & (second > best)
    reach = np.maximum(limit - best, 0).sum()
    lost = np.maximum(limit - best, 0) - np.maximum(limit - second, 0)
    return tuple(
        Contribution(
            name, int(on_frontier[i].sum()), int(sole[i].sum()), float(lost[sole[i]].sum() / reach) if reach else 0.0
        )
        for i, name in enumerate(names)
    )
