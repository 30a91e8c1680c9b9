"""The models themselves: what the benchmark says about each, and its rank in every norm beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.evaluation.experiment import NormExperiment


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model before it is run."""

    model: str
    data: str
    split: str
    batch: int
    baseline_batch: int
    source: str | None = None
    authors: str = ""
    trained: tuple[str, ...] = ()  # norms it was trained against
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelRow:
    """A model with its accuracy and its ranks."""

    facts: ModelFacts
    clean: float | None  # accuracy on unperturbed samples; None if it could not be run
    ranks: dict[str, str]  # norm → rank by DOI at the largest tier among its data set; in brackets if in doubt


def model_rows(facts: Sequence[ModelFacts], norms: Mapping[str, NormExperiment]) -> tuple[ModelRow, ...]:
    """In the order of the benchmark. A norm in which a model was not run, or has no DOI, gives no rank."""
    return tuple(ModelRow(each, _clean(each.model, norms), _ranks(each, norms)) for each in facts)


def _clean(model: str, norms: Mapping[str, NormExperiment]) -> float | None:
    found = (subject for part in norms.values() for subject in part.subjects if subject.model == model)
    first = next(found, None)
    return None if first is None else first.clean


def _ranks(facts: ModelFacts, norms: Mapping[str, NormExperiment]) -> dict[str, str]:
    found = {}
    for norm, part in norms.items():
        table = part.defences[facts.data].tables.doi if facts.data in part.defences else None
        for row in table.rows if table else ():
            if row.model == facts.model:
                found[norm] = row.positions[max(row.positions)]
    return found
