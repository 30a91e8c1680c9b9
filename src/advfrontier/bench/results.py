"""The paper's experiments on a pool of models: what they rest on, and all their tables by name. No queries.

Ensembles are made and judged over all models of a norm; models are ranked among those of one data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advfrontier.bench import attack_tables, baseline_tables, comparison_tables, model_tables
from advfrontier.bench.benchmark import SPLITS, BenchmarkModel
from advfrontier.bench.subject import Subject
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag
from advfrontier.frontier.defence import ReferencePool, defence_frontier
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.ranking import Ranking, RankRow, rank, rank_table
from advfrontier.pool import Ensemble, Race, tier_label
from advfrontier.table import Doubted, Table
from advfrontier.threat.names import SYMBOLS


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


@dataclass(frozen=True, eq=False)
class NormResults:
    """One norm: its models with their distances, the ensembles, and the models of each data set together."""

    norm: str
    subjects: Sequence[Subject]  # put in order: training models first, those in doubt last of their split
    ensembles: Mapping[int, Ensemble]
    radii: Mapping[str, Sequence[float]] = field(default_factory=dict)  # data set → where accuracy is read
    paper: Mapping[int, Ensemble] = field(default_factory=dict)
    race: Race | None = None
    rivals: Mapping[str, str] = field(default_factory=dict)  # other ways to give out queries, and what they are
    notes: Sequence[str] = ()  # what is missing, and why
    groups: dict[str, ModelGroup] = field(init=False)  # data set → its models, and the first of its radii

    def __post_init__(self) -> None:
        if not self.subjects:
            raise FrontierError(f"no model was traced in {self.norm}: expected at least one")
        ordered = sorted(self.subjects, key=lambda subject: (subject.split != SPLITS[0], bool(subject.doubts)))
        object.__setattr__(self, "subjects", ordered)
        groups: dict[str, list[Subject]] = {}
        for subject in ordered:
            groups.setdefault(subject.data, []).append(subject)
        references = {data: next(iter(self.radii.get(data, ())), None) for data in groups}
        made = {data: ModelGroup(self.norm, data, tuple(own), references[data]) for data, own in groups.items()}
        object.__setattr__(self, "groups", made)

    def tables(self) -> dict[str, Table]:
        """The tables about attacks, by name."""
        subjects, norm = self.subjects, self.norm
        every = {
            "ensembles": attack_tables.ensembles(self.ensembles, self.paper, subjects, norm=norm),
            "tiers": attack_tables.tiers(self.ensembles, subjects, norm=norm),
            "aoi": baseline_tables.aoi(subjects, norm=norm),
            "aoi_by_lines": baseline_tables.aoi_by_lines(subjects, norm=norm),
            "aoi_summary": baseline_tables.aoi_summary(subjects, norm=norm),
            "above": attack_tables.above(subjects, norm=norm),
            "gains": attack_tables.gains(subjects, norm=norm),
            "growth": attack_tables.growth(subjects, norm=norm),
            "robust_accuracy": baseline_tables.robust_accuracy(subjects, self.radii, norm=norm),
            "robust_accuracy_summary": baseline_tables.robust_summary(subjects, self.radii, norm=norm),
            "queries": baseline_tables.queries(subjects, self.radii, norm=norm),
            "allocations": comparison_tables.allocations(subjects, self.rivals, norm=norm),
            "race_against_greedy": comparison_tables.race_against_greedy(subjects, norm=norm),
            "contributions": comparison_tables.contributions(subjects, norm=norm),
            "without": comparison_tables.without(subjects, norm=norm),
        }
        return {name: table for name, table in every.items() if table.rows}


@dataclass(frozen=True, eq=False)
class Results:
    """The whole: norm by norm, and what compares norms."""

    name: str
    budgets: tuple[int, ...]
    norms: dict[str, NormResults]
    models: tuple[BenchmarkModel, ...] = ()
    failures: tuple[str, ...] = ()

    def groups(self) -> Iterator[tuple[str, ModelGroup]]:
        """The models of each data set in each norm, and a title that names the data set where there are several."""
        for norm, part in self.norms.items():
            for data, group in part.groups.items():
                yield SYMBOLS[norm] if len(part.groups) == 1 else f"{SYMBOLS[norm]}, {data}", group

    def tables(self) -> dict[str, Table]:
        """The tables over all norms, by name."""
        every = {
            "pool": attack_tables.pool(self.subjects),
            "totals": baseline_tables.totals(self.subjects, {norm: part.radii for norm, part in self.norms.items()}),
            "cases": baseline_tables.cases(self.subjects),
        }
        return {name: table for name, table in every.items() if table.rows}

    @property
    def subjects(self) -> dict[str, Sequence[Subject]]:
        """Norm → its models."""
        return {norm: part.subjects for norm, part in self.norms.items()}

    def mean_dois(self) -> dict[str, float]:
        """Model → mean DOI at the largest tier over the groups in which it can be trusted, the best first."""
        dois: dict[str, list[float]] = {}
        for _, group in self.groups():
            for model in group.order:
                doi = group.doi(model, max(group.ranked))
                if isinstance(doi, float):
                    dois.setdefault(model, []).append(doi)
        means = {model: float(np.mean(values)) for model, values in dois.items()}
        return dict(sorted(means.items(), key=lambda entry: -entry[1]))

    def rankings(self) -> dict[str, Ranking]:
        """Data set → its models ranked at the largest tier, in every norm where some of them can be trusted."""
        pools: dict[str, dict[str, ReferencePool]] = {}
        for _, group in self.groups():
            if group.ranked:
                pools.setdefault(group.data, {})[group.norm] = group.pools[max(group.ranked)]
        return {data: rank(by_norm) for data, by_norm in pools.items()}

    def model_tables(self) -> dict[str, Table]:
        """Data set → its models, with their rank in every norm."""
        tables = {}
        for data in dict.fromkeys(model.data for model in self.models):
            groups = {norm: part.groups[data] for norm, part in self.norms.items() if data in part.groups}
            tables[data] = model_tables.models([model for model in self.models if model.data == data], groups)
        return tables
