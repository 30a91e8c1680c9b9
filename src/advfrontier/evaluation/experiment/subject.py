"""One model in one norm, reduced from its trajectories to what the tables are made of: a few rows of distances.

Trajectories of a whole pool take a gigabyte for a dozen models. The tables need the frontier, what each tier found, and
the AOI along the way, so models are read one after the other and only this is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.optimality import aoi
from advfrontier.pool.ensemble import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.frontier.measure import Measure
    from advfrontier.frontier.trajectories import Trajectories
    from advfrontier.pool import Ensemble

SPLITS = ("train", "held-out")
_STEPS = 48  # budgets at which the AOI is read along the way


@dataclass(frozen=True)
class KnownPoints:
    """What an attack at fixed radii found: robust accuracy at each, and the queries it took per sample."""

    radii: tuple[float, ...]
    accuracies: tuple[float, ...]
    queries: tuple[float, ...]
    flags: tuple[str, ...] = ()

    def at(self, radius: float) -> tuple[float, float] | None:
        """Robust accuracy and queries at a radius it was run at; None at any other."""
        where = np.flatnonzero(np.isclose(self.radii, radius, rtol=1e-9, atol=0))
        return (self.accuracies[where[0]], self.queries[where[0]]) if where.size else None


@dataclass(frozen=True, eq=False)
class Subject:
    """What is kept of one model."""

    model: str
    data: str  # the data set: models are compared with those of the same
    split: str  # "train" or "held-out"
    samples: tuple[str, ...]
    frontier: NDArray[np.float64]  # d*: the least distance of the whole pool
    tiers: dict[int, NDArray[np.float64]]  # budget → what the allocated ensemble finds with it
    paper: dict[int, NDArray[np.float64]]  # the same of the paper's ensembles, where the pool holds all their runs
    growth: dict[int, float]  # queries → AOI of the allocated ensemble stopped there
    known: KnownPoints | None = None  # of the baseline
    doubts: tuple[str, ...] = ()  # why its distances may be too large

    @property
    def clean(self) -> float:
        """Accuracy on unperturbed samples."""
        return float((self.frontier > 0).mean())

    def aoi(self, distances: NDArray[np.float64]) -> Measure:
        """AOI against the model's own frontier."""
        return aoi(distances, self.frontier)

    def baseline_aoi(self) -> BaselineAOI | None:
        """AOI of the baseline, from the points that are known."""
        return None if self.known is None else baseline_aoi(self.known.radii, self.known.accuracies, self.frontier)

    def straight_aoi(self, distances: NDArray[np.float64]) -> float | None:
        """AOI of distances as if they were known like the baseline: at its radii only, with straight lines between."""
        if self.known is None:
            return None
        return baseline_aoi(self.known.radii, Curve.of(distances).at(self.known.radii), self.frontier).value


def reduce_traces(
    model: str,
    data: str,
    split: str,
    trajectories: Trajectories,
    ensembles: Mapping[int, Ensemble],
    *,
    paper: Mapping[int, Ensemble] | None = None,
    known: KnownPoints | None = None,
    doubts: Sequence[str] = (),
    samples: Sequence[str] | None = None,
) -> Subject:
    """Read off the trajectories what each budget's ensemble finds: its queries are prefixes of the traced runs.

    `samples` names them where content ids do not tell which are the same (models that want pictures cut differently).
    """
    if split not in SPLITS:
        raise FrontierError(f"{model} is in the split {split!r}: expected one of {', '.join(SPLITS)}")
    frontier = trajectories.frontier()
    last = ensembles[max(ensembles)]
    growth = {
        budget: aoi(trajectories.best(last.at(budget).queries), frontier).value
        for budget in growth_grid(tuple(ensembles))
    }
    fitting = {tier: ensemble for tier, ensemble in (paper or {}).items() if holds(trajectories, ensemble)}
    return Subject(
        model=model,
        data=data,
        split=split,
        samples=trajectories.samples if samples is None else tuple(samples),
        frontier=frontier,
        tiers={budget: trajectories.best(ensemble.queries) for budget, ensemble in ensembles.items()},
        paper={tier: trajectories.best(ensemble.queries) for tier, ensemble in fitting.items()},
        growth=growth,
        known=known,
        doubts=tuple(doubts),
    )


def holds(trajectories: Trajectories, ensemble: Ensemble) -> bool:
    """Whether every run of an ensemble was traced as far as it goes."""
    longest = int(trajectories.queries[-1])
    return all(run in trajectories.runs and queries <= longest for run, queries in ensemble.queries.items())


def growth_grid(budgets: Sequence[int]) -> tuple[int, ...]:
    """Where the AOI is read along the way: about fifty even steps, and the tiers themselves."""
    step = max(CHECKPOINT, max(budgets) // _STEPS // CHECKPOINT * CHECKPOINT)
    return tuple(sorted({*range(step, max(budgets) + 1, step), *budgets}))
