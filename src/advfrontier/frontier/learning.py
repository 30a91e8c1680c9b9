"""Learning a race from traces: the order in which runs are tried, and how much nearer each attack is likely to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.race import simulate
from advfrontier.pool import MAX_QUERIES, QUANTILES, SLICE, TIERS, Race, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.frontier.trajectories import Trajectories

FIRST, SHARE = 5, 0.1  # runs tried at first, and the share of later queries for trying more: chosen by leaving one out
_PROBED = 4  # slices after which a run's distances say whether it is worth trying
_WORST = 10.0  # a run that found nothing, or less than this many times the frontier, counts as this


def learn_race(traces: Sequence[Trajectories], *, name: str = "race", total: int = TIERS[-1]) -> Race:
    """A race for models like these: traces of one pool, each model counting the same.

    Args:
        traces: All runs of a pool to their ends, on several models in one norm.
        name: What the race is called.
        total: Queries per sample.
    """
    if not traces or len({trace.norm for trace in traces}) != 1:
        raise FrontierError("a race is learned from traces in one norm: expected at least one, all in the same norm")
    runs = [run for run in traces[0].runs if all(run in trace.runs for trace in traces)]
    tables = [_excess(trace, runs) for trace in traces]
    weights = np.concatenate([np.full(table.shape[2], 1 / table.shape[2]) for table in tables]) / len(tables)
    ratios = _ratios(runs, tables)
    order = [runs[k] for k in _cover(np.concatenate(tables, axis=2)[:, _PROBED], weights)]
    total = min(total, MAX_QUERIES * len(order))
    return Race(name, traces[0].norm, total, tuple(order), ratios, FIRST, SHARE)


def race_excess(traces: Trajectories, race: Race, budgets: Sequence[int]) -> dict[int, float]:
    """By how much the distances of a race exceed the frontier of the traced runs on average, at these budgets."""
    table = _excess(traces, race.order)
    found = simulate(table, race, max(budgets) // SLICE)
    return {budget: float(found.at(budget).mean()) - 1 for budget in budgets}


def _excess(traces: Trajectories, runs: Sequence[str]) -> NDArray[np.float64]:
    """(run, slice, sample): distances over the frontier of all traced runs, of the samples that were attacked."""
    thin = traces.select(runs=runs).thin(range(SLICE, MAX_QUERIES + 1, SLICE)).distances
    frontier = traces.frontier()
    attacked = (frontier > 0) & (frontier < np.inf)
    return np.minimum(thin[:, :, attacked] / frontier[attacked], _WORST)


def _ratios(runs: Sequence[str], tables: Sequence[NDArray[np.float64]]) -> dict[str, tuple[tuple[float, ...], ...]]:
    """Attack → after each slice but the last, quantiles of how much nearer its runs end, over all samples."""
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    attacks = [Run.parse(run).attack for run in runs]
    learned = {}
    for attack in dict.fromkeys(attacks):
        own = [k for k, name in enumerate(attacks) if name == attack]
        falls = np.concatenate([table[own, -1:] / table[own, :-1] for table in tables], axis=2)
        falls = falls.swapaxes(0, 1).reshape(falls.shape[1], -1)
        slices = np.quantile(falls, quantiles, axis=1).T
        learned[attack] = tuple(tuple(float(f"{ratio:.4g}") for ratio in each) for each in slices)
    return learned


def _cover(distances: NDArray[np.float64], weights: NDArray[np.float64]) -> list[int]:
    """All runs, each next one that which lowers the mean of the nearest distances most."""
    nearest, left, order = np.full(distances.shape[1], _WORST), list(range(len(distances))), []
    while left:
        means = np.minimum(nearest, distances[left]) @ weights
        best = left.pop(int(means.argmin()))
        order.append(best)
        nearest = np.minimum(nearest, distances[best])
    return order
