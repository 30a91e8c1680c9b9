"""What every figure of this room is made of: checked distances in, a value with its flags out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Distances = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """A figure and, in plain English, whatever a reader must know before trusting it. No flags: nothing to know."""

    value: float
    flags: tuple[str, ...] = ()

    def __float__(self) -> float:
        return self.value


def as_distances(distances: ArrayLike, *, what: str = "distances") -> Distances:
    """Return per-sample distances as float64: 0 = misclassified unperturbed, inf = never broken."""
    array = np.asarray(distances, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise FrontierError(
            f"{what} have shape {array.shape}: expected one distance per sample, such as evaluation.distances"
        )
    if np.isnan(array).any() or (array < 0).any():
        wrong = int((np.isnan(array) | (array < 0)).sum())
        raise FrontierError(
            f"{wrong} of {array.size} {what} are negative or NaN: expected 0, a positive distance or inf"
        )
    return array


def as_models(distances: Mapping[str, ArrayLike]) -> tuple[tuple[str, ...], Distances]:
    """Return the names of models and their distances as one array (model, sample)."""
    if not distances:
        raise FrontierError('no model given: expected {"name": distances, …} with at least one')
    rows = [as_distances(row, what=f"distances of {name}") for name, row in distances.items()]
    sizes = {name: row.size for name, row in zip(distances, rows, strict=True)}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise FrontierError(
            f"models were evaluated on different numbers of samples ({found}): expected the same samples"
        )
    return tuple(distances), np.stack(rows)


def check_same_samples(
    first: Sequence[str], second: Sequence[str], *, names: tuple[str, str] = ("first", "second")
) -> None:
    """Refuse two records whose samples differ or stand in another order."""
    if tuple(first) == tuple(second):
        return
    a, b = names
    if set(first) == set(second):
        raise FrontierError(
            f"{a} and {b} hold the same {len(set(first))} samples in another order: align them by sample id"
        )
    raise FrontierError(
        f"{a} and {b} hold different samples ({len(set(first) - set(second))} only in {a}, "
        f"{len(set(second) - set(first))} only in {b}): expected the same ones; select the common ones first"
    )


def unbroken_flag(distances: Distances) -> tuple[str, ...]:
    """Flag samples no run ever broke: whatever caps them decides what they count for."""
    unbroken = int(np.isinf(distances).sum())
    return (f"{unbroken} of {distances.size} samples were never broken",) if unbroken else ()
