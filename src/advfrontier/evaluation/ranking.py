"""Ranking: models by DOI, in each norm and across norms, with how easily other samples would have ordered them.

All models of a table stand on the same samples and the same tier. A record that went further is read back at the
common tier, which costs nothing: every tier is a prefix of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.engine.checks import TRAINING
from advfrontier.errors import FrontierError
from advfrontier.evaluation.identity import SEVERAL
from advfrontier.evaluation.plain import CurveData, plain
from advfrontier.frontier.confidence import RESAMPLES, Interval, doi_intervals, rank_shares
from advfrontier.frontier.curve import distance_quantile, epsilon_min
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.measure import as_distances, ranks_among
from advfrontier.threat.names import NORMS, norm_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.record import Evaluation

_BATCH = 4_000_000  # drawn samples held at a time
_LEVEL = 0.95


@dataclass(frozen=True)
class RankRow:
    """One model in one norm. A bracketed model has the rank it would have, and takes nobody's."""

    model: str
    rank: int
    ranks: tuple[int, int]  # the middle 95 % of its ranks when samples are drawn again
    doi: Interval
    aurec: float  # up to the E of its table
    clean_accuracy: float
    median: float
    bracketed: bool
    given: bool  # one of the records asked about, not a model of the reference pool
    flags: tuple[str, ...]
    curve: CurveData

    @property
    def position(self) -> str:
        """The rank as printed: `3`, or `(3)` in brackets."""
        return bracketed(self.rank, self.bracketed)


@dataclass(frozen=True)
class NormRanking:
    """The models of one norm, best first."""

    norm: str
    data: str
    queries: int  # the common tier
    samples: int
    E: float  # where the defence frontier ends, and every area with it
    rows: tuple[RankRow, ...]
    frontier: CurveData


@dataclass(frozen=True)
class OverallRow:
    """One model over several norms."""

    model: str
    rank: int
    ranks: tuple[int, int] | None  # None where the norms were not evaluated on the same samples
    mean_doi: Interval
    doi: dict[str, float]  # per norm
    bracketed: bool  # in any of the norms
    given: bool

    @property
    def position(self) -> str:
        """The rank as printed: `3`, or `(3)` in brackets."""
        return bracketed(self.rank, self.bracketed)


