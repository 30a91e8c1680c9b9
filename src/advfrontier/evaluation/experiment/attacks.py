"""The tables about attacks: what the ensembles consist of, how close they come to the frontier, and the baseline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from advfrontier.evaluation.experiment.subject import SPLITS
from advfrontier.frontier.curve import robust_accuracy
from advfrontier.pool import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.evaluation.experiment.subject import Subject
    from advfrontier.frontier.baseline import BaselineAOI
    from advfrontier.pool import Ensemble

GROUPS = {"base": "", "restart": "restarts", "target": "targets"}
ALL = "all"  # in place of a split: the complete pool


@dataclass(frozen=True)
class EnsembleRow:
    """Queries of one attack's base run, or of all its restarts or targets together, at every tier."""

    attack: str
    group: str  # "", "restarts" or "targets"
    queries: dict[int, int]
    paper: dict[int, int]  # what the paper's ensembles give them


@dataclass(frozen=True)
class EnsembleTier:
    """One ensemble: what it reaches on the models it was made from, and what no allocation can pass."""

    tier: int
    name: str
    total: int
    runs: int
    aoi: float | None
    bound: float | None
    held_out: float | None  # mean AOI on the models it was not made from


@dataclass(frozen=True)
class AoiRow:
    """AOI of one model: the baseline and every tier."""

    model: str
    split: str
    baseline: BaselineAOI | None
    tiers: dict[int, float]
    paper: dict[int, float]
    straight: dict[int, float] = field(default_factory=dict)  # the tiers, known like the baseline: by straight lines
    ceiling: float | None = None  # the frontier itself, known like that: what lines alone make of an AOI of 1
    flags: tuple[str, ...] = ()  # what to know before trusting them


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over models."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Over these values, all that there are."""
        return cls(float(np.mean(values)), float(np.std(values)))


@dataclass(frozen=True)
class AoiSummary:
    """The AOIs of a split, or of all models: their spread, and on how many a tier matches or passes the baseline."""

    split: str
    models: int
    tiers: dict[int, Spread]
    paper: dict[int, Spread]
    baseline: Spread | None
    compared: int  # models with a baseline
    matched: dict[int, int]
    straight: dict[int, Spread]  # of the tiers by straight lines, over the models with a baseline
    matched_straight: dict[int, int]


@dataclass(frozen=True)
class RobustRow:
    """Robust accuracy of one model at one ε."""

    model: str
    split: str
    place: int  # of ε among the radii of its data set: 0 is the reference
    epsilon: float
    baseline: float | None
    baseline_queries: float | None  # per sample
    tiers: dict[int, float]


Row = TypeVar("Row", AoiRow, RobustRow)


@dataclass(frozen=True)
class RobustSummary:
    """At one of the radii, on how many models of a split, or of all, a tier is at least as strong as the baseline."""

    split: str
    place: int
    epsilons: tuple[float, ...]  # one per data set
    compared: int  # models with a baseline
    matched: dict[int, int]
    gain: dict[int, Spread]  # points of robust accuracy below the baseline


@dataclass(frozen=True)
class RobustTable:
    """Robust accuracy at the reference radius of each data set, then at its second, and so on."""

    rows: tuple[RobustRow, ...]
    summaries: tuple[RobustSummary, ...]  # where there is a baseline


@dataclass(frozen=True)
class Total:
    """Pairs of a model and a norm, over all norms: on how many a tier matches or passes the baseline."""

    what: str  # "aoi", "straight" (AOI by straight lines) or "robust" (robust accuracy at the reference ε)
    split: str
    compared: int
    matched: dict[int, int]


@dataclass(frozen=True)
class Growth:
    """Mean AOI against queries, over the models the ensembles were made from and over the others."""

    queries: tuple[int, ...]
    splits: dict[str, tuple[float, ...]]
    gap: dict[int, float]  # tier → mean AOI of the training models less that of the held-out ones


@dataclass(frozen=True)
class Case:
    """A model on which the largest tier gains most, or least, against the baseline."""

    model: str
    norm: str
    split: str
    gain: float  # AOI of the largest tier less the baseline's, both by straight lines
    exact: float  # the same, with the tier's AOI by all its distances


@dataclass(frozen=True)
class AttackTables:
    """All tables about attacks in one norm."""

    ensembles: tuple[EnsembleRow, ...]
    tiers: tuple[EnsembleTier, ...]
    aoi: tuple[AoiRow, ...]
    aoi_summaries: tuple[AoiSummary, ...]
    robust: RobustTable | None
    growth: Growth


