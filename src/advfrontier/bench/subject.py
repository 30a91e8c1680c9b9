"""Models in one norm, reduced from their trajectories to what the tables are made of: a few rows of distances each.

Trajectories of a whole pool take a gigabyte for a dozen models. The tables need the frontier, the end of every run,
what each tier found, and the AOI along the way, so models are read one after the other and only this is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench.benchmark import SPLITS
from advfrontier.flags import Flag
from advfrontier.frontier.comparison import Reversal, reversals
from advfrontier.frontier.curve import Curve
from advfrontier.frontier.defence import ReferencePool, defence_frontier
from advfrontier.frontier.measure import Measure, check_same_samples
from advfrontier.frontier.optimality import BaselineAOI, aoi, baseline_aoi, excess
from advfrontier.frontier.ranking import RankRow, rank_table
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import CHECKPOINT, Ensemble, tier_label
from advfrontier.table import Column, Doubted, Format, Spread

Found = dict[int, NDArray[np.float64]]  # budget → distances
Tier = tuple[str, int]  # family and budget
Allocations = Mapping[str, Mapping[int, Mapping[str, int]]]  # family → budget → run → queries

GREEDY, RACE, PAPER = "greedy", "race", "paper"
SHOWN = (
    PAPER,
    GREEDY,
    RACE,
)  # the families that are evaluated; others are there to compare allocations
ALL = "all"  # in place of a split: the complete pool
_STEPS = 48  # budgets at which the AOI is read along the way


@dataclass(frozen=True, eq=False)
class Subject:
    """What is kept of one model."""

    model: str
    data: str  # the data set: models are compared with those of the same
    split: str  # "train" or "held-out"
    samples: tuple[str, ...]
    frontier: NDArray[
        np.float64
    ]  # d*: the least distance of the whole pool, and of the race where it was run
    families: dict[
        str, Found
    ]  # how queries are given out, "greedy" and others → budget → what is found with it
    growth: dict[int, float]  # queries → AOI of the greedy ensemble stopped there
    ends: dict[str, NDArray[np.float64]] = field(
        default_factory=dict
    )  # run → what it finds with all its queries
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
        """Read off the trajectories what each greedy ensemble finds: its queries are prefixes of the traced runs.

        So do other ways to give out the queries, where all of their runs were traced; what the race found was run.
        """
        frontier, last = trajectories.frontier(), ensembles[max(ensembles)]
        if raced:
            frontier = np.minimum(frontier, raced[max(raced)])
        families = {
            GREEDY: {budget: trajectories.best(each.queries) for budget, each in ensembles.items()}
        }
        for family, queries_of in (others or {}).items():
            families[family] = {
                budget: trajectories.best(queries)
                for budget, queries in queries_of.items()
                if set(queries) <= set(trajectories.runs)
                and max(queries.values()) <= trajectories.queries[-1]
            }
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

    def aoi(self, tier: Tier, *, straight: bool = False) -> float:
        """AOI of one tier by all of its distances, or by straight lines."""
        family, budget = tier
        return (
            self.straight_aoi(self.families[family][budget])
            if straight
            else self.aois[family][budget].value
        )

    def above(self, tier: Tier) -> float:
        """By how much the distances of one tier exceed the frontier on average."""
        family, budget = tier
        return excess(self.families[family][budget], self.frontier)

    @cached_property
    def baseline(self) -> BaselineAOI | None:
        """AOI of the baseline, by straight lines between the points that are known."""
        return (
            None
            if self.known is None
            else baseline_aoi(self.known.radii, self.known.accuracies, self.frontier)
        )

    def straight_aoi(self, distances: NDArray[np.float64]) -> float:
        """AOI of distances that are read at the baseline's radii only, with straight lines between."""
        radii = self.known.radii if self.known is not None else ()
        return baseline_aoi(radii, Curve.of(distances).at(radii), self.frontier).value


