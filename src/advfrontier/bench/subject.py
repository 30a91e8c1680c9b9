"""One model in one norm, reduced from its trajectories to what the tables are made of: a few rows of distances.

Trajectories of a whole pool take a gigabyte for a dozen models. The tables need the frontier, the end of every run,
what each tier found, and the AOI along the way, so models are read one after the other and only this is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.bench.benchmark import SPLITS
from advfrontier.flags import Flag
from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.measure import Measure
from advfrontier.frontier.optimality import aoi
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import CHECKPOINT, Ensemble, tier_label
from advfrontier.table import Column, Format, Spread

if TYPE_CHECKING:
    from advfrontier.attacks.autoattack import KnownPoints

Found = dict[int, NDArray[np.float64]]  # budget → distances
Allocations = Mapping[str, Mapping[int, Mapping[str, int]]]  # family → budget → run → queries

GREEDY, RACE, PAPER = "greedy", "race", "paper"
SHOWN = (PAPER, GREEDY, RACE)  # the families that are evaluated; others are there to compare allocations
ALL = "all"  # in place of a split: the complete pool
_STEPS = 48  # budgets at which the AOI is read along the way


@dataclass(frozen=True, eq=False)
class Subject:
    """What is kept of one model."""

    model: str
    data: str  # the data set: models are compared with those of the same
    split: str  # "train" or "held-out"
    samples: tuple[str, ...]
    frontier: NDArray[np.float64]  # d*: the least distance of the whole pool, and of the race where it was run
    families: dict[str, Found]  # how queries are given out, "greedy" and others → budget → what is found with it
    growth: dict[int, float]  # queries → AOI of the greedy ensemble stopped there
    ends: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # run → what it finds with all its queries
    known: KnownPoints | None = None  # of the baseline
    doubts: tuple[Flag, ...] = ()  # why its distances may be too large

    @classmethod
    def of(
        cls,
        trajectories: Trajectories,
        ensembles: Mapping[int, Ensemble],
        *,
        raced: Found | None = None,
        others: Allocations | None = None,
        **about: Any,
    ) -> Subject:
        """Read off the trajectories what each budget finds: its queries are prefixes of the traced runs.

        Args:
            trajectories: distances of every run at every checkpoint.
            ensembles: the greedy ensemble of every budget.
            raced: what the race found at the same budgets, where it was run.
            others: other ways to give out the queries; those whose runs were all traced are read off as well.
            about: the other fields; samples have the names of the trajectories unless they are given.
        """
        frontier, last = trajectories.frontier(), ensembles[max(ensembles)]
        if raced:
            frontier = np.minimum(frontier, raced[max(raced)])
        families = {GREEDY: {budget: trajectories.best(each.queries) for budget, each in ensembles.items()}}
        for family, queries_of in (others or {}).items():
            fitting = {budget: queries for budget, queries in queries_of.items() if _traced(trajectories, queries)}
            families[family] = {budget: trajectories.best(queries) for budget, queries in fitting.items()}
        families[RACE] = raced or {}
        return cls(
            frontier=frontier,
            families={family: found for family, found in families.items() if found},
            growth={
                budget: aoi(trajectories.best(last.at(budget).queries), frontier).value
                for budget in growth_grid(tuple(ensembles))
            },
            ends=dict(zip(trajectories.runs, trajectories.distances[:, -1].copy(), strict=True)),
            **{"samples": trajectories.samples, **about},
        )

    @property
    def tiers(self) -> Found:
        """Budget → what the greedy ensemble finds with it."""
        return self.families[GREEDY]

    @cached_property
    def traced(self) -> NDArray[np.float64]:
        """The least distance of the traced runs alone."""
        return np.asarray(np.min(list(self.ends.values()), axis=0))

    @property
    def clean(self) -> float:
        """Accuracy on unperturbed samples."""
        return float((self.frontier > 0).mean())

    @property
    def last(self) -> NDArray[np.float64]:
        """What the largest tier finds."""
        return self.tiers[max(self.tiers)]

    @cached_property
    def aois(self) -> dict[str, dict[int, Measure]]:
        """Family → AOI of every tier against the model's own frontier."""
        return {
            family: {tier: aoi(distances, self.frontier) for tier, distances in found.items()}
            for family, found in self.families.items()
        }

    @cached_property
    def baseline(self) -> BaselineAOI | None:
        """AOI of the baseline, by straight lines between the points that are known."""
        return None if self.known is None else baseline_aoi(self.known.radii, self.known.accuracies, self.frontier)

    @cached_property
    def straight_aois(self) -> dict[str, dict[int, float]]:
        """The same AOIs if distances were known at the baseline's radii only; empty where there is no baseline."""
        if self.known is None:
            return {}
        shown = {family: found for family, found in self.families.items() if family in SHOWN}
        return {family: {tier: self._straight(d) for tier, d in found.items()} for family, found in shown.items()}

    @property
    def ceiling(self) -> float | None:
        """AOI of the frontier itself if it were known at these radii only: what straight lines make of an AOI of 1."""
        return None if self.known is None else self._straight(self.frontier)

    def _straight(self, distances: NDArray[np.float64]) -> float:
        """AOI of distances that are read at the baseline's radii only, with straight lines between."""
        radii = self.known.radii if self.known is not None else ()
        return baseline_aoi(radii, Curve.of(distances).at(radii), self.frontier).value


def _traced(trajectories: Trajectories, queries: Mapping[str, int]) -> bool:
    """Whether these queries are prefixes of traced runs."""
    return set(queries) <= set(trajectories.runs) and max(queries.values()) <= trajectories.queries[-1]


def growth_grid(budgets: Sequence[int]) -> tuple[int, ...]:
    """Where the AOI is read along the way: about fifty even steps, and the tiers themselves."""
    step = max(CHECKPOINT, max(budgets) // _STEPS // CHECKPOINT * CHECKPOINT)
    return tuple(sorted({*range(step, max(budgets) + 1, step), *budgets}))


def tier_columns(budgets: Iterable[int], how: Format, name: str = "{}") -> tuple[Column, ...]:
    """A column for each budget, under its short name."""
    return tuple(Column(name.format(tier_label(budget)), how) for budget in budgets)


def shown_tiers(subjects: Sequence[Subject]) -> dict[str, tuple[str, int]]:
    """Name of a column, such as `race-4k` → family and budget, for those that every model has."""
    return {
        f"{family}-{tier_label(tier)}": (family, tier)
        for family in SHOWN
        for tier in subjects[0].families.get(family, {})
        if all(tier in subject.families.get(family, {}) for subject in subjects)
    }


def by_split(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """The models of every split that has any."""
    every = {split: [subject for subject in subjects if subject.split == split] for split in SPLITS}
    return {split: group for split, group in every.items() if group}


def grouped(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """By split, and all of them where there are several splits."""
    splits = by_split(subjects)
    return {**splits, ALL: list(subjects)} if len(splits) > 1 else {str(split): own for split, own in splits.items()}


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and standard deviation over all that there are; None if there are none."""
    return Spread(float(np.mean(values)), float(np.std(values))) if values else None
