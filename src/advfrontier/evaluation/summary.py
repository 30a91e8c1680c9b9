"""Summaries: every figure that a table, a report or a JSON file shows of an evaluation, computed once and plain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.evaluation.plain import CurveData, plain
from advfrontier.evaluation.ranking import bracketed, enter, own_flags, rank_interval, reached
from advfrontier.frontier.confidence import (
    Interval,
    aurec_interval,
    curve_band,
    doi_intervals,
    rank_shares,
    robust_accuracy_interval,
    wilson,
)
from advfrontier.frontier.curve import aurec, distance_quantile, epsilon_min
from advfrontier.frontier.measure import as_distances, unbroken_flag
from advfrontier.pool import TIERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.record import Evaluation
    from advfrontier.frontier.defence import ReferencePool

SCHEMA = 1  # of `to_dict`; raised when a field changes its meaning or goes away
SETTLED = 0.01  # AUREC counts as settled if the last quarter of the queries lowered it by less than this share
_BUDGETS = 36  # points of AUREC against queries, beside the tiers
_SIDE = 112  # pixels: gallery images are reduced to fit, so that a report stays a few megabytes


@dataclass(frozen=True)
class RobustAt:
    """Robust accuracy at one radius."""

    label: str  # as it was asked for, such as 8/255
    epsilon: float
    accuracy: Interval


@dataclass(frozen=True)
class PoolRow:
    """One model of a reference pool, or the model asked about."""

    model: str
    rank: int
    doi: Interval
    aurec: float
    bracketed: bool
    own: bool

    @property
    def position(self) -> str:
        """The rank as printed: `3`, or `(3)` in brackets."""
        return bracketed(self.rank, self.bracketed)


@dataclass(frozen=True)
class Standing:
    """Where a model stands among the models of a reference pool, all with the pool's tier."""

    dataset: str
    queries: int
    rank: int
    ranks: tuple[int, int]  # the middle 95 % of its ranks when samples are drawn again
    of: int  # models that take a rank
    bracketed: bool
    doi: Interval
    E: float
    flags: tuple[str, ...]
    table: tuple[PoolRow, ...]  # all of them, best first

    @property
    def position(self) -> str:
        """`3 of 17`, or `(3) of 17` for a model whose distances cannot be trusted."""
        return f"{bracketed(self.rank, self.bracketed)} of {self.of}"


@dataclass(frozen=True)
class Convergence:
    """AUREC against queries per sample, all up to one E."""

    queries: tuple[int, ...]
    aurec: tuple[float, ...]
    tiers: tuple[int, ...]  # those of the queries at which a tier was complete
    last_drop: float  # by which share the last quarter of the queries lowered AUREC
    settled: bool


@dataclass(frozen=True)
class Win:
    """On how many of the broken samples a run found the smallest perturbation."""

    run: str
    samples: int
    share: float


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


