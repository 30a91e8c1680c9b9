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
    """Row of one model: in one norm, or over several, where DOI is the mean.

    Args:
        model: Name of the model.
        rank: Rank from 1; None where there is no DOI.
        ranks: First and last rank of the middle 95 % of resamples; None if not known.
        doi: DOI with its interval over samples.
        bracketed: Whether the model is in doubt; over several norms, in any of them.
        given: Whether the user asked about it; otherwise it is of the reference pool.
        flags: Reasons for the doubt.
        aurec: AUREC up to the E of its table, in units of the norm.
        clean_accuracy: Accuracy on unperturbed samples, in [0, 1].
        median: Median distance, in units of the norm.
        robust: Robust accuracy by radius as written.
        dois: Over several norms: the DOI in each.
    """

    model: str
    rank: int | None
    ranks: tuple[int, int] | None
    doi: Interval
    bracketed: bool
    given: bool
    flags: tuple[Flag, ...] = ()
    aurec: float | None = None
    clean_accuracy: float | None = None
    median: float | None = None
    robust: dict[str, float] = field(default_factory=dict)
    dois: dict[str, float] = field(default_factory=dict)

    @property
    def position(self) -> str:
        """Return the rank as printed: `3`, `(3)` in brackets, or a dash where there is none."""
        if self.rank is None:
            return "–"
        return f"({self.rank})" if self.bracketed else str(self.rank)


