"""Summaries: every figure of an evaluation that tables, reports and JSON show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier.engine import LAST_LOOK
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import as_pool, embedded_pool, ensemble_notes, reached
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.further import FIRST, Further, expected_change
from advfrontier.evaluation.radii import Radius, chosen_radii, reference_radii
from advfrontier.evaluation.samples import PICTURES, GalleryItem, pictures
from advfrontier.flags import Flag, Kind
from advfrontier.frontier.confidence import (
    Interval,
    aurec_interval,
    curve_margin,
    robust_accuracy_interval,
    wilson,
)
from advfrontier.frontier.curve import Curve, distance_quantile, epsilon_min
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.measure import as_distances, unbroken_flag
from advfrontier.frontier.ranking import RankRow, RankTable, rank_table
from advfrontier.jsonable import jsonable
from advfrontier.pool import TIERS

SCHEMA = 3  # of `to_dict`; raised when a field changes its meaning or goes away
_BUDGETS = 36  # points of AUREC against queries, beside the tiers
_AS_IT_IS = (
    "model",
    "data",
    "norm",
    "seed",
    "samples",
    "counts",
    "commands",
    "versions",
    "seconds",
)


@dataclass(frozen=True)
class RobustAt:
    """Robust accuracy at one radius.

    Args:
        label: Radius as it was asked for, such as `8/255`.
        epsilon: Radius in units of the norm.
        accuracy: Robust accuracy with its 95 % interval.
        customary: Whether it is the radius that people quote first for this data.
    """

    label: str
    epsilon: float
    accuracy: Interval
    customary: bool = False


@dataclass(frozen=True)
class Averaged:
    """Passes per query, and the share of fresh passes that misclassifies the points.

    Args:
        eot: Passes per query.
        passes: Fresh passes over each point found.
        lowest: Least share of fresh passes that misclassifies a point; NaN where no point was
            found.
        median: Median of these shares; NaN where no point was found.
    """

    eot: int
    passes: int
    lowest: float
    median: float

    @classmethod
    def of(cls, evaluation: Evaluation) -> Averaged | None:
        """Return the figures of an evaluation with EOT.

        Args:
            evaluation: Finished evaluation.
        """
        if evaluation.shares is None:
            return None
        known = evaluation.shares[~np.isnan(evaluation.shares)]
        lowest, median = (known.min(), np.median(known)) if known.size else (math.nan, math.nan)
        return cls(evaluation.eot, LAST_LOOK, round(float(lowest), 4), round(float(median), 4))


@dataclass(frozen=True)
class Certified:
    """Certified figures: the true curve lies between this curve and the attacks'.

    Args:
        radii: Per sample a radius within which no point is misclassified.
        robust: Certified accuracy at the radii of the robust accuracy.
        median: Median certified radius, in units of the norm.
        curve: Certified accuracy against the radius.
    """

    radii: tuple[float, ...]
    robust: tuple[RobustAt, ...]
    median: float
    curve: Curve

    @classmethod
    def of(cls, radii: NDArray[np.float64] | None, epsilons: Sequence[Radius]) -> Certified | None:
        """Return figures of certified radii, if there are any.

        Args:
            radii: (n,), certified radius of each sample; None if `certify` was not run.
            epsilons: Radii to read, each with its label.
        """
        if radii is None:
            return None
        robust = tuple(
            RobustAt(label, ε, robust_accuracy_interval(radii, ε)) for label, ε in epsilons
        )
        return cls(tuple(radii.tolist()), robust, distance_quantile(radii, 0.5), Curve.of(radii))


@dataclass(frozen=True)
class Standing:
    """Standing of a model in a reference pool, or among models shown with it, at one tier.

    Args:
        row: Row of the model in the table.
        of: Number of models that take a rank.
        table: Table of all models.
    """

    row: RankRow
    of: int
    table: RankTable

    @property
    def position(self) -> str:
        """`3 of 17`, or `(3) of 17` for a model whose distances cannot be trusted."""
        return (
            f"{self.row.position} of {self.of}" if self.row.rank is not None else self.row.position
        )

    @property
    def referenced(self) -> bool:
        """Return whether the table holds reference models, beside those asked about."""
        return any(not row.given for row in self.table.rows)


@dataclass(frozen=True, eq=False)
class Together:
    """Models of one norm that are shown together, with one E and their ranks.

    Args:
        E: Common end of the areas, in units of the norm.
        table: Ranks of the models; None if they cannot be ranked together.
        no_table: Reason why they cannot be ranked.
    """

    E: float
    table: RankTable | None = None
    no_table: str | None = None

    @classmethod
    def of(
        cls, evaluations: Sequence[Evaluation], reference: ReferencePool | None = None
    ) -> Together:
        """Rank evaluations at their common queries, or at those of a reference pool.

        Args:
            evaluations: Evaluations in one norm, one per model.
            reference: Reference pool to rank them in.
        """
        try:
            table = rank_table(
                as_pool(evaluations, reference), given=tuple(one.model for one in evaluations)
            )
        except FrontierError as error:
            return cls(
                max(epsilon_min(evaluation.distances).value for evaluation in evaluations),
                no_table=str(error),
            )
        return cls(table.E, table)


@dataclass(frozen=True)
class QueryCurve:
    """AUREC against queries per sample, all up to one E; empty where there is no AUREC.

    Args:
        queries: Queries per sample, rising.
        aurec: AUREC after each of these, in units of the norm.
        tiers: Those of the queries at which a tier was complete.
    """

    queries: tuple[int, ...] = ()
    aurec: tuple[float, ...] = ()
    tiers: tuple[int, ...] = ()

    def at_tiers(self) -> list[float]:
        """AUREC at each of the tiers."""
        found = dict(zip(self.queries, self.aurec, strict=True))
        return [found[tier] for tier in self.tiers]


@dataclass(frozen=True)
class Win:
    """On how many of the broken samples a run found the smallest perturbation.

    Args:
        run: Name of the run.
        samples: Broken samples on which it found the smallest perturbation.
        share: Their share of all broken samples.
    """

    run: str
    samples: int
    share: float


@dataclass(frozen=True)
class NormSummary:
    """Summary of one evaluation: one model, one norm.

    Args:
        model: Display name of the model.
        data: Display name of the data.
        norm: Name of the norm.
        ensemble: Name of the ensemble.
        tier: Queries per sample that the ensemble was made for.
        seed: Seed of the base runs.
        samples: Ids of the samples.
        distances: Distance per sample: 0 where misclassified unperturbed, inf where never broken.
        misclassified: Number of samples that are misclassified unperturbed.
        unbroken: Number of samples that were never broken.
        clean: Accuracy on unperturbed samples.
        robust: Robust accuracy at each radius.
        median: Smallest ε that breaks half of all samples; inf if none does.
        averaged: Figures of models that answer at random; None without EOT.
        certified: Certified figures; None where `certify` was not run.
        E: End of the areas, in units of the norm.
        aurec: Area under the curve up to E; unknown where no run broke any sample, or E is 0.
        standing: Rank and DOI; None without other models.
        no_standing: Reason why there is no DOI, where a reference pool was given.
        counts: Passes through the model, by purpose.
        queries: Queries of the attack, all samples together.
        queries_per_sample: Queries of the attack per attacked sample, on average.
        flags: Warnings about the distances.
        notes: Notes on the DOI.
        curve: Robust accuracy against the radius.
        margin: Half the height of the 95 % band, within which the whole true curve lies.
        by_queries: AUREC against queries per sample.
        further: Expected change by further queries, where that is known.
        wins: Runs by the samples on which they found the smallest perturbation, most first.
        gallery: Adversarial examples to show.
        commands: Commands that were typed, the last of which resumes the work.
        versions: Versions of the libraries at work.
        seconds: Time that the queries took.
        success: Criterion of success in words; None for misclassification.
        domain: Domain in words; None for [0, 1].
    """

    model: str
    data: str
    norm: str
    ensemble: str
    tier: int
    seed: int
    samples: tuple[str, ...]
    distances: tuple[float, ...]
    misclassified: int
    unbroken: int
    clean: Interval
    robust: tuple[RobustAt, ...]
    median: float
    averaged: Averaged | None
    certified: Certified | None
    E: float
    aurec: Interval
    standing: Standing | None
    no_standing: str | None
    counts: dict[str, int]
    queries: int
    queries_per_sample: float
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]
    curve: Curve
    margin: float
    by_queries: QueryCurve
    further: Further | None
    wins: tuple[Win, ...]
    gallery: tuple[GalleryItem, ...]
    commands: tuple[str, ...]
    versions: dict[str, str]
    seconds: float
    success: str | None = None
    domain: str | None = None

    @property
    def first_look(self) -> bool:
        """Tell whether so few queries were spent that the distances are first estimates."""
        return self.tier < FIRST

    @property
    def broken(self) -> int:
        """Samples that were classified correctly and broken."""
        return len(self.samples) - self.misclassified - self.unbroken

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for JSON, without pictures and reference curves."""
        return {"schema": SCHEMA, **jsonable(self, without=(*PICTURES, "curves", "frontier"))}


