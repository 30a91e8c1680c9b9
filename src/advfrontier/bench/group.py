"""The models of one data set in one norm: who can be trusted, the defence frontier, and the order by DOI."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from advfrontier.frontier.defence import ReferencePool, defence_frontier
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.ranking import rank_table
from advfrontier.pool import tier_label
from advfrontier.table import Doubted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advfrontier.bench.subject import Subject
    from advfrontier.flags import Flag
    from advfrontier.frontier.ranking import RankRow


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
                flags={subject.model: subject.doubts for subject in self.subjects if subject.doubts},
            )
            for tier in self.tiers
        }

    @cached_property
    def doubts(self) -> dict[int, dict[str, tuple[Flag, ...]]]:
        """Tier → the models whose distances cannot be trusted there, and why."""
        return {tier: pool.flagged for tier, pool in self.pools.items()}

    @cached_property
    def trusted(self) -> tuple[Subject, ...]:
        """The models that the largest tier leaves no doubt about; all of them where it leaves doubt about each."""
        doubted = self.doubts[max(self.tiers)]
        return tuple(subject for subject in self.subjects if subject.model not in doubted) or self.subjects

    @cached_property
    def distances(self) -> dict[str, NDArray[np.float64]]:
        """What the largest tier finds on the trusted models."""
        return {subject.model: subject.last for subject in self.trusted}

    @cached_property
    def frontier(self) -> NDArray[np.float64]:
        """The defence frontier at the largest tier."""
        return defence_frontier(self.distances)

    @cached_property
    def ranked(self) -> dict[int, dict[str, RankRow]]:
        """Tier → model → rank and DOI; a tier that leaves doubt about every model has no frontier and is missing."""
        usable = {tier: pool for tier, pool in self.pools.items() if len(self.doubts[tier]) < len(self.subjects)}
        return {tier: {row.model: row for row in rank_table(pool, resamples=1).rows} for tier, pool in usable.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The models by DOI at the largest tier, best first, those in doubt last; empty where there is no DOI."""
        if not self.ranked:
            return ()
        last = self.ranked[max(self.ranked)]
        return tuple(sorted(last, key=lambda model: last[model].bracketed))

    @cached_property
    def steady(self) -> tuple[str, ...]:
        """The models that no tier leaves doubt about, by DOI."""
        return tuple(model for model in self.order if not any(model in doubted for doubted in self.doubts.values()))

    def rank(self, model: str) -> int | Doubted | None:
        """Rank by DOI at the largest tier."""
        if model not in self.order:
            return None
        row = self.ranked[max(self.ranked)][model]
        return Doubted(row.rank) if row.bracketed and row.rank is not None else row.rank

    def doi(self, model: str, tier: int) -> float | Doubted | None:
        """DOI at a tier; None where no model can be trusted."""
        if tier not in self.ranked:
            return None
        row = self.ranked[tier][model]
        if not row.doi.known:
            return None
        return Doubted(row.doi.estimate) if row.bracketed else row.doi.estimate

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing, and why."""
        notes = []
        if not self.ranked:
            notes.append("no DOI: every model has samples that were never broken, or is in doubt")
        elif absent := [tier_label(tier) for tier in self.tiers if tier not in self.ranked]:
            notes.append(f"no DOI with {', '.join(absent)} queries: they leave samples of every model unbroken")
        if len(self.trusted) < len(self.subjects):
            named = ", ".join(self.doubts[max(self.tiers)])
            notes.append(f"left out of ranks by radius, crossings and rejections, because it is in doubt: {named}")
        if self.reference is None:
            notes.append("no reference radius is given: no robust accuracy and no crossings")
        return tuple(notes)
