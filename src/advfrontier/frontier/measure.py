"""Checked distances, and figures with their flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag
from advfrontier.pool import TIERS
from advfrontier.threat.names import norm_name

Distances = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """Figure and its flags: sentences that a reader must know before trusting it.

    Args:
        value: The figure; NaN where it is not known.
        flags: Warnings, as sentences.
    """

    value: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Model in one norm, for comparing and ranking: its distances, samples and queries.

    Args:
        model: Name of the model.
        norm: Name of the norm of the distances.
        samples: Ids of the samples, (n,).
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        queries: Queries of the tier at which it was evaluated.
        flags: Flags of its record.
        data: Name of the data.
        tiers: Tiers that its record can be extended to.
    """

    model: str
    norm: str
    samples: tuple[str, ...]
    distances: Distances
    queries: int  # the tier they were found with
    flags: tuple[Flag, ...] = ()
    data: str = ""
    tiers: tuple[int, ...] = TIERS  # those that its record can be brought to

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_name(self.norm))
        object.__setattr__(
            self, "distances", as_distances(self.distances, what=f"distances of {self.model}")
        )
        if self.distances.size != len(self.samples):
            raise FrontierError(
                f"{self.distances.size} distances of {self.model} for {len(self.samples)} samples: "
                "expected one each"
            )


def as_distances(distances: ArrayLike, *, what: str = "distances") -> Distances:
    """Return per-sample distances as float64: 0 = misclassified unperturbed, inf = never broken.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        what: Name of the distances, for messages.
    """
    array = np.asarray(distances, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise FrontierError(
            f"{what} have shape {array.shape}: expected one distance per sample, such as "
            "evaluation.distances"
        )
    if wrong := int((~(array >= 0)).sum()):  # NaN too
        raise FrontierError(
            f"{wrong} of {array.size} {what} are negative or NaN: expected 0, a positive distance "
            "or inf"
        )
    return array


def as_table(distances: Mapping[str, ArrayLike]) -> tuple[tuple[str, ...], Distances]:
    """Return the names of models, or of runs, and their distances as one array (name, sample).

    Args:
        distances: Name to its distance per sample, (n,).
    """
    if not distances:
        raise FrontierError('no distances given: expected {"name": distances, …} with at least one')
    rows = [as_distances(row, what=f"distances of {name}") for name, row in distances.items()]
    if len({row.size for row in rows}) > 1:
        found = ", ".join(f"{name}: {row.size}" for name, row in zip(distances, rows, strict=True))
        raise FrontierError(
            f"different numbers of samples ({found}): expected the same samples for all"
        )
    return tuple(distances), np.stack(rows)


def as_pair(
    first: ArrayLike,
    second: ArrayLike,
    *,
    what: tuple[str, str] = ("distances", "frontier distances"),
) -> tuple[Distances, Distances]:
    """Return two rows of distances on the same samples: an attack or a model, and its frontier.

    Args:
        first: Distances, (n,).
        second: Distances on the same samples, (n,).
        what: Names of both, for messages.
    """
    a, b = as_distances(first, what=what[0]), as_distances(second, what=what[1])
    if a.size != b.size:
        raise FrontierError(
            f"{a.size} {what[0]} against {b.size} {what[1]}: expected the same samples, in the "
            "same order"
        )
    return a, b


def check_epsilon(epsilon: ArrayLike) -> Distances:
    """Return one perturbation size or many as an array, each of them ≥ 0.

    Args:
        epsilon: One size or many.
    """
    ε = np.asarray(epsilon, dtype=np.float64)
    if not (ε >= 0).all():
        raise FrontierError(
            f"ε = {ε} is negative or NaN: expected a perturbation size such as 8 / 255"
        )
    return ε


def check_same_samples(
    first: Sequence[str], second: Sequence[str], *, names: tuple[str, str], in_order: bool = True
) -> None:
    """Refuse two records whose samples differ or, unless order does not matter, are reordered.

    Args:
        first: Ids of samples.
        second: Ids of samples.
        names: Names of both records, for messages.
        in_order: Whether the order must be the same, too.
    """
    (a, b), extra, missing = names, len(set(first) - set(second)), len(set(second) - set(first))
    if extra or missing:
        raise FrontierError(
            f"{a} and {b} hold different samples ({extra} only in the former, {missing} only in "
            "the latter): expected the same ones; evaluate both with the same --data, --samples "
            "and --sample-seed"
        )
    if in_order and tuple(first) != tuple(second):
        raise FrontierError(
            f"{a} and {b} hold the same {len(first)} samples in another order: align them by "
            "sample id"
        )


def check_same_settings(
    first: Mapping[str, str],
    second: Mapping[str, str],
    *,
    names: tuple[str, str],
    attacks: Collection[str] | None = None,
) -> None:
    """Refuse two records whose solvers have other parameters, of these attacks or of all.

    Args:
        first: Attack to its settings.
        second: Attack to its settings.
        names: Names of both records, for messages.
        attacks: Attacks to compare; by default all.
    """
    for attack in sorted({*first, *second} if attacks is None else attacks):
        had = [each.get(attack, "its own settings") for each in (first, second)]
        if had[0] != had[1]:
            raise FrontierError(
                f"{names[0]} has {attack} at {had[0]}, {names[1]} at {had[1]}: expected the same "
                "solvers in both; make one of them again in another folder, with --published or "
                "without it as the other was"
            )


def unbroken_flag(distances: Distances) -> tuple[str, ...]:
    """Flag samples no run ever broke: whatever caps them decides what they count for.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
    """
    unbroken = int(np.isinf(distances).sum())
    return (f"{unbroken} of {distances.size} samples were never broken",) if unbroken else ()