def growth_grid(budgets: Sequence[int]) -> tuple[int, ...]:
    """Where the AOI is read along the way: about fifty even steps, and the tiers themselves."""
    step = max(CHECKPOINT, max(budgets) // _STEPS // CHECKPOINT * CHECKPOINT)
    return tuple(sorted({*range(step, max(budgets) + 1, step), *budgets}))


@dataclass(frozen=True, eq=False)
class ModelGroup:
    """Models that were evaluated on the same samples."""

    norm: str
    data: str
    subjects: tuple[Subject, ...]
    reference: float | None = None  # the reference ε

    def __post_init__(self) -> None:
        first, *others = self.subjects
        for other in others:
            check_same_samples(first.samples, other.samples, names=(first.model, other.model))

    @property
    def tiers(self) -> tuple[int, ...]:
        """The budgets."""
        return tuple(self.subjects[0].tiers)

    @cached_property
    def pools(self) -> dict[int, ReferencePool]:
        """The models as a pool to rank in, by every tier."""
        return {
            tier: ReferencePool(
                norm=self.norm,
                dataset=self.data,
                queries=tier,
                samples=self.subjects[0].samples,
                distances={subject.model: subject.tiers[tier] for subject in self.subjects},
                flags={
                    subject.model: subject.doubts for subject in self.subjects if subject.doubts
                },
            )
            for tier in self.tiers
        }

    @cached_property
    def trusted(self) -> tuple[Subject, ...]:
        """The models that the largest tier leaves no doubt about; all of them where it leaves doubt about each."""
        doubted = self.pools[max(self.tiers)].flagged
        return (
            tuple(subject for subject in self.subjects if subject.model not in doubted)
            or self.subjects
        )

    @cached_property
    def distances(self) -> dict[str, NDArray[np.float64]]:
        """What the largest tier finds on the trusted models."""
        return {subject.model: subject.last for subject in self.trusted}

    @cached_property
    def early(self) -> dict[str, NDArray[np.float64]]:
        """What the smallest tier finds on them."""
        return {subject.model: subject.tiers[min(self.tiers)] for subject in self.trusted}

    @cached_property
    def reversals(self) -> tuple[Reversal, ...]:
        """The pairs that change places beyond the reference ε, the widest first."""
        return (
            ()
            if self.reference is None
            else tuple(reversals(self.distances, reference=self.reference))
        )

    @cached_property
    def frontier(self) -> NDArray[np.float64]:
        """The defence frontier at the largest tier."""
        return defence_frontier(self.distances)

    @cached_property
    def ranked(self) -> dict[int, dict[str, RankRow]]:
        """Tier → model → rank and DOI; a tier that leaves doubt about every model has no frontier and is missing."""
        return {
            tier: {row.model: row for row in rank_table(pool, resamples=1).rows}
            for tier, pool in self.pools.items()
            if len(pool.flagged) < len(self.subjects)
        }

    @property
    def order(self) -> tuple[str, ...]:
        """The models by DOI at the largest tier, best first, those in doubt last; empty where there is no DOI."""
        return tuple(self.ranked[max(self.ranked)]) if self.ranked else ()

    @cached_property
    def steady(self) -> tuple[str, ...]:
        """The models that no tier leaves doubt about, by DOI."""
        return tuple(
            model
            for model in self.order
            if not any(model in pool.flagged for pool in self.pools.values())
        )

    def rank(self, model: str) -> int | Doubted | None:
        """Rank by DOI at the largest tier."""
        row = self.ranked[max(self.ranked)].get(model) if self.ranked else None
        if row is None or row.rank is None:
            return None
        return Doubted(row.rank) if row.bracketed else row.rank

    def doi(self, model: str, tier: int) -> float | Doubted | None:
        """DOI at a tier; None where no model can be trusted."""
        row = self.ranked[tier][model] if tier in self.ranked else None
        if row is None or not row.doi.known:
            return None
        return Doubted(row.doi.estimate) if row.bracketed else row.doi.estimate

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing, and why."""
        notes = []
        if not self.ranked:
            notes.append("no DOI: every model has samples that were never broken, or is in doubt")
        elif absent := [tier_label(tier) for tier in self.tiers if tier not in self.ranked]:
            notes.append(
                f"no DOI with {', '.join(absent)} queries: they leave samples of every model unbroken"
            )
        if len(self.trusted) < len(self.subjects):
            named = ", ".join(self.pools[max(self.tiers)].flagged)
            notes.append(
                f"left out of ranks by radius, crossings and rejections, because it is in doubt: {named}"
            )
        if self.reference is None:
            notes.append("no reference radius is given: no robust accuracy and no crossings")
        return tuple(notes)


def tier_columns(budgets: Iterable[int], how: Format, name: str = "{}") -> tuple[Column, ...]:
    """A column for each budget, under its short name."""
    return tuple(Column(name.format(tier_label(budget)), how) for budget in budgets)


def common_tiers(subjects: Sequence[Subject], family: str) -> list[int]:
    """The budgets of a family that every model has."""
    first, *others = [subject.families.get(family, {}) for subject in subjects]
    return [tier for tier in first if all(tier in found for found in others)]


def shown_tiers(subjects: Sequence[Subject]) -> dict[str, Tier]:
    """Name of a column, such as `race-4k` → family and budget, for those that every model has."""
    tiers = [(family, tier) for family in SHOWN for tier in common_tiers(subjects, family)]
    return {f"{family}-{tier_label(tier)}": (family, tier) for family, tier in tiers}


def by_split(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """The models of every split that has any."""
    every = {
        str(split): [subject for subject in subjects if subject.split == split] for split in SPLITS
    }
    return {split: group for split, group in every.items() if group}


def grouped(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """By split, and all of them where there are several splits."""
    splits = by_split(subjects)
    return {**splits, ALL: list(subjects)} if len(splits) > 1 else splits


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and standard deviation over all that there are; None if there are none."""
    return Spread(float(np.mean(values)), float(np.std(values))) if values else None
