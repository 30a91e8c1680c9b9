"""The tables about attacks: what the ensembles consist of, how close they come to the frontier, and to the baseline.

| paper | here |
|---|---|
| deployable ensembles | `ensembles`, `tiers` |
| AOI per model and tier against AutoAttack; the ℓ0 table | `aoi`, `aoi_summary` |
| AOI against Q, training and held-out models | `growth`, `growth_at_tiers` |
| robust accuracy at the reference ε with AutoAttack's queries | `robust_accuracy`, `robust_summary` |
| counts over all pairs of model and norm | `totals` |
| best and worst case against AutoAttack | `cases` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.bench.benchmark import SPLITS
from advfrontier.bench.subject import tier_columns
from advfrontier.frontier.curve import robust_accuracy as accuracy_at
from advfrontier.pool import Run, tier_label
from advfrontier.table import Column, Share, Spread, Strong, Table
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advfrontier.bench.subject import Subject
    from advfrontier.pool import Ensemble

    Radii = Mapping[str, Sequence[float]]  # data set → the radii to read accuracy at, the reference first
    Entry = tuple[Subject, float, tuple[float, float] | None]  # a model, a radius, the baseline's accuracy and queries

_BASELINE = "AutoAttack"
_ALL = "all"  # in place of a split: the complete pool
_EQUAL = 1e-9  # accuracies are shares of the same samples: a hair's breadth keeps equal counts equal
_VARIANTS = {"base": "base", "restart": "restarts", "target": "targets"}


def ensembles(
    own: Mapping[int, Ensemble], papers: Mapping[int, Ensemble], subjects: Sequence[Subject], *, norm: str
) -> Table:
    """Queries of each attack's base run, and of all its restarts or targets together, at every tier.

    The paper's ensembles are shown where all of their runs were traced on every model.
    """
    paper = {tier: papers[tier] for tier in _paper_tiers(subjects) if tier in papers}
    tables = [_by_variant(ensemble) for ensemble in (*own.values(), *paper.values())]
    seen = list(dict.fromkeys(key for table in tables for key in table))
    attacks, variants = [attack for attack, _ in seen], list(_VARIANTS.values())
    order = sorted(seen, key=lambda key: (attacks.index(key[0]), variants.index(key[1])))
    columns = (*tier_columns(own, "count"), *tier_columns(paper, "count", "paper {}"))
    rows = tuple((*key, *(table.get(key) for table in tables)) for key in order)
    return Table(f"Ensembles in {SYMBOLS[norm]}", (Column(SYMBOLS[norm], key="attack"), Column("runs"), *columns), rows)


def _by_variant(ensemble: Ensemble) -> dict[tuple[str, str], int]:
    queries_of: dict[tuple[str, str], int] = {}
    for name, queries in ensemble.queries.items():
        run = Run.parse(name)
        key = (run.attack, _VARIANTS[run.variant])
        queries_of[key] = queries_of.get(key, 0) + queries
    return queries_of


def tiers(own: Mapping[int, Ensemble], subjects: Sequence[Subject], *, norm: str) -> Table:
    """What each ensemble reaches on the models it was made from and on the others, and what no allocation can pass."""
    apart = _by_split(subjects).get("held-out")
    rows = [
        (tier_label(tier), ensemble.total, len(ensemble.runs), ensemble.aoi, ensemble.bound)
        + ((float(np.mean([subject.aois[tier].value for subject in apart])),) if apart else ())
        for tier, ensemble in own.items()
    ]
    columns = [
        Column(SYMBOLS[norm], key="tier"), Column("queries", "count"), Column("runs", "integer"),
        Column("AOI (%)", "fine", key="aoi"), Column("no allocation passes (%)", "fine", key="bound"),
    ]  # fmt: skip
    columns += [Column("AOI of held-out models (%)", "fine", key="aoi of held-out models")] if apart else []
    return Table(f"What each tier reaches in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def aoi(subjects: Sequence[Subject], *, norm: str) -> Table:
    """AOI of every model: the baseline, every tier, and the tiers if they were known at the baseline's radii only."""
    scores = _scores(subjects, subjects)
    rows = []
    for subject, *values in zip(subjects, *scores.values(), strict=True):
        least = subject.baseline.value if subject.baseline else None
        cells = [_strong(v, when=v is not None and least is not None and v >= least) for v in values]
        if _BASELINE in scores:
            cells = [subject.baseline, *cells[1:], subject.ceiling]
        rows.append((subject.model, subject.split, *cells))
    columns = (Column(SYMBOLS[norm], key="model"), Column("split"), *(Column(name, "fine") for name in scores))
    columns += (Column("frontier by lines", "fine"),) if _BASELINE in scores else ()
    notes = tuple(f"{subject.model}: {'; '.join(flags)}" for subject in subjects if (flags := _aoi_flags(subject)))
    return Table(f"AOI in {SYMBOLS[norm]}", columns, tuple(rows), notes)


