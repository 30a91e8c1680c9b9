"""The tables about attacks: what the ensembles consist of, and how close they come to the frontier.

| paper | here |
|---|---|
| deployable ensembles | `ensembles`, `tiers` |
| AOI per model and tier against AutoAttack; the ℓ0 table | `aoi`, `aoi_summary` |
| AOI against Q, training and held-out models | `growth`, `growth_at_tiers` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.bench.benchmark import SPLITS
from advfrontier.bench.subject import by_split, grouped, matched_aoi, spread, strong, tier_columns
from advfrontier.pool import Run, tier_label
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advfrontier.bench.subject import Subject
    from advfrontier.pool import Ensemble

_BASELINE = "AutoAttack"
_VARIANTS = {"base": "base", "restart": "restarts", "target": "targets"}


def ensembles(own: Mapping[int, Ensemble], paper: Mapping[int, Ensemble], *, norm: str) -> Table:
    """Queries of each attack's base run, and of all its restarts or targets together, at every tier."""
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
    apart = by_split(subjects).get("held-out")
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
    """AOI of every model: the baseline, every tier, and the tiers known like the baseline."""
    scores = _scores(subjects, subjects)
    rows = []
    for subject, *values in zip(subjects, *scores.values(), strict=True):
        least = subject.baseline.value if subject.baseline else None
        cells = [strong(v, when=v is not None and least is not None and v >= least) for v in values]
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
    for split, group in grouped(subjects).items():
        scores = _scores(group, subjects)
        means = [spread([value for value in values if value is not None]) for values in scores.values()]
        rows.append(("mean", split, len(group), *means))
        if known := sum(subject.baseline is not None for subject in group):
            exact = [matched_aoi(group, tier) for tier in group[0].tiers]
            straight = [matched_aoi(group, tier, straight=True) for tier in group[0].tiers]
            paper = [None] * len(common_paper_tiers(subjects))
            rows.append(("at least AutoAttack", split, known, None, *exact, *paper, *straight))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("models", "integer")]
    columns += [Column(name, "fine") for name in _scores(subjects, subjects)]
    return Table(f"AOI over models in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def _scores(group: Sequence[Subject], everyone: Sequence[Subject]) -> dict[str, list[float | None]]:
    """Name of a column → AOI of every model of the group; columns are those that `everyone` has."""
    compared = any(subject.baseline is not None for subject in everyone)
    tiers, paper = list(everyone[0].tiers), common_paper_tiers(everyone)
    scores: dict[str, list[float | None]] = {}
    if compared:
        scores[_BASELINE] = [subject.baseline.value if subject.baseline else None for subject in group]
    scores |= {tier_label(tier): [subject.aois[tier].value for subject in group] for tier in tiers}
    scores |= {f"paper {tier_label(tier)}": [subject.paper_aois[tier].value for subject in group] for tier in paper}
    if compared:
        scores |= {f"{tier_label(tier)} by lines": [s.straight_aois.get(tier) for s in group] for tier in tiers}
    return scores


def common_paper_tiers(subjects: Sequence[Subject]) -> list[int]:
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
        for split, group in by_split(subjects).items()
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
