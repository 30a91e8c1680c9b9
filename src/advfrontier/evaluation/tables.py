"""Tables of an evaluation's samples, one by one and by class, as programs want them: raw values under short names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.evaluation.radii import Radius
from advfrontier.frontier.curve import distance_quantile, robust_accuracy
from advfrontier.table import Column, Table

if TYPE_CHECKING:
    from advfrontier.evaluation.evaluation import Evaluation


def sample_table(evaluation: Evaluation) -> Table:
    """One row per sample, in the order of the data."""
    columns: dict[str, Sequence[Any]] = {
        "row": range(len(evaluation.samples)),
        "sample": evaluation.samples,
        "label": evaluation.labels.tolist(),
        "prediction": evaluation.clean_logits.argmax(1).tolist(),
        "distance": evaluation.distances.tolist(),
        "adversarial_class": evaluation.predictions.tolist(),
        "winner": [winner or "" for winner in evaluation.winners],
        "queries": evaluation.queries.tolist(),
    }
    title = f"Samples of {evaluation.model} in {evaluation.norm}"
    return Table(title, tuple(map(Column, columns)), tuple(zip(*columns.values(), strict=True)))


def class_table(evaluation: Evaluation, radii: Sequence[Radius] = ()) -> Table:
    """One row per class that has samples: how far they are from an error, and what they are taken for then."""
    labels, d, seen = evaluation.labels.numpy(), evaluation.distances, evaluation.predictions.numpy()
    rows = []
    for number in np.unique(labels).tolist():
        own = labels == number
        wrong = Counter(seen[own & (seen != labels)].tolist()).most_common(1)
        taken_for = wrong[0][0] if wrong else None
        robust = [robust_accuracy(d[own], size) for size in (0.0, *(size for _, size in radii))]
        names = class_name(evaluation, number), class_name(evaluation, taken_for)
        rows.append((number, names[0], int(own.sum()), *robust, distance_quantile(d[own], 0.5), taken_for, names[1]))
    columns = (
        Column("class", "integer"),
        Column("name"),
        Column("samples", "integer"),
        Column("clean_accuracy", "percent"),
        *(Column(f"robust_accuracy_at_{label}", "percent") for label, _ in radii),
        Column("median_distance", "size"),
        Column("taken_for", "integer"),
        Column("taken_for_name"),
    )
    return Table(f"Classes of {evaluation.model} in {evaluation.norm}", columns, tuple(rows))


def class_name(evaluation: Evaluation, number: int | None) -> str | None:
    """What a class is called, where the data source knows it."""
    names = evaluation.class_names or ()
    return names[number] if number is not None and number < len(names) else None
