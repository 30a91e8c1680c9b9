"""Ranks: models by DOI, in each norm and over all norms, with 95 % ranges over samples.

A model in doubt is bracketed: it has the rank it would have, takes nobody's, and stands below all
others. A model without a DOI has no rank.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag
from advfrontier.frontier.confidence import LEVEL, RESAMPLES, Interval, ratio_intervals, resampled
from advfrontier.frontier.curve import Curve, aurec, distance_quantile, robust_accuracy
from advfrontier.frontier.defence import ReferencePool
from advfrontier.jsonable import jsonable


@dataclass(frozen=True)
class RankRow:
    """Row of one model: in one norm, or over several, where DOI is the mean."""

    model: str
    rank: int | None
    ranks: (
        tuple[int, int] | None
    )  # the middle 95 % of its ranks when samples are drawn again; None if not known
    doi: Interval
    bracketed: bool  # in doubt; over several norms, in any of them
    given: bool  # one of the models asked about, not one of the reference pool
    flags: tuple[Flag, ...] = ()  # why it is in doubt
    aurec: float | None = None  # up to the E of its table
    clean_accuracy: float | None = None
    median: float | None = None
    robust: dict[str, float] = field(
        default_factory=dict
    )  # radius, as it is written → robust accuracy there
    dois: dict[str, float] = field(default_factory=dict)  # over several norms: the DOI in each

    @property
    def position(self) -> str:
        """Return the rank as printed: `3`, `(3)` in brackets, or a dash where there is none."""
        if self.rank is None:
            return "–"
        return f"({self.rank})" if self.bracketed else str(self.rank)


@dataclass(frozen=True, eq=False)
class RankTable:
    """Models of one norm, best first and those in doubt last, with their curves."""

    norm: str
    data: str
    queries: int  # the common tier
    samples: int
    E: float  # where the defence frontier ends, and every area with it
    rows: tuple[RankRow, ...]
    curves: dict[str, Curve]
    frontier: Curve

    @property
    def ranked(self) -> int:
        """Count the models that take a rank."""
        return sum(not row.bracketed for row in self.rows)

    @property
    def radii(self) -> tuple[str, ...]:
        """Return the radii of the robust accuracies."""
        return tuple(self.rows[0].robust)

    def row(self, model: str) -> RankRow:
        """Return the row of one of the models."""
        return next(row for row in self.rows if row.model == model)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rank tables: one per norm, and one over the norms that all models share."""

    norms: tuple[RankTable, ...]
    shared: tuple[str, ...]  # the norms that every model was evaluated in
    overall: tuple[RankRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it: infinite numbers are "inf", what is not known is null."""
        content: dict[str, Any] = jsonable(self)
        return content


def rank(
    pools: Mapping[str, ReferencePool],
    *,
    given: Collection[str] = (),
    radii: Mapping[str, Mapping[str, float]] | None = None,
    resamples: int = RESAMPLES,
) -> Ranking:
    """Rank the models of one pool per norm, in the order of the norms.

    `given` are the models asked about, `radii` of every norm where to read robust accuracy, by the
    radius as it is written.
    """
    if not pools:
        raise FrontierError(
            "nothing to rank: expected at least one record, such as `advfrontier rank runs/*`"
        )
    tables = {
        norm: rank_table(pool, given=given, radii=(radii or {}).get(norm, {}), resamples=resamples)
        for norm, pool in pools.items()
    }
    models = {model for pool in pools.values() for model in pool.distances}
    shared = tuple(norm for norm, pool in pools.items() if models <= set(pool.distances))
    overall: tuple[RankRow, ...] = ()
    if len(shared) > 1:
        overall = mean_rows([tables[norm] for norm in shared])
        joint = [pools[norm] for norm in shared]
        if len({frozenset(pool.samples) for pool in joint}) == 1:
            intervals, ranges = (
                doi_intervals(*joint, resamples=resamples),
                rank_ranges(*joint, resamples=resamples),
            )
            overall = tuple(
                replace(row, doi=intervals[row.model], ranks=ranges[row.model])
                if row.doi.known
                else row
                for row in overall
            )
    return Ranking(tuple(tables.values()), shared, overall)


def rank_table(
    pool: ReferencePool,
    *,
    given: Collection[str] = (),
    radii: Mapping[str, float] | None = None,
    resamples: int = RESAMPLES,
) -> RankTable:
    """All models of a pool by DOI; equal DOIs share the better rank."""
    flagged, limit = pool.flagged, pool.end
    intervals, ranges = (
        doi_intervals(pool, resamples=resamples),
        rank_ranges(pool, resamples=resamples),
    )
    rows = [
        RankRow(
            model=name,
            rank=None,
            ranks=ranges[name] if intervals[name].known else None,
            doi=intervals[name],
            bracketed=name in flagged,
            given=name in given,
            flags=flagged.get(name, ()),
            aurec=aurec(d, E=limit).value,
            clean_accuracy=float((d > 0).mean()),
            median=distance_quantile(d, 0.5),
            robust={label: robust_accuracy(d, epsilon) for label, epsilon in (radii or {}).items()},
        )
        for name, d in pool.distances.items()
    ]
    curves = {name: Curve.of(d) for name, d in pool.distances.items()}
    frontier = Curve.of(pool.frontier)
    return RankTable(
        pool.norm,
        pool.dataset,
        pool.queries,
        len(pool.samples),
        limit,
        _ordered(rows),
        curves,
        frontier,
    )


def mean_rows(tables: Sequence[RankTable]) -> tuple[RankRow, ...]:
    """Return the models over several norms, by mean DOI; a model that lacks a norm has none."""
    found: dict[str, dict[str, RankRow]] = {}
    for table in tables:
        for row in table.rows:
            found.setdefault(row.model, {})[table.norm] = row
    rows = []
    for name, parts in found.items():
        dois = {norm: row.doi.estimate for norm, row in parts.items()}
        mean = float(np.mean(list(dois.values()))) if len(parts) == len(tables) else math.nan
        doubt, given = (
            any(row.bracketed for row in parts.values()),
            any(row.given for row in parts.values()),
        )
        rows.append(
            RankRow(name, None, None, Interval(mean, math.nan, math.nan), doubt, given, dois=dois)
        )
    return _ordered(rows)


def doi_intervals(*pools: ReferencePool, resamples: int = RESAMPLES) -> dict[str, Interval]:
    """Return intervals for the DOI of every model, or for its mean over several norms.

    They hold for this pool of models. While every sample was broken, E cuts nothing off and needs
    no choosing.
    """
    names, own, best, trusted = _columns(pools)
    limits = [(0.0, 1.0 if trust else math.inf) for trust in trusted]
    whole = np.broadcast_to(best[:, None], own.shape)
    found = ratio_intervals(own, whole, limits=limits, resamples=resamples)
    intervals = {}
    for name, interval in zip(names, found, strict=True):
        measures = [pool.doi(name) for pool in pools]
        notes = [flag for measure in measures for flag in measure.flags]
        if any(math.isnan(measure.value) for measure in measures):
            intervals[name] = Interval.unknown(*dict.fromkeys(notes))
        else:
            intervals[name] = replace(
                interval, flags=tuple(dict.fromkeys((*notes, *interval.flags)))
            )
    return intervals


def rank_ranges(*pools: ReferencePool, resamples: int = RESAMPLES) -> dict[str, tuple[int, int]]:
    """Return the ranks between which each model lies in the middle 95 % of resamples.

    Not a confidence: ranks jump, and where two models are truly equal no number of samples tells
    which is first. Read it as how easily other samples would have given another order.
    """
    names, own, best, trusted = _columns(pools)
    counts = np.zeros((len(names), len(names)))
    for weights in resampled(own.shape[-1], resamples):
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.mean(
                [
                    (weights @ mine.T) / (weights @ most)[:, None]
                    for mine, most in zip(own, best, strict=True)
                ],
                0,
            )
        ranks = _ranks(scores, trusted)
        counts += (ranks[:, :, None] == np.arange(1, len(names) + 1)).sum(axis=0)
    return {
        name: rank_range(shares) for name, shares in zip(names, counts / resamples, strict=True)
    }


def rank_range(shares: NDArray[np.float64]) -> tuple[int, int]:
    """Return the ranks of the middle 95 % of the resamples, from a model's share of each rank."""
    summed, tail, rounding = np.cumsum(shares), (1 - LEVEL) / 2, 1e-9
    return int(np.searchsorted(summed, tail + rounding)) + 1, int(
        np.searchsorted(summed, 1 - tail - rounding)
    ) + 1


def _columns(
    pools: Sequence[ReferencePool],
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64], list[bool]]:
    """Return names, clipped distances (norm, model, sample) and frontiers, and who is trusted."""
    names = tuple(pools[0].distances)
    aligned = [pool.on(pools[0].samples) for pool in pools]
    own = np.stack(
        [[np.minimum(pool.distances[name], pool.end) for name in names] for pool in aligned]
    )
    best = np.stack([np.minimum(pool.frontier, pool.end) for pool in aligned])
    flagged = {name for pool in pools for name in pool.flagged}
    return names, own, best, [name not in flagged for name in names]


def _ranks(scores: NDArray[np.float64], trusted: Sequence[bool]) -> NDArray[np.int64]:
    """Rank along the last axis, largest score first: 1 + the trusted models that score more."""
    rounded = np.round(scores, 12)  # equal figures whose sums were rounded differently stay equal
    above = rounded[..., np.asarray(trusted)][..., None, :] > rounded[..., :, None]
    return np.asarray(1 + above.sum(axis=-1), dtype=np.int64)


def _ordered(rows: Sequence[RankRow]) -> tuple[RankRow, ...]:
    """Sort the rows: trusted models by DOI, then those in doubt, then those without a DOI."""
    scores = np.array([row.doi.estimate for row in rows])
    ranks = _ranks(scores, [not row.bracketed for row in rows]).tolist()
    known = [
        replace(row, rank=rank if row.doi.known else None)
        for row, rank in zip(rows, ranks, strict=True)
    ]
    return tuple(
        sorted(
            known,
            key=lambda row: (
                row.bracketed,
                not row.doi.known,
                -np.nan_to_num(row.doi.estimate),
                row.model,
            ),
        )
    )