def summarise(
    evaluation: Evaluation,
    *,
    radii: Sequence[Radius],
    reference: ReferencePool | None = None,
    together: Together | None = None,
    gallery: int = 8,
) -> NormSummary:
    """Summarise an evaluation; `radii` are labelled ε at which robust accuracy is read.

    It is ranked among the models of the reference pool, or among those it is shown together with.
    Areas end where the defence frontier of these models ends, this one included, and without any at
    the model's own largest distance. Where the evaluation does not fit the others (another tier,
    other samples), `no_standing` says why and all else is there.

    Args:
        evaluation: Finished evaluation.
        radii: Radii at which robust accuracy is read, each with its label.
        reference: Reference pool to rank the model in.
        together: E and ranks, where several models are shown together.
        gallery: Number of adversarial examples to include.
    """
    d = as_distances(evaluation.distances)
    if reference is not None:
        together = Together.of([evaluation], reference)
    ranks = together or Together(epsilon_min(d).value)
    table = ranks.table
    standing = None if table is None else Standing(table.row(evaluation.model), table.ranked, table)
    quoted = [ε for _, ε in reference_radii(evaluation.data, evaluation.norm)[-1:]]
    noted: list[str] = []
    if standing is not None:
        noted += standing.row.doi.flags
        if reference is not None:
            noted += ensemble_notes(evaluation)
    return NormSummary(
        **_origin(evaluation, d),
        distances=tuple(d.tolist()),
        misclassified=int((d == 0).sum()),
        unbroken=int(np.isinf(d).sum()),
        clean=wilson(int((d > 0).sum()), d.size),
        robust=tuple(
            RobustAt(label, ε, robust_accuracy_interval(d, ε), ε in quoted) for label, ε in radii
        ),
        median=distance_quantile(d, 0.5),
        averaged=Averaged.of(evaluation),
        certified=Certified.of(evaluation.certified, radii),
        E=ranks.E,
        aurec=aurec_interval(d, E=ranks.E),
        standing=standing,
        no_standing=ranks.no_table,
        notes=tuple(note for note in noted if note not in unbroken_flag(d)),
        curve=Curve.of(d),
        margin=curve_margin(d.size),
        by_queries=_query_curve(evaluation, d, ranks.E),
        further=_further(evaluation, d),
        wins=_wins(evaluation, d),
        gallery=pictures(evaluation, d, gallery),
    )