def attack_tables(
    subjects: Sequence[Subject],
    ensembles: Mapping[int, Ensemble],
    *,
    paper: Mapping[int, Ensemble],
    radii: Mapping[str, Sequence[float]],
) -> AttackTables:
    """The tables of these models, training models first; the paper's ensembles beside them if all models hold them."""
    rows = aoi_rows(subjects)
    return AttackTables(
        ensembles=ensemble_rows(ensembles, {t: e for t, e in paper.items() if all(t in s.paper for s in subjects)}),
        tiers=ensemble_tiers(ensembles, subjects),
        aoi=rows,
        aoi_summaries=aoi_summaries(rows),
        robust=robust_table(subjects, radii),
        growth=growth(subjects),
    )


def ensemble_rows(ensembles: Mapping[int, Ensemble], paper: Mapping[int, Ensemble]) -> tuple[EnsembleRow, ...]:
    """Attacks in the order of the pool; each with its base run, restarts and targets, as far as they get queries."""
    own = {tier: _by_group(ensemble) for tier, ensemble in ensembles.items()}
    published = {tier: _by_group(ensemble) for tier, ensemble in paper.items()}
    seen = {key: None for table in (*own.values(), *published.values()) for key in table}
    attacks = list(dict.fromkeys(attack for attack, _ in seen))
    order = sorted(seen, key=lambda key: (attacks.index(key[0]), list(GROUPS.values()).index(key[1])))
    return tuple(
        EnsembleRow(
            attack,
            group,
            {tier: table.get((attack, group), 0) for tier, table in own.items()},
            {tier: table.get((attack, group), 0) for tier, table in published.items()},
        )
        for attack, group in order
    )


def _by_group(ensemble: Ensemble) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for name, queries in ensemble.queries.items():
        run = Run.parse(name)
        key = (run.attack, GROUPS[run.variant])
        found[key] = found.get(key, 0) + queries
    return found


def ensemble_tiers(ensembles: Mapping[int, Ensemble], subjects: Sequence[Subject]) -> tuple[EnsembleTier, ...]:
    """What each ensemble reaches."""
    apart = [subject for subject in subjects if subject.split == "held-out"]
    return tuple(
        EnsembleTier(
            tier=tier,
            name=ensemble.name,
            total=ensemble.total,
            runs=len(ensemble.runs),
            aoi=ensemble.aoi,
            bound=ensemble.bound,
            held_out=float(np.mean([s.aoi(s.tiers[tier]).value for s in apart])) if apart else None,
        )
        for tier, ensemble in ensembles.items()
    )


def aoi_rows(subjects: Sequence[Subject]) -> tuple[AoiRow, ...]:
    """Per model, training models first."""
    return tuple(_aoi_row(subject) for subject in subjects)