@dataclass(frozen=True, eq=False)
class RankTable:
    """Models of one norm, best first and those in doubt last, with their curves.

    Args:
        norm: Name of the norm of the distances.
        data: Name of the data.
        queries: Queries of the common tier.
        samples: Number of samples.
        E: End of the defence frontier, up to which areas are taken.
        rows: Rows, best model first.
        curves: Model to its curve.
        frontier: Curve of the defence frontier.
    """

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
        """Return the row of one of the models.

        Args:
            model: Name of a model of the table.
        """
        return next(row for row in self.rows if row.model == model)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rank tables: one per norm, and one over the norms that all models share.

    Args:
        norms: One table per norm.
        shared: Norms that every model was evaluated in.
        overall: Rows over these norms.
    """

    norms: tuple[RankTable, ...]
    shared: tuple[str, ...]  # the norms that every model was evaluated in
    overall: tuple[RankRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields for JSON: infinite numbers are "inf", unknown ones null."""
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

    Args:
        pools: Norm → models evaluated in it.
        given: Names of the models the user asked about.
        radii: Norm → radius as written → ε at which robust accuracy is read.
        resamples: Bootstrap resamples for intervals and ranges of ranks.
    """
    if not pools:
        raise FrontierError(
            "nothing to rank: expected at least one record, such as `advfrontier rank runs/*`"
        )
    tables = {}
    models: set[str] = set()
    for norm, pool in pools.items():
        epsilons = (radii or {}).get(norm, {})
        tables[norm] = rank_table(pool, given=given, radii=epsilons, resamples=resamples)
        models.update(pool.distances)
    shared = tuple(norm for norm, pool in pools.items() if models <= set(pool.distances))
    overall: tuple[RankRow, ...] = ()
    if len(shared) > 1:
        overall = mean_rows([tables[norm] for norm in shared])
        joint = [pools[norm] for norm in shared]
        if _same_samples(joint):
            overall = _with_intervals(overall, joint, resamples)
    return Ranking(tuple(tables.values()), shared, overall)


def _same_samples(pools: Sequence[ReferencePool]) -> bool:
    """Return whether all pools are on the same samples, in any order."""
    first = set(pools[0].samples)
    return all(set(pool.samples) == first for pool in pools)


def _with_intervals(
    rows: Sequence[RankRow], pools: Sequence[ReferencePool], resamples: int
) -> tuple[RankRow, ...]:
    """Return rows over several norms with intervals of their mean DOI and ranges of ranks."""
    intervals = doi_intervals(*pools, resamples=resamples)
    ranges = rank_ranges(*pools, resamples=resamples)
    complete = []
    for row in rows:
        if row.doi.known:
            complete.append(replace(row, doi=intervals[row.model], ranks=ranges[row.model]))
        else:
            complete.append(row)
    return tuple(complete)


def rank_table(
    pool: ReferencePool,
    *,
    given: Collection[str] = (),
    radii: Mapping[str, float] | None = None,
    resamples: int = RESAMPLES,
) -> RankTable:
    """Rank all models of a pool by DOI; equal DOIs share the better rank.

    Args:
        pool: Models evaluated on the same samples in one norm.
        given: Names of the models the user asked about.
        radii: Radius as written → ε at which robust accuracy is read.
        resamples: Bootstrap resamples for intervals and ranges of ranks.
    """
    flagged = pool.flagged
    intervals = doi_intervals(pool, resamples=resamples)
    ranges = rank_ranges(pool, resamples=resamples)
    rows = []
    curves = {}
    for name, distances in pool.distances.items():
        doi = intervals[name]
        robust = {}
        for label, epsilon in (radii or {}).items():
            robust[label] = robust_accuracy(distances, epsilon)
        row = RankRow(
            model=name,
            rank=None,
            ranks=ranges[name] if doi.known else None,
            doi=doi,
            bracketed=name in flagged,
            given=name in given,
            flags=flagged.get(name, ()),
            aurec=aurec(distances, E=pool.end).value,
            clean_accuracy=float((distances > 0).mean()),
            median=distance_quantile(distances, 0.5),
            robust=robust,
        )
        rows.append(row)
        curves[name] = Curve.of(distances)
    return RankTable(
        norm=pool.norm,
        data=pool.dataset,
        queries=pool.queries,
        samples=len(pool.samples),
        E=pool.end,
        rows=_ordered(rows),
        curves=curves,
        frontier=Curve.of(pool.frontier),
    )


def mean_rows(tables: Sequence[RankTable]) -> tuple[RankRow, ...]:
    """Return the models over several norms, by mean DOI; a model that lacks a norm has none.

    Args:
        tables: One table per norm.
    """
    by_model: dict[str, dict[str, RankRow]] = {}
    for table in tables:
        for row in table.rows:
            by_model.setdefault(row.model, {})[table.norm] = row
    means = []
    for name, rows in by_model.items():
        dois = {norm: row.doi.estimate for norm, row in rows.items()}
        complete = len(rows) == len(tables)
        mean = float(np.mean(list(dois.values()))) if complete else math.nan
        mean_row = RankRow(
            model=name,
            rank=None,
            ranks=None,
            doi=Interval(mean, math.nan, math.nan),
            bracketed=any(row.bracketed for row in rows.values()),
            given=any(row.given for row in rows.values()),
            dois=dois,
        )
        means.append(mean_row)
    return _ordered(means)


def doi_intervals(*pools: ReferencePool, resamples: int = RESAMPLES) -> dict[str, Interval]:
    """Return intervals for the DOI of every model, or for its mean over several norms.

    They hold for this pool of models. While every sample was broken, E cuts nothing off and needs
    no choosing.

    Args:
        pools: One pool per norm, of the same models.
        resamples: Number of bootstrap resamples.
    """
    names, own, best, trusted = _columns(pools)
    limits = [(0.0, 1.0 if trust else math.inf) for trust in trusted]
    whole = np.broadcast_to(best[:, None], own.shape)
    estimates = ratio_intervals(own, whole, limits=limits, resamples=resamples)
    intervals = {}
    for name, interval in zip(names, estimates, strict=True):
        known = True
        flags: dict[str, None] = {}  # in order, each once
        for pool in pools:
            measure = pool.doi(name)
            known = known and not math.isnan(measure.value)
            flags |= dict.fromkeys(measure.flags)
        if known:
            flags |= dict.fromkeys(interval.flags)
            intervals[name] = replace(interval, flags=tuple(flags))
        else:
            intervals[name] = Interval.unknown(*flags)
    return intervals


def rank_ranges(*pools: ReferencePool, resamples: int = RESAMPLES) -> dict[str, tuple[int, int]]:
    """Return the ranks between which each model lies in the middle 95 % of resamples.

    Not a confidence: ranks jump, and where two models are truly equal no number of samples tells
    which is first. Read it as how easily other samples would have given another order.

    Args:
        pools: One pool per norm, of the same models.
        resamples: Number of bootstrap resamples.
    """
    names, own, best, trusted = _columns(pools)
    counts = np.zeros((len(names), len(names)))
    for weights in resampled(own.shape[-1], resamples):
        dois = []  # (resample, model) per norm
        with np.errstate(divide="ignore", invalid="ignore"):
            for distances, frontier in zip(own, best, strict=True):
                dois.append((weights @ distances.T) / (weights @ frontier)[:, None])
        ranks = _ranks(np.mean(dois, axis=0), trusted)
        counts += (ranks[:, :, None] == np.arange(1, len(names) + 1)).sum(axis=0)
    ranges = {}
    for name, shares in zip(names, counts / resamples, strict=True):
        ranges[name] = rank_range(shares)
    return ranges


def rank_range(shares: NDArray[np.float64]) -> tuple[int, int]:
    """Return the ranks of the middle 95 % of the resamples, from a model's share of each rank.

    Args:
        shares: Share of the resamples per rank, (ranks,).
    """
    cumulated = np.cumsum(shares)
    tail, rounding = (1 - LEVEL) / 2, 1e-9
    first = int(np.searchsorted(cumulated, tail + rounding)) + 1
    last = int(np.searchsorted(cumulated, 1 - tail - rounding)) + 1
    return first, last


def _columns(
    pools: Sequence[ReferencePool],
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64], list[bool]]:
    """Return names, clipped distances (norm, model, sample) and frontiers, and who is trusted."""
    names = tuple(pools[0].distances)
    own, best = [], []
    flagged: set[str] = set()
    for pool in pools:
        aligned = pool.on(pools[0].samples)
        distances = np.stack([aligned.distances[name] for name in names])
        own.append(np.minimum(distances, aligned.end))
        best.append(np.minimum(aligned.frontier, aligned.end))
        flagged.update(pool.flagged)
    trusted = [name not in flagged for name in names]
    return names, np.stack(own), np.stack(best), trusted


def _ranks(scores: NDArray[np.float64], trusted: Sequence[bool]) -> NDArray[np.int64]:
    """Rank along the last axis, largest score first: 1 + the trusted models that score more."""
    rounded = np.round(scores, 12)  # equal figures whose sums were rounded differently stay equal
    above = rounded[..., np.asarray(trusted)][..., None, :] > rounded[..., :, None]
    return np.asarray(1 + above.sum(axis=-1), dtype=np.int64)


def _ordered(rows: Sequence[RankRow]) -> tuple[RankRow, ...]:
    """Sort the rows: trusted models by DOI, then those in doubt, then those without a DOI."""
    scores = np.array([row.doi.estimate for row in rows])
    ranks = _ranks(scores, [not row.bracketed for row in rows]).tolist()
    ranked = []
    for row, rank in zip(rows, ranks, strict=True):
        ranked.append(replace(row, rank=rank if row.doi.known else None))
    return tuple(sorted(ranked, key=_place))


def _place(row: RankRow) -> tuple[bool, bool, float, str]:
    """Return the key that orders rows."""
    doi = float(np.nan_to_num(row.doi.estimate))
    return row.bracketed, not row.doi.known, -doi, row.model