def summarise_all(
    evaluations: Sequence[Evaluation],
    *,
    radii: str | None = None,
    gallery: int = 8,
    reference: Mapping[str, ReferencePool] | None = None,
) -> list[NormSummary]:
    """Summarise evaluations at the given radii, or at those usually quoted.

    Several models in one norm are ranked among each other; one alone is ranked among the embedded
    models, if it fits. With reference pools, all are ranked with these.

    Args:
        evaluations: Finished evaluations of any models in any norms.
        radii: Radii at which robust accuracy is read, such as `4/255,8/255`.
        gallery: Number of adversarial examples per evaluation.
        reference: Norm to reference pool.
    """
    known = reference or {}
    by_norm: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_norm.setdefault(evaluation.norm, []).append(evaluation)
    together = {}
    for norm, several in by_norm.items():
        if len(several) > 1 or norm in known:
            together[norm] = Together.of(several, known.get(norm))
    summaries = []
    for evaluation in evaluations:
        read_at, others = chosen_radii(evaluation, radii), together.get(evaluation.norm)
        pool, why_not = (None, None) if others else embedded_pool(evaluation)
        found = summarise(
            evaluation, radii=read_at, reference=pool, together=others, gallery=gallery
        )
        summaries.append(found if why_not is None else replace(found, no_standing=why_not))
    return summaries