@dataclass(frozen=True)
class NormSummary:
    """One evaluation: one model, one norm."""

    model: str
    data: str
    norm: str
    ensemble: str
    tier: int  # queries per sample that the ensemble was made for
    seed: int
    samples: tuple[str, ...]  # ids
    distances: tuple[float, ...]  # 0 = already misclassified, inf = never broken
    misclassified: int
    unbroken: int
    clean: Interval
    robust: tuple[RobustAt, ...]
    median: float  # the smallest ε that breaks half of all samples; inf if none does
    E: float  # where areas end
    aurec: Interval
    standing: Standing | None
    no_standing: str | None  # why there is no DOI, where a reference pool was given
    counts: dict[str, int]  # passes through the model, by purpose
    queries: int  # spent by the attack, all samples together
    queries_per_sample: float  # on average over the samples that were attacked
    flags: tuple[str, ...]
    curve: CurveData
    margin: float  # of the 95 % band: the whole true curve lies within ± margin
    convergence: Convergence
    wins: tuple[Win, ...]  # most first
    gallery: tuple[GalleryItem, ...]
    commands: tuple[str, ...]
    versions: dict[str, str]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as JSON holds it: infinite numbers are "inf", what is not known is null."""
        return {"schema": SCHEMA, **plain(self)}


def summarise(
    evaluation: Evaluation,
    *,
    radii: Sequence[tuple[str, float]],
    reference: ReferencePool | None = None,
    gallery: int = 8,
    E: float | None = None,
    class_names: Sequence[str] | None = None,
) -> NormSummary:
    """All figures of an evaluation; `radii` are the ε, with their labels, at which robust accuracy is read.

    Areas end at E: by default where the defence frontier of the reference pool ends, this model included, and without
    a pool at the model's own largest distance. Where the evaluation does not fit the pool (another tier, other
    samples), `no_standing` says why and all else is there. `class_names` stand in for those of the record.
    """
    d = as_distances(evaluation.distances)
    standing, no_standing = None, None
    if reference is not None:
        try:
            standing = _standing(evaluation, reference)
        except FrontierError as error:
            no_standing = str(error)
    limit = E if E is not None else standing.E if standing else epsilon_min(d).value
    area = aurec_interval(d, E=limit)
    attacked = np.asarray(evaluation.queries)[d > 0]
    notes = (*own_flags(evaluation), *unbroken_flag(d))
    about_doi = (f"DOI: {flag}" for flag in (standing.flags if standing else ()) if flag not in notes)
    return NormSummary(
        model=evaluation.model,
        data=evaluation.data,
        norm=evaluation.norm,
        ensemble=evaluation.ensemble.name,
        tier=reached(evaluation),
        seed=evaluation.seed,
        samples=tuple(evaluation.samples),
        distances=tuple(d.tolist()),
        misclassified=int((d == 0).sum()),
        unbroken=int(np.isinf(d).sum()),
        clean=wilson(int((d > 0).sum()), d.size),
        robust=tuple(RobustAt(label, ε, robust_accuracy_interval(d, ε)) for label, ε in radii),
        median=distance_quantile(d, 0.5),
        E=limit,
        aurec=replace(area, flags=(*area.flags, *unbroken_flag(d))),
        standing=standing,
        no_standing=no_standing,
        counts={purpose: int(count) for purpose, count in evaluation.counts.items()},
        queries=int(attacked.sum()),
        queries_per_sample=float(attacked.mean()) if attacked.size else 0.0,
        flags=tuple(dict.fromkeys((*notes, *about_doi))),
        curve=CurveData.of(d),
        margin=curve_band(d).margin,
        convergence=_convergence(evaluation, limit),
        wins=_wins(evaluation, d),
        gallery=_gallery(evaluation, d, gallery, class_names or evaluation.class_names),
        commands=evaluation.commands,
        versions=dict(evaluation.versions),
        seconds=float(evaluation.seconds),
    )


def _standing(evaluation: Evaluation, reference: ReferencePool) -> Standing:
    pool = enter(reference, evaluation)
    flagged = pool.flagged
    intervals = doi_intervals(pool.distances, flagged=flagged)
    names, shares = rank_shares(pool.distances, flagged=flagged)
    table = tuple(
        PoolRow(row.model, row.rank, intervals[row.model], row.aurec, row.bracketed, row.model == evaluation.model)
        for row in pool.rank()
    )
    own = next(row for row in table if row.own)
    return Standing(
        dataset=pool.dataset,
        queries=pool.queries,
        rank=own.rank,
        ranks=rank_interval(shares[names.index(evaluation.model)]),
        of=sum(not row.bracketed for row in table),
        bracketed=own.bracketed,
        doi=own.doi,
        E=epsilon_min(pool.frontier()).value,
        flags=tuple(dict.fromkeys((*pool.doi(evaluation.model).flags, *own.doi.flags))),
        table=table,
    )


def _convergence(evaluation: Evaluation, E: float) -> Convergence:
    total = evaluation.ensemble.total
    tiers = sorted({min(tier, total) for tier in (*evaluation.ensemble.tiers, *(t for t in TIERS if t < total))})
    # Early queries change most, so half of the points rise by factors and half by steps.
    steps = np.concatenate((np.geomspace(10, total, _BUDGETS // 2), np.linspace(0, total, _BUDGETS // 2 + 1)[1:]))
    budgets = sorted({max(10, int(round(step / 10) * 10)) for step in steps if step < total} | set(tiers) | {total})
    areas = {budget: aurec(evaluation.distances_at(budget), E=E).value for budget in budgets}
    late = aurec(evaluation.distances_at(total * 3 // 4), E=E).value
    drop = (late - areas[total]) / late if late else 0.0
    return Convergence(tuple(areas), tuple(areas.values()), tuple(tiers), drop, drop < SETTLED)


def _wins(evaluation: Evaluation, d: NDArray[np.float64]) -> tuple[Win, ...]:
    broken = int(((d > 0) & np.isfinite(d)).sum())
    counted = Counter(run for run, distance in zip(evaluation.winners, d, strict=True) if run and distance > 0)
    order = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Win(run, count, count / broken) for run, count in order)


def _gallery(
    evaluation: Evaluation, d: NDArray[np.float64], count: int, class_names: Sequence[str] | None
) -> tuple[GalleryItem, ...]:
    """Correctly classified samples at even steps through the data: the same ones in every norm."""
    correct = np.flatnonzero(d > 0)
    if not count or not correct.size:
        return ()
    rows = correct[np.unique(np.linspace(0, correct.size - 1, min(count, correct.size)).astype(int))].tolist()
    originals = evaluation.images(rows)
    if originals.ndim != 4 or originals.shape[1] not in (1, 3):
        return ()  # not pictures
    return tuple(
        _item(evaluation, row, float(d[row]), (_pixels(original), _pixels(point)), class_names)
        for row, original, point in zip(rows, originals, evaluation.points(rows), strict=True)
    )


def _item(
    evaluation: Evaluation,
    row: int,
    distance: float,
    pair: tuple[NDArray[np.float64], NDArray[np.float64]],
    class_names: Sequence[str] | None,
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
        label_name=_class_name(class_names, label),
        prediction=prediction,
        prediction_name=_class_name(class_names, prediction),
        distance=distance,
        run=evaluation.winners[row],
        magnification=0.5 / largest if largest else 0.0,
        reduced=factor,
        original=_bytes(_reduce(original, factor)),
        adversarial=_bytes(_reduce(adversarial, factor)),
        difference=_bytes(0.5 + _reduce(magnified, factor, strongest=True)),
    )


def _class_name(names: Sequence[str] | None, number: int) -> str | None:
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
