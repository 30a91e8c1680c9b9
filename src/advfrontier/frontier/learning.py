"""Learning a race from traces: the order in which runs are tried, and how much nearer each attack is likely to end."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.race import simulate
from advfrontier.pool import MAX_QUERIES, QUANTILES, SLICE, TIERS, Race, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.frontier.trajectories import Trajectories

_PROBED = (2, 3, 4)  # slices after which a run's distances may say whether it is worth trying
_FIRST, _SHARE, _FAMILY = (5, 8), (0.1, 0.2, 0.3), (0.0, 0.5, 0.75)  # what the constants are chosen from
_WORST = 10.0  # a run that found nothing, or less than this many times the frontier, counts as this


def learn_race(traces: Sequence[Trajectories], *, name: str = "race", total: int = TIERS[-1]) -> Race:
    """A race for models like these: traces of one pool, each model counting the same.

    The order covers the samples of all models by what runs reach early. How early, and how much is tried, is chosen by
    leaving out one model at a time and racing on it with what the others teach.

    Args:
        traces: All runs of a pool to their ends, on several models in one norm.
        name: What the race is called.
        total: Queries per sample.
    """
    if not traces or len({trace.norm for trace in traces}) != 1:
        raise FrontierError("a race is learned from traces in one norm: expected at least one, all in the same norm")
    runs = [run for run in traces[0].runs if all(run in trace.runs for trace in traces)]
    norm, tables = traces[0].norm, [_excess(trace, runs) for trace in traces]
    constants = _Constants(_PROBED[1], _FIRST[1], _SHARE[1], _FAMILY[1])
    if len(tables) > 1:
        teachers = [tables[:k] + tables[k + 1 :] for k in range(len(tables))]
        lessons = [_Lesson(runs, norm, others) for others in teachers]
        choices = [_Constants(*each) for each in product(_PROBED, _FIRST, _SHARE, _FAMILY)]
        constants = min(choices, key=lambda each: _judged(each, lessons, tables))
    return _Lesson(runs, norm, tables).race(constants, name, min(total, MAX_QUERIES * len(runs)))


class _Constants(NamedTuple):
    probed: int
    first: int
    share: float
    family: float


class _Lesson:
    """What some models teach: the order for each number of slices, and the ratios."""

    def __init__(self, runs: Sequence[str], norm: str, tables: Sequence[NDArray[np.float64]]) -> None:
        together = np.concatenate(tables, axis=2)
        weights = np.concatenate([np.full(table.shape[2], 1 / table.shape[2]) for table in tables]) / len(tables)
        self.runs, self.norm, self.ratios = runs, norm, _ratios(runs, together)
        self.orders = {probed: _cover(together[:, probed], weights) for probed in _PROBED}

    def race(self, constants: _Constants, name: str, total: int) -> Race:
        order = tuple(self.runs[k] for k in self.orders[constants.probed])
        return Race(name, self.norm, total, order, self.ratios, constants.first, constants.share, constants.family)


def _judged(constants: _Constants, lessons: Sequence[_Lesson], tables: Sequence[NDArray[np.float64]]) -> float:
    """The mean excess at the first two tiers, over the models, of races that the others taught."""
    excess = 0.0
    for lesson, table in zip(lessons, tables, strict=True):
        budgets = [min(tier, MAX_QUERIES * len(lesson.runs)) for tier in TIERS[:2]]
        race = lesson.race(constants, "race", budgets[-1])
        found = simulate(table[lesson.orders[constants.probed]], race, budgets[-1] // SLICE)
        excess += sum(float(found.at(budget).mean()) - 1 for budget in budgets) / len(tables)
    return excess


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


def _ratios(runs: Sequence[str], table: NDArray[np.float64]) -> dict[str, tuple[tuple[float, ...], ...]]:
    """Attack → after each slice but the last, quantiles of how much nearer its runs end, over all samples."""
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    attacks = np.array([Run.parse(run).attack for run in runs])
    learned = {}
    for attack in dict.fromkeys(attacks.tolist()):
        own = table[attacks == attack]
        falls = (own[:, -1:] / own[:, :-1]).swapaxes(0, 1).reshape(own.shape[1] - 1, -1)
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
