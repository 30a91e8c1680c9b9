"""Pictures of single samples: the original, the nearest adversarial point, and what was changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from advfrontier.evaluation.evaluation import Evaluation

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
    if originals.ndim != 4 or originals.shape[1] not in (1, 3):
        return ()  # not pictures
    return tuple(
        _item(evaluation, row, float(d[row]), (_pixels(original), _pixels(point)))
        for row, original, point in zip(rows, originals, evaluation.points(rows), strict=True)
    )


def _item(
    evaluation: Evaluation, row: int, distance: float, pair: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> GalleryItem:
    original, adversarial = pair
    difference = adversarial - original
    largest = float(np.abs(difference).max())
    factor = -(-max(original.shape[:2]) // _SIDE)
    label, prediction = int(evaluation.labels[row]), int(evaluation.predictions[row])
    magnified = difference / (2 * largest) if largest else difference
    return GalleryItem(
        sample=evaluation.samples[row],
        row=row,
        label=label,
        label_name=_class_name(evaluation, label),
        prediction=prediction,
        prediction_name=_class_name(evaluation, prediction),
        distance=distance,
        run=evaluation.winners[row],
        magnification=0.5 / largest if largest else 0.0,
        reduced=factor,
        original=_bytes(_reduce(original, factor)),
        adversarial=_bytes(_reduce(adversarial, factor)),
        difference=_bytes(0.5 + _reduce(magnified, factor, strongest=True)),
    )


def _class_name(evaluation: Evaluation, number: int) -> str | None:
    names = evaluation.class_names
    return names[number] if names is not None and number < len(names) else None


def _pixels(image: Any) -> NDArray[np.float64]:
    """An image (channels, height, width) as an array (height, width, channels)."""
    return np.asarray(image, dtype=np.float64).transpose(1, 2, 0)


def _reduce(image: NDArray[np.float64], factor: int, *, strongest: bool = False) -> NDArray[np.float64]:
    """Blocks of factor × factor pixels as one: their mean, or the value farthest from 0, which a mean would hide."""
    if factor == 1:
        return image
    height, width, channels = (size // factor for size in (*image.shape[:2], image.shape[2] * factor))
    kept = image[: height * factor, : width * factor]
    blocks = kept.reshape(height, factor, width, factor, channels).transpose(0, 2, 4, 1, 3)
    blocks = blocks.reshape(height, width, channels, factor * factor)
    if not strongest:
        return np.asarray(blocks.mean(axis=-1))
    where = np.abs(blocks).argmax(axis=-1, keepdims=True)
    return np.asarray(np.take_along_axis(blocks, where, axis=-1)[..., 0])


def _bytes(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(np.round(image * 255), 0, 255), dtype=np.uint8)
