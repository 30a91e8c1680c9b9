"""The tables that compare tiers with AutoAttack.

| paper | here |
|---|---|
| AOI per model and tier against AutoAttack; the ℓ0 table | `aoi`, also by straight lines, `aoi_summary` |
| robust accuracy at the reference ε with AutoAttack's queries | `robust_accuracy`, `robust_summary`, `queries` |
| counts over all pairs of model and norm | `totals` |
| the figures of the abstract | `glance` |
| best and worst case against AutoAttack | `cases` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from advfrontier.bench.attack_tables import mean_above, mean_aoi
from advfrontier.bench.benchmark import SPLITS
from advfrontier.bench.published import PUBLISHED, Published
from advfrontier.bench.subject import (
    ALL,
    GREEDY,
    PAPER,
    RACE,
    Subject,
    Tier,
    by_split,
    grouped,
    shown_tiers,
    spread,
    tier_columns,
)  # fmt: skip
from advfrontier.frontier.curve import robust_accuracy as accuracy_at
from advfrontier.pool import TIERS
from advfrontier.table import Column, Format, Share, Spread, Strong, Table
from advfrontier.threat.names import SYMBOLS

Radii = Mapping[str, Sequence[float]]  # data set → the radii to read accuracy at, the reference first
Entry = tuple[Subject, float, tuple[float, float] | None]  # a model, a radius, the baseline's accuracy and queries

_BASELINE = "AutoAttack"
_EQUAL = 1e-9  # accuracies are shares of the same samples: a hair's breadth keeps equal counts equal


def aoi(subjects: Sequence[Subject], *, norm: str, straight: bool = False) -> Table:
    """AOI of every model: the baseline's, and every tier's, which stands out where it is at least the baseline's.

    By straight lines tiers are known at the baseline's radii only, and the frontier too: like is compared with like.
    """
    listed = [subject for subject in subjects if subject.known is not None] if straight else subjects
    compared, shown = any(subject.baseline is not None for subject in listed), shown_tiers(subjects)
    rows, notes = [], []
    for s in listed:
        values = [*(s.aoi(tier, straight=straight) for tier in shown.values()), *([s.ceiling] if straight else [])]
        cells = [Strong(v) if s.baseline and v is not None and v >= s.baseline.value else v for v in values]
        rows.append((s.model, s.split, *([s.baseline] if compared else []), *cells))
        own = dict.fromkeys(flag for tiers in s.aois.values() for each in tiers.values() for flag in each.flags)
        about = [f"AutoAttack: {flag}" for flag in (s.baseline.flags if s.baseline else ()) if flag not in own]
        notes += [f"{s.model}: {'; '.join((*own, *about))}"] if not straight and (own or about) else []
    columns = [Column(SYMBOLS[norm], key="model"), Column("split"), *([Column(_BASELINE, "fine")] if compared else [])]
    columns += [Column(name, "fine") for name in (*shown, *(["frontier"] if straight else []))]
    title = f"AOI{' by straight lines' if straight else ''} in {SYMBOLS[norm]}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def aoi_summary(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Mean AOI of each split and of all models, how far held-out models stay behind, who matches the baseline."""
    shown, known = shown_tiers(subjects), [subject for subject in subjects if subject.baseline is not None]
    rows: list[tuple[Any, ...]] = []
    means: dict[str, list[Spread | None]] = {}
    for split, group in grouped(subjects).items():
        printed = PUBLISHED[norm][split]
        means[split] = [spread([s.baseline.value for s in group if s.baseline])] if known else []
        means[split] += [spread([s.aoi(tier) for s in group]) for tier in shown.values()]
        rows.append(("mean", split, len(group), *means[split], *_printed(subjects, printed.aois)))
    if len(means) > 1:
        apart = [a and b and a.mean - b.mean for a, b in zip(*(means[split] for split in SPLITS), strict=True)]
        train, held_out = (PUBLISHED[norm][split].aois for split in SPLITS)
        theirs = {tier: train[tier].mean - held_out[tier].mean for tier in train}
        rows.append(("difference", "train minus held-out", None, *apart, *_printed(subjects, theirs)))
    for what, straight in (("at least AutoAttack", False), ("the same by lines", True)):
        for split, group in grouped(known).items() if known else ():
            counts = [_matched_aoi(group, tier, straight=straight) for tier in shown.values()]
            theirs_matched = {} if straight else PUBLISHED[norm][split].aois_matched
            rows.append((what, split, len(group), None, *counts, *_printed(subjects, theirs_matched)))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("models", "integer")]
    columns += [Column(name, "fine") for name in ([_BASELINE] if known else []) + list(shown)]
    columns += _printed_columns(subjects, "fine")
    return Table(f"AOI over models in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def _printed(subjects: Sequence[Subject], figures: Mapping[int, Any]) -> list[Any]:
    """The paper's figures at those tiers of these models that it has."""
    return [figures.get(tier) for tier in subjects[0].tiers if tier in TIERS]


def _printed_columns(subjects: Sequence[Subject], how: Format) -> tuple[Column, ...]:
    return tier_columns([tier for tier in subjects[0].tiers if tier in TIERS], how, "published {}")


def robust_accuracy(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """Robust accuracy at the reference radius of each data set, then at its second, and so on."""
    entries = [entry for at_radius in _by_radius(subjects, radii) for entry in at_radius]
    compared, shown = any(known for _, _, known in entries), shown_tiers(subjects)
    rows = []
    for subject, epsilon, known in entries:
        values = [accuracy_at(subject.families[family][tier], epsilon) for family, tier in shown.values()]
        cells = [Strong(value) if known is not None and value <= known[0] + _EQUAL else value for value in values]
        rows.append((subject.model, subject.split, epsilon, *((known or (None, None)) if compared else ()), *cells))
    columns = [Column(SYMBOLS[norm], key="model"), Column("split"), Column("ε", "number", key="epsilon")]
    if compared:
        columns += [Column(_BASELINE, "percent"), Column("its queries", "count", key="AutoAttack queries")]
    columns += [Column(name, "percent") for name in shown]
    return Table(f"Robust accuracy in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def robust_summary(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """On how many models of a split, or of all, a tier is at least as strong as the baseline, and by how much."""
    shown = shown_tiers(subjects)
    rows: list[tuple[Any, ...]] = []
    for nth, at_radius in enumerate(_by_radius(subjects, radii)):
        for split, group in grouped(subjects).items():
            entries = [entry for entry in at_radius if entry[0] in group and entry[2] is not None]
            if entries:
                printed = PUBLISHED[norm][split] if nth == 0 else None  # the paper has the reference radius alone
                about = split, ", ".join(dict.fromkeys(f"{epsilon:g}" for _, epsilon, _ in entries))
                gains = [_gains(entries, tier) for tier in shown.values()]
                theirs = _printed(subjects, printed.accuracies_matched if printed else {})
                rows.append(("at least as strong", *about, *map(_as_strong, gains), *theirs))
                theirs = _printed(subjects, printed.gains if printed else {})
                rows.append(("points below AutoAttack", *about, *map(spread, gains), *theirs))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("ε", key="epsilon")]
    columns += [*(Column(name, "points") for name in shown), *_printed_columns(subjects, "points")]
    return Table(f"Robust accuracy against AutoAttack in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def queries(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """What AutoAttack spends per sample at the reference radius: mean, least and most over models, and the paper's."""
    rows = []
    for split, group in grouped(subjects).items():
        entries = [known[1] for at in _by_radius(group, radii)[:1] for _, _, known in at if known is not None]
        if entries:
            theirs = PUBLISHED[norm][split].queries or (None, None, None)
            rows.append((split, len(entries), float(np.mean(entries)), min(entries), max(entries), *theirs))
    columns = (
        Column("split"), Column("models", "integer"), Column("mean", "count"),
        Column("least", "count"), Column("most", "count"), Column("published mean", "count"),
        Column("published least", "count"), Column("published most", "count"),
    )  # fmt: skip
    return Table(f"AutoAttack's queries per sample in {SYMBOLS[norm]}", columns, tuple(rows))


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


def _gains(entries: Sequence[Entry], tier: Tier) -> list[float]:
    """Of each model with a baseline, by how much a tier's accuracy is below it."""
    family, budget = tier
    return [
        known[0] - accuracy_at(subject.families[family][budget], epsilon)
        for subject, epsilon, known in entries
        if known is not None
    ]


def _as_strong(gains: Iterable[float]) -> Share:
    return Share.of_all(gain >= -_EQUAL for gain in gains)


def totals(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """On how many pairs of a model and a norm, over all norms, a tier matches or passes the baseline."""
    compared = {norm: own for norm, own in subjects.items() if any(s.baseline is not None for s in own)}
    every = [shown_tiers(own) for own in compared.values()]
    shown = {name: tier for name, tier in (every[0] if every else {}).items() if all(name in each for each in every)}
    budgets = [tier for own in list(compared.values())[:1] for tier in own[0].tiers if tier in TIERS]

    def as_strong(norm: str, group: Sequence[Subject], tier: Tier) -> Share:
        at_reference = _by_radius(group, radii.get(norm, {}))[:1]
        return _as_strong(gain for entries in at_reference for gain in _gains(entries, tier))

    # How a tier's models are counted, and what the paper counts likewise
    counts: dict[str, tuple[Callable[[str, Sequence[Subject], Tier], Share], Callable[[Published], Any]]] = {
        "AOI at least AutoAttack's": (lambda _, group, tier: _matched_aoi(group, tier), lambda p: p.aois_matched),
        "the same by lines": (lambda _, group, tier: _matched_aoi(group, tier, straight=True), lambda _: {}),
        "at least as strong at the reference radius": (as_strong, lambda p: p.accuracies_matched),
    }
    rows = []
    for (what, (count, published)), split in product(counts.items(), (*SPLITS, ALL)):
        groups = [(norm, grouped(own).get(split, [])) for norm, own in compared.items()]
        summed = [_sum([count(norm, group, tier) for norm, group in groups if group]) for tier in shown.values()]
        theirs = [[published(PUBLISHED[norm][split]).get(tier) for norm in compared] for tier in budgets]
        if summed and summed[0].of:
            rows.append((what, split, *summed, *(_sum(each) if all(each) else None for each in theirs)))
    columns = [Column("models in all norms", key="what"), Column("split")]
    columns += [*(Column(name, "integer") for name in shown), *tier_columns(budgets, "integer", "published {}")]
    return Table("Against AutoAttack, over all norms", tuple(columns), tuple(rows))


def glance(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """Held-out models, norm by norm: how near the smallest tiers come, and the last of them beside the baseline."""
    held_out = {norm: group for norm, own in subjects.items() if (group := by_split(own).get("held-out"))}
    every = [shown_tiers(group) for group in held_out.values()]
    shown = {name: tier for name, tier in (every[0] if every else {}).items() if all(name in each for each in every)}
    budgets = [budget for _, budget in shown.values()]
    near = {n: tier for n, tier in shown.items() if tier[1] == min(budgets) or tier == (PAPER, max(budgets))}
    name, best = [(n, tier) for n, tier in shown.items() if tier[1] == min(budgets)][-1] if shown else ("", ("", 0))
    rows: list[tuple[Any, ...]] = []
    for norm, group in held_out.items() if shown else ():
        train, known = by_split(subjects[norm]).get("train"), [s for s in group if s.baseline is not None]
        at_reference = [entry for at in _by_radius(known, radii.get(norm, {}))[:1] for entry in at if entry[2]]
        apart = mean_aoi(train, *best) - mean_aoi(group, *best) if train else None  # type: ignore[operator]
        rows.append((
            norm, len(group), *(mean_above(group, *tier) for tier in near.values()),
            _matched_aoi(known, best) if known else None,
            _matched_aoi(known, best, straight=True) if known else None,
            _as_strong(_gains(at_reference, best)) if at_reference else None,
            float(np.mean([at[1] for *_, at in at_reference if at])) if at_reference else None,
            apart,
        ))  # fmt: skip
    columns = [Column("norm", "norm"), Column("models", "integer"), *(Column(f"{n} above", "fine") for n in near)]
    columns += [
        Column("AOI ≥ AutoAttack's", "integer", key="AOI at least AutoAttack's"),
        Column("by lines", "integer"), Column("accuracy ≤ its", "integer", key="accuracy at most AutoAttack's"),
        Column("its queries", "count", key="AutoAttack queries"),
        Column("AOI, train minus held-out", "gain", key="train minus held-out"),
    ]  # fmt: skip
    note = f"beside AutoAttack: {name}; its queries and the accuracies are those at the reference radius"
    return Table("Held-out models at a glance", tuple(columns), tuple(rows), (note,) if rows else ())


def _sum(parts: Sequence[Share]) -> Share:
    return Share(sum(part.count for part in parts), sum(part.of for part in parts))


def extreme_cases(subjects: Mapping[str, Sequence[Subject]]) -> list[tuple[str, str, Subject, float]]:
    """Over all norms, where the largest tier gains most against the baseline and least: case, norm, model, gain.

    Of held-out models, if any has a baseline. Gains are differences of AOI, both by straight lines.
    """
    every = [
        (norm, s, s.aoi((GREEDY, max(s.tiers)), straight=True) - s.baseline.value)
        for norm, group in subjects.items()
        for s in group
        if s.baseline is not None
    ]
    apart = [case for case in every if case[1].split == "held-out"] or every
    if not apart:
        return []
    best, worst = max(apart, key=lambda case: case[2]), min(apart, key=lambda case: case[2])
    return [("only", *best)] if best == worst else [("best", *best), ("worst", *worst)]


def cases(subjects: Mapping[str, Sequence[Subject]]) -> Table:
    """The best and the worst case against the baseline."""
    rows = []
    for case, norm, s, gain in extreme_cases(subjects):
        least, raced = s.baseline.value if s.baseline else float("nan"), s.straight_aois.get(RACE, {})
        exact = s.aoi((GREEDY, max(s.tiers))) - least
        rows.append((case, norm, s.model, s.split, gain, exact, raced[max(raced)] - least if raced else None))
    columns = (
        Column("case"), Column("norm", "norm"), Column("model"), Column("split"),
        Column("gain in points of AOI", "gain", key="gain"),
        Column("by all distances", "gain", key="gain by all distances"),
        Column("gain of the race", "gain"),
    )  # fmt: skip
    return Table("Best and worst case against AutoAttack", columns, tuple(rows))


def _matched_aoi(subjects: Sequence[Subject], tier: Tier, *, straight: bool = False) -> Share:
    """On how many models a tier's AOI, exact or by straight lines, is at least the baseline's."""
    return Share.of_all(s.aoi(tier, straight=straight) >= s.baseline.value for s in subjects if s.baseline is not None)