def total_counts(summaries: Iterable[NormSummary]) -> dict[str, int]:
    """Count passes through the model by purpose, over all of the summaries.

    Args:
        summaries: Summaries of any models and norms.
    """
    total = Counter[str]()
    for summary in summaries:
        total.update(summary.counts)
    return dict(total)


def _origin(evaluation: Evaluation, d: NDArray[np.float64]) -> dict[str, Any]:
    """Return the identity, the cost and the flags of an evaluation."""
    attacked = evaluation.queries[d > 0]
    own = (flag for flag in evaluation.flags if flag.kind is not Kind.UNBROKEN)  # counted anew
    return {name: getattr(evaluation, name) for name in _AS_IT_IS} | {
        "ensemble": evaluation.ensemble.name,
        "tier": reached(evaluation),
        "success": None if evaluation.criterion is None else evaluation.criterion.words,
        "domain": None if evaluation.space is None else evaluation.space.words,
        "queries": int(attacked.sum()),
        "queries_per_sample": float(attacked.mean()) if attacked.size else 0.0,
        "flags": tuple(
            dict.fromkeys((*own, *(Flag(Kind.UNBROKEN, text) for text in unbroken_flag(d))))
        ),
    }


def _query_curve(evaluation: Evaluation, d: NDArray[np.float64], E: float) -> QueryCurve:
    if E == 0 or not ((d > 0) & np.isfinite(d)).any():
        return QueryCurve()
    total = evaluation.ensemble.total
    smaller = [tier for tier in TIERS if tier < total]
    passed = [min(tier, total) for tier in evaluation.ensemble.tiers]
    tiers = sorted({*passed, *smaller})
    # Early queries change most, so half of the points rise by factors and half by steps.
    steps = np.concatenate(
        (np.geomspace(10, total, _BUDGETS // 2), np.linspace(0, total, _BUDGETS // 2 + 1)[1:])
    )
    budgets = sorted(
        {max(10, int(round(step / 10) * 10)) for step in steps if step < total}
        | set(tiers)
        | {total}
    )
    areas = {budget: Curve.of(evaluation.distances_at(budget)).area(E) for budget in budgets}
    return QueryCurve(tuple(areas), tuple(areas.values()), tuple(tiers))


def _further(evaluation: Evaluation, d: NDArray[np.float64]) -> Further | None:
    """Return what further queries are expected to change; None where that is not known."""
    unlike_learned = evaluation.criterion is not None or evaluation.space is not None
    if unlike_learned or not ((d > 0) & np.isfinite(d)).any():
        return None
    return expected_change(evaluation.ensemble, evaluation.clean_logits.shape[1])


def _wins(evaluation: Evaluation, d: NDArray[np.float64]) -> tuple[Win, ...]:
    broken = int(((d > 0) & np.isfinite(d)).sum())
    counted = Counter(
        run for run, distance in zip(evaluation.winners, d, strict=True) if run and distance > 0
    )
    order = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Win(run, count, count / broken) for run, count in order)
