"""The paper's experiments on a pool of models: what they rest on, and all their tables by name. No queries.

Ensembles are made and judged over all models of a norm; models are ranked among those of one data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advfrontier.bench import attack_tables, baseline_tables, model_tables
from advfrontier.bench.benchmark import SPLITS, BenchmarkModel
from advfrontier.bench.subject import ModelGroup, Subject
from advfrontier.errors import FrontierError
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.ranking import Ranking, rank
from advfrontier.pool import Ensemble, Race
from advfrontier.table import Table
from advfrontier.threat.names import NORMS, SYMBOLS


@dataclass(eq=False)
class NormResults:
    """One norm: its models with their distances, the ensembles, and the models of each data set together."""

    norm: str
    subjects: Sequence[
        Subject
    ]  # put in order: training models first, those in doubt last of their split
    ensembles: Mapping[int, Ensemble]
    radii: Mapping[str, Sequence[float]] = field(
        default_factory=dict
    )  # data set → where accuracy is read
    paper: Mapping[int, Ensemble] = field(default_factory=dict)
    race: Race | None = None
    rivals: Mapping[str, str] = field(
        default_factory=dict
    )  # other ways to give out queries, and what they are
    notes: Sequence[str] = ()  # what is missing, and why
    groups: dict[str, ModelGroup] = field(
        init=False
    )  # data set → its models, and the first of its radii

    def __post_init__(self) -> None:
        if not self.subjects:
            raise FrontierError(f"no model was traced in {self.norm}: expected at least one")
        self.subjects = sorted(
            self.subjects, key=lambda subject: (subject.split != SPLITS[0], bool(subject.doubts))
        )
        self.groups = {}
        for data in dict.fromkeys(subject.data for subject in self.subjects):
            own = tuple(subject for subject in self.subjects if subject.data == data)
            self.groups[data] = ModelGroup(
                self.norm, data, own, next(iter(self.radii.get(data, ())), None)
            )

    def tables(self) -> dict[str, Table]:
        """The tables about attacks, by name."""
        subjects, norm = self.subjects, self.norm
        every = {
            "ensembles": attack_tables.ensembles(self.ensembles, self.paper, subjects, norm=norm),
            "tiers": attack_tables.tiers(self.ensembles, self.race, subjects, norm=norm),
            "aoi": baseline_tables.aoi(subjects, norm=norm),
            "aoi_by_lines": baseline_tables.aoi(subjects, norm=norm, straight=True),
            "aoi_summary": baseline_tables.aoi_summary(subjects, norm=norm),
            "above": attack_tables.above(subjects, norm=norm),
            "gains": attack_tables.gains(subjects, norm=norm),
            "growth": attack_tables.growth(subjects, norm=norm),
            "robust_accuracy": baseline_tables.robust_accuracy(subjects, self.radii, norm=norm),
            "robust_accuracy_summary": baseline_tables.robust_summary(
                subjects, self.radii, norm=norm
            ),
            "queries": baseline_tables.queries(subjects, self.radii, norm=norm),
            "allocations": attack_tables.allocations(subjects, self.rivals, norm=norm),
            "race_against_greedy": attack_tables.race_against_greedy(subjects, norm=norm),
            "contributions": attack_tables.contributions(subjects, norm=norm),
            "without": attack_tables.without(subjects, norm=norm),
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

    def beside(self, others: Results) -> Results:
        """With those norms of others that are not among its own."""
        norms = others.norms | self.norms
        return replace(self, norms={norm: norms[norm] for norm in NORMS if norm in norms})

    def groups(self) -> Iterator[tuple[str, ModelGroup]]:
        """The models of each data set in each norm, and a title that names the data set where there are several."""
        for norm, part in self.norms.items():
            for data, group in part.groups.items():
                yield SYMBOLS[norm] if len(part.groups) == 1 else f"{SYMBOLS[norm]}, {data}", group

    def tables(self) -> dict[str, Table]:
        """The tables over all norms, by name."""
        radii = {norm: part.radii for norm, part in self.norms.items()}
        every = {
            "glance": baseline_tables.glance(self.subjects, radii),
            "pool": attack_tables.pool(self.subjects),
            "totals": baseline_tables.totals(self.subjects, radii),
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
        return {
            data: model_tables.models(
                [model for model in self.models if model.data == data],
                {
                    norm: part.groups[data]
                    for norm, part in self.norms.items()
                    if data in part.groups
                },
            )
            for data in dict.fromkeys(model.data for model in self.models)
        }