def aoi_summary(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Their spread over each split and over all models, and on how many a tier matches or passes the baseline."""
    rows: list[tuple[Any, ...]] = []
    for split, group in _grouped(subjects).items():
        scores = _scores(group, subjects)
        means = [_spread([value for value in values if value is not None]) for values in scores.values()]
        rows.append(("mean", split, len(group), *means))
        if known := sum(subject.baseline is not None for subject in group):
            exact = [_matched_aoi(group, tier) for tier in group[0].tiers]
            straight = [_matched_aoi(group, tier, straight=True) for tier in group[0].tiers]
            paper = [None] * len(_paper_tiers(subjects))
            rows.append(("at least AutoAttack", split, known, None, *exact, *paper, *straight))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("models", "integer")]
    columns += [Column(name, "fine") for name in _scores(subjects, subjects)]
    return Table(f"AOI over models in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def _scores(group: Sequence[Subject], everyone: Sequence[Subject]) -> dict[str, list[float | None]]:
    """Name of a column → AOI of every model of the group; columns are those that `everyone` has."""
    compared = any(subject.baseline is not None for subject in everyone)
    tiers, paper = list(everyone[0].tiers), _paper_tiers(everyone)
    scores: dict[str, list[float | None]] = {}
    if compared:
        scores[_BASELINE] = [subject.baseline.value if subject.baseline else None for subject in group]
    scores |= {tier_label(tier): [subject.aois[tier].value for subject in group] for tier in tiers}
    scores |= {f"paper {tier_label(tier)}": [subject.paper_aois[tier].value for subject in group] for tier in paper}
    if compared:
        scores |= {f"{tier_label(tier)} by lines": [s.straight_aois.get(tier) for s in group] for tier in tiers}
    return scores


def _paper_tiers(subjects: Sequence[Subject]) -> list[int]:
    """The tiers at which every model has the paper's ensemble."""
    return [tier for tier in subjects[0].paper if all(tier in subject.paper for subject in subjects)]


def _aoi_flags(subject: Subject) -> tuple[str, ...]:
    measures = (*subject.aois.values(), *subject.paper_aois.values())
    own = dict.fromkeys(flag for measure in measures for flag in measure.flags)
    about = subject.baseline.flags if subject.baseline else ()
    return (*own, *(f"AutoAttack: {flag}" for flag in about if flag not in own))


def mean_growth(subjects: Sequence[Subject]) -> dict[str, dict[int, float]]:
    """Split → queries → mean AOI of its models."""
    return {
        split: {queries: float(np.mean([subject.growth[queries] for subject in group])) for queries in group[0].growth}
        for split, group in _by_split(subjects).items()
    }


def growth(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Mean AOI against queries, over the models the ensembles were made from and over the others."""
    growth_of = mean_growth(subjects)
    rows = [(queries, *(series[queries] for series in growth_of.values())) for queries in subjects[0].growth]
    columns = (Column("queries", "integer"), *(Column(split, "fine") for split in growth_of))
    return Table(f"Mean AOI against queries in {SYMBOLS[norm]}", columns, tuple(rows))


def growth_at_tiers(subjects: Sequence[Subject], *, norm: str) -> Table:
    """The same at the tiers, and how far the held-out models stay behind."""
    growth_of = mean_growth(subjects)
    rows = [(split, *(series[tier] for tier in subjects[0].tiers)) for split, series in growth_of.items()]
    if len(growth_of) == len(SPLITS):
        train, apart = (growth_of[split] for split in SPLITS)
        rows.append(("difference", *(train[tier] - apart[tier] for tier in subjects[0].tiers)))
    columns = (Column("mean AOI of", key="split"), *tier_columns(subjects[0].tiers, "fine"))
    return Table(f"Mean AOI at the tiers in {SYMBOLS[norm]}", columns, tuple(rows))


def robust_accuracy(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """Robust accuracy at the reference radius of each data set, then at its second, and so on."""
    entries = [entry for at_radius in _by_radius(subjects, radii) for entry in at_radius]
    compared = any(known for _, _, known in entries)
    rows = []
    for subject, epsilon, known in entries:
        values = [accuracy_at(distances, epsilon) for distances in subject.tiers.values()]
        cells = [_strong(value, when=known is not None and value <= known[0] + _EQUAL) for value in values]
        rows.append((subject.model, subject.split, epsilon, *((known or (None, None)) if compared else ()), *cells))
    columns = [Column(SYMBOLS[norm], key="model"), Column("split"), Column("ε", "number", key="epsilon")]
    if compared:
        columns += [Column(_BASELINE, "percent"), Column("its queries", "count", key="AutoAttack queries")]
    columns += tier_columns(subjects[0].tiers, "percent")
    return Table(f"Robust accuracy in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def robust_summary(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """On how many models of a split, or of all, a tier is at least as strong as the baseline, and by how much."""
    budgets = subjects[0].tiers
    rows: list[tuple[Any, ...]] = []
    for at_radius in _by_radius(subjects, radii):
        for split, group in _grouped(subjects).items():
            entries = [entry for entry in at_radius if entry[0] in group]
            gains = _gains(entries)
            if gains:
                about = split, ", ".join(dict.fromkeys(f"{epsilon:g}" for _, epsilon, _ in entries))
                rows.append(("at least as strong", *about, *(_as_strong(gains, tier) for tier in budgets)))
                means = [_spread([gain[tier] for gain in gains]) for tier in budgets]
                rows.append(("points below AutoAttack", *about, *means))
    columns = (Column(SYMBOLS[norm], key="what"), Column("split"), Column("ε", key="epsilon"))
    title = f"Robust accuracy against AutoAttack in {SYMBOLS[norm]}"
    return Table(title, (*columns, *tier_columns(budgets, "points")), tuple(rows))


def _by_radius(subjects: Sequence[Subject], radii: Radii) -> list[list[Entry]]:
    """The models at the first radius of their data set, then at the second, and so on, with the baseline there."""
    return [
        [
            (subject, epsilon, subject.known.at(epsilon) if subject.known is not None else None)
            for subject in subjects
            for epsilon in radii.get(subject.data, ())[nth : nth + 1]
        ]
        for nth in range(max((len(radii.get(subject.data, ())) for subject in subjects), default=0))
    ]


def _gains(entries: Sequence[Entry]) -> list[dict[int, float]]:
    """Of each model with a baseline, by how much each tier's accuracy is below it."""
    return [
        {tier: known[0] - accuracy_at(distances, epsilon) for tier, distances in subject.tiers.items()}
        for subject, epsilon, known in entries
        if known is not None
    ]


def _as_strong(gains: Sequence[Mapping[int, float]], tier: int) -> Share:
    return Share(sum(gain[tier] >= -_EQUAL for gain in gains), len(gains))


def totals(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """On how many pairs of a model and a norm, over all norms, a tier matches or passes the baseline."""
    budgets = next((norm[0].tiers for norm in subjects.values()), {})
    rows = []
    counts: dict[str, Callable[[str, Sequence[Subject], int], Share]] = {
        "AOI at least AutoAttack's": lambda _, group, tier: _matched_aoi(group, tier),
        "the same by lines": lambda _, group, tier: _matched_aoi(group, tier, straight=True),
        "at least as strong at the reference radius": lambda norm, group, tier: _as_strong(
            [gain for entries in _by_radius(group, radii.get(norm, {}))[:1] for gain in _gains(entries)], tier
        ),
    }
    for what, count in counts.items():
        for split in (*SPLITS, _ALL):
            groups = [(norm, _grouped(own).get(split, [])) for norm, own in subjects.items()]
            parts = [[count(norm, group, tier) for norm, group in groups if group] for tier in budgets]
            summed = [Share(sum(part.count for part in each), sum(part.of for part in each)) for each in parts]
            if summed and summed[0].of:
                rows.append((what, split, *summed))
    columns = (Column("models in all norms", key="what"), Column("split"), *tier_columns(budgets, "integer"))
    return Table("Against AutoAttack, over all norms", columns, tuple(rows))


def extreme_cases(subjects: Mapping[str, Sequence[Subject]]) -> list[tuple[str, str, Subject, float]]:
    """Over all norms, where the largest tier gains most against the baseline and least: case, norm, model, gain.

    Of held-out models, if any has a baseline. Gains are differences of AOI, both by straight lines.
    """
    every = [
        (norm, subject, subject.straight_aois[max(subject.tiers)] - subject.baseline.value)
        for norm, group in subjects.items()
        for subject in group
        if subject.baseline is not None
    ]
    apart = [case for case in every if case[1].split == "held-out"] or every
    if not apart:
        return []
    best, worst = max(apart, key=lambda case: case[2]), min(apart, key=lambda case: case[2])
    return [("only", *best)] if best == worst else [("best", *best), ("worst", *worst)]


def cases(subjects: Mapping[str, Sequence[Subject]]) -> Table:
    """The best and the worst case against the baseline."""
    rows = [
        (case, norm, s.model, s.split, gain, s.aois[max(s.tiers)].value - s.baseline.value if s.baseline else None)
        for case, norm, s, gain in extreme_cases(subjects)
    ]
    columns = (
        Column("case"), Column("norm", "norm"), Column("model"), Column("split"),
        Column("gain in points of AOI", "gain", key="gain"),
        Column("by all distances", "gain", key="gain by all distances"),
    )  # fmt: skip
    return Table("Best and worst case against AutoAttack", columns, tuple(rows))


def _by_split(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """The models of every split that has any."""
    every = {split: [subject for subject in subjects if subject.split == split] for split in SPLITS}
    return {split: group for split, group in every.items() if group}


def _grouped(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """By split, and all of them where there are several splits."""
    splits = _by_split(subjects)
    return {**splits, _ALL: list(subjects)} if len(splits) > 1 else splits


def _matched_aoi(subjects: Sequence[Subject], tier: int, *, straight: bool = False) -> Share:
    """On how many models a tier's AOI, exact or by straight lines, is at least the baseline's."""
    pairs = [
        (subject.straight_aois[tier] if straight else subject.aois[tier].value, subject.baseline.value)
        for subject in subjects
        if subject.baseline is not None
    ]
    return Share(sum(own >= least for own, least in pairs), len(pairs))


def _strong(value: float | None, *, when: bool) -> Any:
    """A cell, which stands out where the condition holds."""
    return Strong(value) if when else value


def _spread(values: Sequence[float]) -> Spread | None:
    """Mean and standard deviation over all that there are; None if there are none."""
    return Spread(float(np.mean(values)), float(np.std(values))) if values else None