@dataclass(frozen=True)
class Ranking:
    """Rank tables: one per norm, and one over the norms that all models share, if these are two or more."""

    norms: tuple[NormRanking, ...]
    shared: tuple[str, ...]  # the norms that every model was evaluated in
    overall: tuple[OverallRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it: infinite numbers are "inf"."""
        content: dict[str, Any] = plain(self)
        return content


def bracketed(rank: int, brackets: bool) -> str:  # noqa: FBT001 - one word each, in this order
    """A rank as printed."""
    return f"({rank})" if brackets else str(rank)


def select_samples(pool: ReferencePool, samples: Sequence[str]) -> ReferencePool:
    """The pool on these of its samples, in this order."""
    if tuple(samples) == pool.samples:
        return pool
    place = {sample: i for i, sample in enumerate(pool.samples)}
    if missing := [sample for sample in samples if sample not in place]:
        raise FrontierError(
            f"{len(missing)} of {len(samples)} samples are not among the {len(pool.samples)} of the reference pool "
            f"({pool.dataset}, {pool.norm}): expected some of its samples; type --data {pool.dataset}"
        )
    rows = np.array([place[sample] for sample in samples])
    return replace(
        pool,
        samples=tuple(samples),
        distances={model: np.asarray(d, dtype=np.float64)[rows] for model, d in pool.distances.items()},
    )


def reached(evaluation: Evaluation) -> int:
    """The tier an evaluation stands at: the budget its ensemble was made for."""
    return evaluation.ensemble.tiers[-1] if evaluation.ensemble.tiers else 0


def distances_at_tier(evaluation: Evaluation, queries: int) -> NDArray[np.float64]:
    """The distances of a record at a tier it has reached or passed."""
    found = reached(evaluation)
    if found == queries:
        return as_distances(evaluation.distances)
    if queries in evaluation.ensemble.tiers:
        return as_distances(evaluation.distances_at(queries))
    if found < queries:
        cure = f"type `advfrontier extend` with its folder and --tier {queries}"
    else:
        tiers = ", ".join(str(tier) for tier in evaluation.ensemble.tiers)
        cure = f"its ensemble {evaluation.ensemble.name} has no such stage ({tiers} only): evaluate it with another"
    raise FrontierError(
        f"{evaluation.model} was evaluated in {evaluation.norm} with {found} queries, the others with {queries}: "
        f"expected equal tiers; {cure}"
    )


def own_flags(evaluation: Evaluation) -> tuple[str, ...]:
    """The flags of a record but for samples never broken, which are counted anew at the tier that is looked at."""
    return tuple(flag for flag in evaluation.flags if "never broken" not in flag)


def doubts(evaluation: Evaluation) -> tuple[str, ...]:
    """The flags that say its distances may be too large; train mode and other rounding are none of them."""
    return tuple(flag for flag in own_flags(evaluation) if flag != TRAINING.text and not flag.startswith(SEVERAL))


def enter(pool: ReferencePool, evaluation: Evaluation) -> ReferencePool:
    """The pool on the evaluation's samples, with the evaluation as one of its models.

    A model of the pool that has the same name, or the name without `zoo:`, is the same one and gives way.
    """
    if norm_name(evaluation.norm) != pool.norm:
        raise FrontierError(
            f"{evaluation.model} was evaluated in {evaluation.norm}, the reference pool in {pool.norm}: "
            "there is no DOI across norms"
        )
    return _put(select_samples(pool, evaluation.samples), evaluation)


def same_model(first: str, second: str) -> bool:
    """Whether two names mean one model: `zoo:F3` is `F3`."""
    return first.removeprefix("zoo:") == second.removeprefix("zoo:")


def _put(pool: ReferencePool, evaluation: Evaluation) -> ReferencePool:
    """The pool with one more model, which was evaluated on the pool's samples in any order."""
    why = doubts(evaluation)
    return replace(
        pool,
        distances={
            **{model: d for model, d in pool.distances.items() if not same_model(model, evaluation.model)},
            evaluation.model: _aligned(evaluation, pool.queries, pool.samples),
        },
        flags={
            **{model: flags for model, flags in pool.flags.items() if not same_model(model, evaluation.model)},
            **({evaluation.model: why} if why else {}),
        },
    )


def _aligned(evaluation: Evaluation, queries: int, samples: Sequence[str]) -> NDArray[np.float64]:
    place = {sample: i for i, sample in enumerate(evaluation.samples)}
    return distances_at_tier(evaluation, queries)[[place[sample] for sample in samples]]


def rank(
    evaluations: Iterable[Evaluation],
    *,
    reference: Mapping[str, ReferencePool] | None = None,
    resamples: int = RESAMPLES,
) -> Ranking:
    """Rank models by DOI against each other and, where given, against the reference pool of the norm.

    Without any records the reference pools are ranked as they are.
    """
    by_norm: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_norm.setdefault(norm_name(evaluation.norm), []).append(evaluation)
    pools = dict(reference or {}) if not by_norm else {}
    if not by_norm and not pools:
        raise FrontierError("nothing to rank: expected at least one record, such as `advfrontier rank runs/*`")
    for norm, found in by_norm.items():
        pools[norm] = _joint_pool(found, (reference or {}).get(norm))
    pools = {norm: pools[norm] for norm in NORMS if norm in pools}
    given = {norm: {evaluation.model for evaluation in by_norm.get(norm, ())} for norm in pools}
    tables = tuple(_ranked(pool, given[norm], resamples) for norm, pool in pools.items())
    models = {model for pool in pools.values() for model in pool.distances}
    shared = tuple(norm for norm, pool in pools.items() if models <= set(pool.distances))
    overall = _overall({norm: pools[norm] for norm in shared}, given, resamples) if len(shared) > 1 else ()
    return Ranking(tables, shared, overall)


def _joint_pool(evaluations: Sequence[Evaluation], reference: ReferencePool | None) -> ReferencePool:
    """All records of one norm, and the reference models, on the same samples and tier."""
    first = evaluations[0]
    names = [evaluation.model for evaluation in evaluations]
    if twice := {name for name in names if names.count(name) > 1}:
        raise FrontierError(
            f"{' and '.join(sorted(twice))} comes more than once in {first.norm}: expected one record per model and "
            "norm; leave the others out"
        )
    for evaluation in evaluations[1:]:
        if set(evaluation.samples) != set(first.samples):
            extra = len(set(evaluation.samples) - set(first.samples))
            missing = len(set(first.samples) - set(evaluation.samples))
            raise FrontierError(
                f"{evaluation.model} and {first.model} were evaluated in {first.norm} on different samples ({extra} "
                f"only in the former, {missing} only in the latter): expected the same; evaluate both with the same "
                "--data, --samples and --sample-seed"
            )
    if reference:
        pool = select_samples(reference, first.samples)
        for evaluation in evaluations:
            pool = _put(pool, evaluation)
        return pool
    queries = min(reached(evaluation) for evaluation in evaluations)
    found = {e.model: _aligned(e, queries, first.samples) for e in evaluations}
    flags = {e.model: doubts(e) for e in evaluations if doubts(e)}
    return ReferencePool(first.norm, first.data, queries, tuple(first.samples), found, flags)


def _ranked(pool: ReferencePool, given: set[str], resamples: int) -> NormRanking:
    flagged = pool.flagged
    E = epsilon_min(pool.frontier()).value
    intervals = doi_intervals(pool.distances, flagged=flagged, resamples=resamples)
    names, shares = rank_shares(pool.distances, flagged=flagged, resamples=resamples)
    spread = {name: rank_interval(share) for name, share in zip(names, shares, strict=True)}
    rows = tuple(
        RankRow(
            model=row.model,
            rank=row.rank,
            ranks=spread[row.model],
            doi=intervals[row.model],
            aurec=row.aurec,
            clean_accuracy=float((pool.distances[row.model] > 0).mean()),
            median=distance_quantile(pool.distances[row.model], 0.5),
            bracketed=row.bracketed,
            given=row.model in given,
            flags=tuple(dict.fromkeys((*flagged.get(row.model, ()), *intervals[row.model].flags))),
            curve=CurveData.of(pool.distances[row.model]),
        )
        for row in pool.rank()
    )
    return NormRanking(pool.norm, pool.dataset, pool.queries, len(pool.samples), E, rows, CurveData.of(pool.frontier()))


def rank_interval(shares: NDArray[np.float64], level: float = _LEVEL) -> tuple[int, int]:
    """The ranks between which a model lies in the middle `level` of the resamples, from its share of each rank."""
    summed, tail, rounding = np.cumsum(shares), (1 - level) / 2, 1e-9
    return int(np.searchsorted(summed, tail + rounding)) + 1, int(np.searchsorted(summed, 1 - tail - rounding)) + 1


def _overall(
    pools: Mapping[str, ReferencePool], given: Mapping[str, set[str]], resamples: int
) -> tuple[OverallRow, ...]:
    """Mean DOI over norms; resampled together where all norms stand on the same samples."""
    names = tuple(next(iter(pools.values())).distances)
    trusted = [all(name not in pool.flagged for pool in pools.values()) for name in names]
    frontiers = {norm: pool.frontier() for norm, pool in pools.items()}
    ends = {norm: epsilon_min(frontier).value for norm, frontier in frontiers.items()}
    own = {
        norm: np.stack([np.minimum(pool.distances[name], ends[norm]) for name in names]) for norm, pool in pools.items()
    }
    best = {norm: np.minimum(frontiers[norm], ends[norm]) for norm in pools}
    dois = {norm: {name: pool.doi(name).value for name in names} for norm, pool in pools.items()}
    means = np.array([np.mean([dois[norm][name] for norm in pools]) for name in names])
    ranks = ranks_among(means, trusted)
    replicates = None
    if len({frozenset(pool.samples) for pool in pools.values()}) == 1:
        order = {norm: np.argsort(np.array(pool.samples)) for norm, pool in pools.items()}
        replicates = _mean_dois(
            {norm: table[:, order[norm]] for norm, table in own.items()},
            {norm: row[order[norm]] for norm, row in best.items()},
            resamples,
        )
    rows = []
    for i, name in enumerate(names):
        interval, spread = Interval(float(means[i]), float("nan"), float("nan")), None
        if replicates is not None:
            low, high = np.quantile(replicates[:, i], [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
            interval = Interval(float(means[i]), float(low), float(high))
            found = ranks_among(replicates, trusted)[:, i]
            spread = rank_interval(np.bincount(found - 1, minlength=len(names)) / len(found))
        rows.append(
            OverallRow(
                model=name,
                rank=int(ranks[i]),
                ranks=spread,
                mean_doi=interval,
                doi={norm: dois[norm][name] for norm in pools},
                bracketed=not trusted[i],
                given=any(name in given[norm] for norm in pools),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.mean_doi.estimate, row.model)))


def _mean_dois(
    own: Mapping[str, NDArray[np.float64]], best: Mapping[str, NDArray[np.float64]], resamples: int
) -> NDArray[np.float64]:
    """Mean DOI of every model over the norms in each resample, an array (resample, model)."""
    n = next(iter(best.values())).size
    rng = np.random.default_rng(0)
    parts = []
    step = max(1, _BATCH // n)
    for start in range(0, resamples, step):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(step, resamples - start)).astype(np.float64)
        with np.errstate(invalid="ignore"):
            each = [(weights @ own[norm].T) / (weights @ best[norm])[:, None] for norm in own]
        parts.append(np.mean(np.nan_to_num(each, nan=1.0), axis=0))  # no sample with a distance: 1 by definition
    return np.concatenate(parts)
