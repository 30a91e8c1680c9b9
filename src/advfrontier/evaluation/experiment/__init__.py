"""The paper's experiments on a pool of models: plain results from trajectories, ensembles and baselines. No queries.

| paper | here |
|---|---|
| the model pool | `Experiment.models` |
| deployable ensembles | `AttackTables.ensembles`, `tiers` |
| AOI per model and tier against AutoAttack; the ℓ0 table | `AttackTables.aoi`, `aoi_summaries` |
| robust accuracy at the reference ε with AutoAttack's queries | `AttackTables.robust` |
| counts over all pairs of model and norm | `Experiment.totals` |
| AOI against Q, training and held-out models | `AttackTables.growth` |
| best and worst case against AutoAttack | `Experiment.cases` |
| DOI at three tiers | `DefenceTables.doi` |
| rank instability | `DefenceTables.baseline_instability`; by our own tier, `instability` |
| crossings past the reference ε | `DefenceTables.crossings` |
| early rejection | `DefenceTables.early_rejection` |
| all curves with the defence frontier | `Defences.subjects`, `frontier` |

Ensembles are made and judged over all models of a norm; models are ranked among those of one data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.evaluation.experiment.attacks import (
    ALL,
    AoiRow,
    AoiSummary,
    AttackTables,
    Case,
    EnsembleRow,
    EnsembleTier,
    Growth,
    RobustRow,
    RobustSummary,
    RobustTable,
    Spread,
    Total,
    attack_tables,
    cases,
    totals,
)
from advfrontier.evaluation.experiment.defences import (
    BaselineInstability,
    Crossings,
    Defences,
    DefenceTables,
    DoiRow,
    DoiTable,
    EarlyRejection,
    Instability,
    defences,
)
from advfrontier.evaluation.experiment.models import ModelFacts, ModelRow, model_rows
from advfrontier.evaluation.experiment.subject import SPLITS, KnownPoints, Subject, holds, reduce_traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.pool import Ensemble

__all__ = [
    "ALL",
    "SPLITS",
    "AoiRow",
    "AoiSummary",
    "AttackTables",
    "BaselineInstability",
    "Case",
    "Crossings",
    "DefenceTables",
    "Defences",
    "DoiRow",
    "DoiTable",
    "EarlyRejection",
    "EnsembleRow",
    "EnsembleTier",
    "Experiment",
    "Growth",
    "Instability",
    "KnownPoints",
    "ModelFacts",
    "ModelRow",
    "NormExperiment",
    "RobustRow",
    "RobustSummary",
    "RobustTable",
    "Spread",
    "Subject",
    "Total",
    "experiment",
    "holds",
    "norm_experiment",
    "reduce_traces",
]


@dataclass(frozen=True, eq=False)
class NormExperiment:
    """One norm: its models with their distances, the tables about attacks, and per data set those about models."""

    norm: str
    subjects: tuple[Subject, ...]  # training models first
    attacks: AttackTables
    defences: dict[str, Defences]
    notes: tuple[str, ...] = ()  # what is missing, and why

    def subject(self, model: str) -> Subject:
        """One of the models."""
        return next(subject for subject in self.subjects if subject.model == model)


@dataclass(frozen=True, eq=False)
class Experiment:
    """The whole: norm by norm, and what compares norms."""

    name: str
    budgets: tuple[int, ...]
    norms: dict[str, NormExperiment]
    cases: tuple[Case, Case] | None  # the best and the worst against the baseline, over all norms
    totals: tuple[Total, ...] = ()  # against the baseline, over all norms
    models: tuple[ModelRow, ...] = ()
    failures: tuple[str, ...] = ()


def norm_experiment(
    norm: str,
    subjects: Sequence[Subject],
    ensembles: Mapping[int, Ensemble],
    *,
    radii: Mapping[str, Sequence[float]] | None = None,
    paper: Mapping[int, Ensemble] | None = None,
    notes: Sequence[str] = (),
) -> NormExperiment:
    """All tables of one norm. `radii` are those of each data set, the reference ε first."""
    if not subjects:
        raise FrontierError(f"no model was traced in {norm}: expected at least one")
    ordered = tuple(sorted(subjects, key=lambda subject: SPLITS.index(subject.split)))  # else as they were given
    known = radii or {}
    return NormExperiment(
        norm=norm,
        subjects=ordered,
        attacks=attack_tables(ordered, ensembles, paper=paper or {}, radii=known),
        defences={
            data: defences(
                [subject for subject in ordered if subject.data == data],
                norm=norm,
                data=data,
                reference=next(iter(known.get(data, ())), None),
            )
            for data in dict.fromkeys(subject.data for subject in ordered)
        },
        notes=tuple(notes),
    )


def experiment(
    name: str,
    budgets: Sequence[int],
    norms: Mapping[str, NormExperiment],
    *,
    models: Sequence[ModelFacts] = (),
    failures: Sequence[str] = (),
) -> Experiment:
    """Put the norms together."""
    return Experiment(
        name=name,
        budgets=tuple(budgets),
        norms=dict(norms),
        cases=cases({norm: part.attacks.aoi for norm, part in norms.items()}),
        totals=totals([part.attacks for part in norms.values()]),
        models=model_rows(models, norms),
        failures=tuple(failures),
    )
