"""Races read off traces: runs are independent, so what a race would find is known once all its runs were traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.pool import MAX_QUERIES, SLICE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from advfrontier.frontier.trajectories import Trajectories
    from advfrontier.pool import Race


@dataclass(frozen=True, eq=False)
class RaceOutcome:
    """What a race finds, and where its queries go."""

    distances: NDArray[np.float64]  # (slice, sample): after 100, 200, … queries per sample
    plan: NDArray[np.intp]  # (slice, sample): the run, by its place in the order, that each slice goes to

    def at(self, budget: int) -> NDArray[np.float64]:
        """The distances after so many queries per sample."""
        return np.asarray(self.distances[budget // SLICE - 1])


def race(traces: Trajectories, policy: Race, budget: int | None = None) -> RaceOutcome:
    """What `policy` finds on traced samples with `budget` queries each, by default all of its own.

    Samples that are misclassified anyway are found at distance 0 by every run, and take part like all others. What
    polishing finds is in no trace: its queries are spent here, and bring nothing.
    """
    budget = policy.total if budget is None else budget
    if budget % SLICE or not 0 < budget <= MAX_QUERIES * len(policy.runs):
        raise FrontierError(f"cannot read a race off traces after {budget} queries: expected a multiple of {SLICE}")
    if traces.queries[-1] < MAX_QUERIES or (np.diff(traces.queries) > SLICE).any():
        raise FrontierError(f"these traces end at {traces.queries[-1]} queries: expected all {MAX_QUERIES}")
    chosen = traces.select(runs=policy.runs).thin(range(SLICE, MAX_QUERIES + 1, SLICE)).distances
    return simulate(chosen, policy, budget // SLICE)


def simulate(distances: NDArray[np.float64], policy: Race, slices: int) -> RaceOutcome:
    """A race over distances (run in the policy's order, slice, sample)."""
    runs, _, samples = distances.shape
    spent = np.zeros((samples, len(policy.names)), dtype=np.int64)
    found = np.full((samples, len(policy.names)), np.inf)
    best, rows = np.full(samples, np.inf), np.arange(samples)
    reached, plan = np.empty((slices, samples)), np.empty((slices, samples), dtype=np.intp)
    for k in range(slices):
        place, before = policy.choice(k * SLICE, spent, found)
        spent[rows, place] += SLICE
        if place[0] < runs:
            now = distances[place, before // SLICE, rows]
            found[rows, place] = now
            best = np.minimum(best, now)
        reached[k], plan[k] = best, place
    return RaceOutcome(reached, plan)
