"""Pictures of single samples: the original, the nearest adversarial point, and what was changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.tables import class_name

PICTURES = ("original", "adversarial", "difference")  # fields of an item that JSON leaves out
_SIDE = 112  # pixels: images are reduced to fit, so that a report stays a few megabytes


@dataclass(frozen=True, eq=False)
class GalleryItem:
    """One sample as pictures: uint8 arrays (height, width, channels)."""

    sample: str
    row: int
    label: int
    label_name: str | None
    prediction: int  # of the adversarial; of the clean image where there is none
    prediction_name: str | None
    distance: float
    run: str | None  # that found it
    magnification: float  # of the difference, which is drawn around mid-grey; 0 where there is none
    reduced: int  # so many pixels a side were drawn as one
    original: NDArray[np.uint8] = field(repr=False)
    adversarial: NDArray[np.uint8] = field(repr=False)
    difference: NDArray[np.uint8] = field(repr=False)


def pictures(evaluation: Evaluation, d: NDArray[np.float64], count: int) -> tuple[GalleryItem, ...]:
    """Correctly classified samples at even steps through the data: the same ones in every norm."""
    correct = np.flatnonzero(d > 0)
    if not count or not correct.size:
        return ()
    rows = correct[np.unique(np.linspace(0, correct.size - 1, min(count, correct.size)).astype(int))].tolist()
    originals = evaluation.images(rows)
    if originals.ndim != 4 or originals.shape[1] not in (1, 3) or min(originals.shape[2:]) < _reduced(originals):
        return ()  # not pictures
    points = evaluation.points(rows)
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
        run=evaluation.winners[row],
        magnification=0.5 / largest if largest else 0.0,
        reduced=factor,
        original=as_bytes(avg_pool2d(original, factor)),
        adversarial=as_bytes(avg_pool2d(adversarial, factor)),
        difference=as_bytes(0.5 + torch.where(highest >= -lowest, highest, lowest)),
    )


def _reduced(images: Tensor) -> int:
    """How many pixels a side are drawn as one."""
    return -(-max(images.shape[-2:]) // _SIDE)


def as_bytes(image: Tensor) -> NDArray[np.uint8]:
    """An image (channels, height, width) in [0, 1] as an array (height, width, channels)."""
    return (image * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
