"""Single samples: as tables, one by one and by class, and as pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import Radius
from advfrontier.frontier.curve import distance_quantile, robust_accuracy
from advfrontier.table import Column, Table

PICTURES = ("original", "adversarial", "difference")  # fields of an item that JSON leaves out
_SIDE = 112  # pixels: images are reduced to fit, so that a report stays a few megabytes


def sample_table(evaluation: Evaluation) -> Table:
    """Return one row per sample, in the order of the data.

    Args:
        evaluation: Finished evaluation.
    """
    columns: dict[str, Sequence[Any]] = {
        "row": range(len(evaluation.samples)),
        "sample": evaluation.samples,
        "label": evaluation.labels.tolist(),
        "prediction": evaluation.clean_logits.argmax(1).tolist(),
        "distance": evaluation.distances.tolist(),
        "adversarial_class": evaluation.predictions.tolist(),
        "winner": [winner or "" for winner in evaluation.winners],
        "refined_by": [refined or "" for refined in evaluation.refined_by],
        "queries": evaluation.queries.tolist(),
    }
    title = f"Samples of {evaluation.model} in {evaluation.norm}"
    return Table(title, tuple(map(Column, columns)), tuple(zip(*columns.values(), strict=True)))


def class_table(evaluation: Evaluation, radii: Sequence[Radius] = ()) -> Table:
    """Return one row per class: distances of its samples, and the classes that they become.

    Args:
        evaluation: Finished evaluation.
        radii: Radii with their labels.
    """
    labels, d, seen = (
        evaluation.labels.numpy(),
        evaluation.distances,
        evaluation.predictions.numpy(),
    )
    rows = []
    for number in np.unique(labels).tolist():
        own = labels == number
        wrong = Counter(seen[own & (seen != labels)].tolist()).most_common(1)
        taken_for = wrong[0][0] if wrong else None
        sizes = [0.0]
        sizes.extend(size for _, size in radii)
        robust = [robust_accuracy(d[own], size) for size in sizes]
        names = class_name(evaluation, number), class_name(evaluation, taken_for)
        rows.append(
            (
                number,
                names[0],
                int(own.sum()),
                *robust,
                distance_quantile(d[own], 0.5),
                taken_for,
                names[1],
            )
        )
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
    """Return the name of a class, where the data source has names.

    Args:
        evaluation: Evaluation whose data may name the classes.
        number: Number of the class, or None.
    """
    names = evaluation.class_names or ()
    return names[number] if number is not None and number < len(names) else None


@dataclass(frozen=True, eq=False)
class GalleryItem:
    """One sample as pictures, uint8 (height, width, channels): image, nearest point, change.

    Args:
        sample: Id of the sample.
        row: Row of the sample in the data.
        label: True class.
        label_name: Name of that class, if known.
        prediction: Class of the adversarial example; of the image where there is none.
        prediction_name: Name of that class, if known.
        distance: Distance, in units of the norm.
        run: Run that found the point.
        magnification: Factor of the difference, drawn around mid-grey; 0 where there is none.
        reduced: Pixels a side that are drawn as one.
        original: The image, uint8 (height, width, channels).
        adversarial: The nearest point, of the same shape.
        difference: The magnified change, of the same shape.
    """

    sample: str
    row: int
    label: int
    label_name: str | None
    prediction: int  # of the adversarial; of the clean image where there is none
    prediction_name: str | None
    distance: float
    run: str | None  # that found it
    magnification: float  # of the difference, which is drawn around mid-grey; 0 where there is none
    reduced: int  # pixels a side that were drawn as one
    original: NDArray[np.uint8] = field(repr=False)
    adversarial: NDArray[np.uint8] = field(repr=False)
    difference: NDArray[np.uint8] = field(repr=False)


def pictures(evaluation: Evaluation, d: NDArray[np.float64], count: int) -> tuple[GalleryItem, ...]:
    """Correctly classified samples at even steps through the data: the same ones in every norm.

    Args:
        evaluation: Finished evaluation that stores its points.
        d: Distance per sample, (n,).
        count: Most samples to draw.
    """
    correct = np.flatnonzero(d > 0)
    if not count or not correct.size:
        return ()
    rows = correct[
        np.unique(np.linspace(0, correct.size - 1, min(count, correct.size)).astype(int))
    ].tolist()
    originals = evaluation.images(rows)
    if (
        originals.ndim != 4
        or originals.shape[1] not in (1, 3)
        or min(originals.shape[2:]) < _reduced(originals)
    ):
        return ()  # not pictures
    points = evaluation.points(rows)
    if evaluation.space is not None:  # as pictures every feature's box is [0, 1]
        originals, points = map(evaluation.space.to_unit, (originals, points))
    return tuple(
        _item(evaluation, row, original.double(), point.double())
        for row, original, point in zip(rows, originals, points, strict=True)
    )


def _item(evaluation: Evaluation, row: int, original: Tensor, adversarial: Tensor) -> GalleryItem:
    difference = adversarial - original
    largest = float(difference.abs().max())
    factor = _reduced(original)
    label, prediction = int(evaluation.labels[row]), int(evaluation.predictions[row])
    magnified = difference / (2 * largest) if largest else difference
    # Of several pixels drawn as one, the value farthest from 0: a mean would hide single pixels.
    highest, lowest = max_pool2d(magnified, factor), -max_pool2d(-magnified, factor)
    return GalleryItem(
        sample=evaluation.samples[row],
        row=row,
        label=label,
        label_name=class_name(evaluation, label),
        prediction=prediction,
        prediction_name=class_name(evaluation, prediction),
        distance=float(evaluation.distances[row]),
        run=evaluation.credits[row],
        magnification=0.5 / largest if largest else 0.0,
        reduced=factor,
        original=as_bytes(avg_pool2d(original, factor)),
        adversarial=as_bytes(avg_pool2d(adversarial, factor)),
        difference=as_bytes(0.5 + torch.where(highest >= -lowest, highest, lowest)),
    )


def _reduced(images: Tensor) -> int:
    """Return the number of pixels a side that are drawn as one."""
    return -(-max(images.shape[-2:]) // _SIDE)


def as_bytes(image: Tensor) -> NDArray[np.uint8]:
    """Turn an image (channels, height, width) in [0, 1] into (height, width, channels).

    Args:
        image: Image (channels, height, width) in [0, 1].
    """
    return (image * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
