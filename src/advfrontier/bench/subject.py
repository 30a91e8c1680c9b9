"""One model in one norm, reduced from its trajectories to what the tables are made of: a few rows of distances.

Trajectories of a whole pool take a gigabyte for a dozen models. The tables need the frontier, what each tier found, and
the AOI along the way, so models are read one after the other and only this is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.optimality import aoi
from advfrontier.pool import CHECKPOINT, tier_label
from advfrontier.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from advfrontier.attacks.autoattack import KnownPoints
    from advfrontier.flags import Flag
    from advfrontier.frontier.measure import Measure
    from advfrontier.frontier.trajectories import Trajectories
    from advfrontier.pool import Ensemble
    from advfrontier.table import Format

_STEPS = 48  # budgets at which the AOI is read along the way


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
    doubts: tuple[Flag, ...] = ()  # why its distances may be too large

    @classmethod
    def of(
        cls,
        trajectories: Trajectories,
        ensembles: Mapping[int, Ensemble],
        *,
        paper: Mapping[int, Ensemble] | None = None,
        **about: Any,
    ) -> Subject:
        """Read off the trajectories what each budget's ensemble finds: its queries are prefixes of the traced runs.

        Args:
            trajectories: distances of every run at every checkpoint.
            ensembles: the allocated ensemble of every budget.
            paper: the paper's ensembles; those whose runs were all traced are read off as well.
            about: the other fields; samples have the names of the trajectories unless they are given.
        """
        frontier, last = trajectories.frontier(), ensembles[max(ensembles)]
        longest = int(trajectories.queries[-1])
        fitting = {
            tier: ensemble.queries
            for tier, ensemble in (paper or {}).items()
            if set(ensemble.runs) <= set(trajectories.runs) and max(ensemble.queries.values()) <= longest
        }
        return cls(
            frontier=frontier,
            tiers={budget: trajectories.best(ensemble.queries) for budget, ensemble in ensembles.items()},
            paper={tier: trajectories.best(queries) for tier, queries in fitting.items()},
            growth={
                budget: aoi(trajectories.best(last.at(budget).queries), frontier).value
                for budget in growth_grid(tuple(ensembles))
            },
            **{"samples": trajectories.samples, **about},
        )

    @property
    def clean(self) -> float:
        """Accuracy on unperturbed samples."""
        return float((self.frontier > 0).mean())

    @property
    def last(self) -> NDArray[np.float64]:
        """What the largest tier finds."""
        return self.tiers[max(self.tiers)]

    @cached_property
    def aois(self) -> dict[int, Measure]:
        """AOI of every tier against the model's own frontier."""
        return {tier: aoi(distances, self.frontier) for tier, distances in self.tiers.items()}

    @cached_property
    def paper_aois(self) -> dict[int, Measure]:
        """AOI of the paper's ensembles."""
        return {tier: aoi(distances, self.frontier) for tier, distances in self.paper.items()}

    @cached_property
    def baseline(self) -> BaselineAOI | None:
        """AOI of the baseline, by straight lines between the points that are known."""
        return None if self.known is None else baseline_aoi(self.known.radii, self.known.accuracies, self.frontier)

    @cached_property
    def straight_aois(self) -> dict[int, float]:
        """AOI of every tier if it were known at the baseline's radii only; empty where there is no baseline."""
        return {} if self.known is None else {tier: self._straight(d) for tier, d in self.tiers.items()}

    @property
    def ceiling(self) -> float | None:
        """AOI of the frontier itself if it were known at these radii only: what straight lines make of an AOI of 1."""
        return None if self.known is None else self._straight(self.frontier)

    def _straight(self, distances: NDArray[np.float64]) -> float:
        """AOI of distances that are read at the baseline's radii only, with straight lines between."""
        radii = self.known.radii if self.known is not None else ()
        return baseline_aoi(radii, Curve.of(distances).at(radii), self.frontier).value


def growth_grid(budgets: Sequence[int]) -> tuple[int, ...]:
    """Where the AOI is read along the way: about fifty even steps, and the tiers themselves."""
    step = max(CHECKPOINT, max(budgets) // _STEPS // CHECKPOINT * CHECKPOINT)
    return tuple(sorted({*range(step, max(budgets) + 1, step), *budgets}))


def tier_columns(budgets: Iterable[int], how: Format, name: str = "{}") -> tuple[Column, ...]:
    """A column for each budget, under its short name."""
    return tuple(Column(name.format(tier_label(budget)), how) for budget in budgets)