def _aoi_row(subject: Subject) -> AoiRow:
    tiers = {tier: subject.aoi(d) for tier, d in subject.tiers.items()}
    paper = {tier: subject.aoi(d) for tier, d in subject.paper.items()}
    straight = {tier: subject.straight_aoi(d) for tier, d in subject.tiers.items()}
    baseline = subject.baseline_aoi()
    own = dict.fromkeys(flag for measure in (*tiers.values(), *paper.values()) for flag in measure.flags)
    about = [f"AutoAttack: {flag}" for flag in (baseline.flags if baseline else ()) if flag not in own]
    return AoiRow(
        subject.model,
        subject.split,
        baseline,
        {tier: measure.value for tier, measure in tiers.items()},
        {tier: measure.value for tier, measure in paper.items()},
        {tier: value for tier, value in straight.items() if value is not None},
        subject.straight_aoi(subject.frontier),
        (*own, *about),
    )


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By split, and all of them where there are several splits."""
    found = {split: [row for row in rows if row.split == split] for split in SPLITS}
    found = {split: group for split, group in found.items() if group}
    return {**found, ALL: list(rows)} if len(found) > 1 else found


def aoi_summaries(rows: Sequence[AoiRow]) -> tuple[AoiSummary, ...]:
    """Per split that has models, and over all."""
    return tuple(_aoi_summary(split, group) for split, group in grouped(rows).items())


def _aoi_summary(split: str, rows: Sequence[AoiRow]) -> AoiSummary:
    compared = [(row, row.baseline.value) for row in rows if row.baseline is not None]
    tiers = tuple(rows[0].tiers)
    return AoiSummary(
        split=split,
        models=len(rows),
        tiers={tier: Spread.of([row.tiers[tier] for row in rows]) for tier in tiers},
        paper={
            tier: Spread.of([row.paper[tier] for row in rows])
            for tier in rows[0].paper
            if all(tier in row.paper for row in rows)
        },
        baseline=Spread.of([value for _, value in compared]) if compared else None,
        compared=len(compared),
        matched={tier: int(sum(row.tiers[tier] >= value for row, value in compared)) for tier in tiers},
        straight={tier: Spread.of([row.straight[tier] for row, _ in compared]) for tier in tiers} if compared else {},
        matched_straight={tier: int(sum(row.straight[tier] >= value for row, value in compared)) for tier in tiers},
    )


def robust_table(subjects: Sequence[Subject], radii: Mapping[str, Sequence[float]]) -> RobustTable | None:
    """Robust accuracy at the radii of each data set; None if no data set has any."""
    rows = []
    for place in range(max((len(radii.get(subject.data, ())) for subject in subjects), default=0)):
        for subject in subjects:
            for epsilon in radii.get(subject.data, ())[place : place + 1]:
                known = subject.known.at(epsilon) if subject.known is not None else None
                accuracy, queries = known if known is not None else (None, None)
                found = {tier: robust_accuracy(d, epsilon) for tier, d in subject.tiers.items()}
                rows.append(RobustRow(subject.model, subject.split, place, epsilon, accuracy, queries, found))
    if not rows:
        return None
    summaries = [
        _robust_summary(split, group)
        for place in dict.fromkeys(row.place for row in rows)
        for split, group in grouped([row for row in rows if row.place == place]).items()
    ]
    return RobustTable(tuple(rows), tuple(summary for summary in summaries if summary.compared))


def _robust_summary(split: str, rows: Sequence[RobustRow]) -> RobustSummary:
    compared = [(row, row.baseline) for row in rows if row.baseline is not None]
    tiers = tuple(rows[0].tiers)
    # Both are shares of the same samples: a hair's breadth keeps equal counts equal.
    return RobustSummary(
        split=split,
        place=rows[0].place,
        epsilons=tuple(dict.fromkeys(row.epsilon for row in rows)),
        compared=len(compared),
        matched={tier: int(sum(row.tiers[tier] <= value + 1e-9 for row, value in compared)) for tier in tiers},
        gain={tier: Spread.of([value - row.tiers[tier] for row, value in compared]) for tier in tiers}
        if compared
        else {},
    )


def totals(tables: Sequence[AttackTables]) -> tuple[Total, ...]:
    """Over all norms that have a baseline: by AOI, by AOI off straight lines, and by accuracy at the reference ε."""
    aoi = [summary for table in tables for summary in table.aoi_summaries]
    robust = [s for table in tables if table.robust is not None for s in table.robust.summaries if s.place == 0]
    counts = {
        "aoi": [(summary.split, summary.compared, summary.matched) for summary in aoi],
        "straight": [(summary.split, summary.compared, summary.matched_straight) for summary in aoi],
        "robust": [(summary.split, summary.compared, summary.matched) for summary in robust],
    }
    found = []
    for what, parts in counts.items():
        for split in (*SPLITS, ALL):
            own = [(compared, matched) for of, compared, matched in parts if of == split and compared]
            if own:
                matched = {tier: sum(each[tier] for _, each in own) for tier in own[0][1]}
                found.append(Total(what, split, sum(compared for compared, _ in own), matched))
    return tuple(found)


def growth(subjects: Sequence[Subject]) -> Growth:
    """Mean AOI against queries, per split."""
    queries = tuple(subjects[0].growth)
    splits = {
        split: tuple(float(np.mean([s.growth[q] for s in subjects if s.split == split])) for q in queries)
        for split in SPLITS
        if any(s.split == split for s in subjects)
    }
    gap = {}
    if len(splits) == len(SPLITS):
        train, held_out = (dict(zip(queries, splits[split], strict=True)) for split in SPLITS)
        gap = {tier: train[tier] - held_out[tier] for tier in subjects[0].tiers}
    return Growth(queries, splits, gap)


def cases(tables: Mapping[str, Sequence[AoiRow]]) -> tuple[Case, Case] | None:
    """Over all norms, the best and the worst case against the baseline; of held-out models, if any has one."""
    found = [
        Case(
            row.model,
            norm,
            row.split,
            gain=row.straight[max(row.tiers)] - row.baseline.value,
            exact=row.tiers[max(row.tiers)] - row.baseline.value,
        )
        for norm, rows in tables.items()
        for row in rows
        if row.baseline is not None
    ]
    apart = [case for case in found if case.split == "held-out"] or found
    if not apart:
        return None
    return max(apart, key=lambda case: case.gain), min(apart, key=lambda case: case.gain)
