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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from advfrontier.bench.attack_tables import mean_above, mean_aoi
from advfrontier.bench.benchmark import SPLITS
from advfrontier.bench.published import PUBLISHED
from advfrontier.bench.subject import (
    ALL,
    GREEDY,
    PAPER,
    RACE,
    Subject,
    Tier,
    grouped,
    shown_tiers,
    spread,
    tier_columns,
)
from advfrontier.frontier.curve import robust_accuracy as accuracy_at
from advfrontier.pool import TIERS
from advfrontier.table import Column, Format, Share, Spread, Strong, Table
from advfrontier.threat.names import SYMBOLS

Radii = Mapping[
    str, Sequence[float]
]  # data set → the radii to read accuracy at, the reference first
Entry = tuple[
    Subject, float, float, float
]  # a model, a radius, the baseline's accuracy and queries there

_BASELINE = "AutoAttack"
_EQUAL = (
    1e-9  # accuracies are shares of the same samples: a hair's breadth keeps equal counts equal
)


def aoi(subjects: Sequence[Subject], *, norm: str, straight: bool = False) -> Table:
    """AOI of every model: the baseline's, and every tier's, which stands out where it is at least the baseline's.

    By straight lines tiers are known at the baseline's radii only, and the frontier too: like is compared with like.
    """
    listed = (
        [subject for subject in subjects if subject.known is not None] if straight else subjects
    )
    compared, shown = any(subject.baseline is not None for subject in listed), shown_tiers(subjects)
    rows, notes = [], []
    for s in listed:
        values = [s.aoi(tier, straight=straight) for tier in shown.values()]
        values += [s.straight_aoi(s.frontier)] if straight else []
        cells = [
            Strong(value) if s.baseline and value >= s.baseline.value else value for value in values
        ]
        rows.append((s.model, s.split, *([s.baseline] if compared else []), *cells))
        own = dict.fromkeys(
            flag for tiers in s.aois.values() for each in tiers.values() for flag in each.flags
        )
        about = [
            f"AutoAttack: {flag}"
            for flag in (s.baseline.flags if s.baseline else ())
            if flag not in own
        ]
        notes += (
            [f"{s.model}: {'; '.join((*own, *about))}"] if not straight and (own or about) else []
        )
    names = [*([_BASELINE] if compared else []), *shown, *(["frontier"] if straight else [])]
    columns = (
        Column(SYMBOLS[norm], key="model"),
        Column("split"),
        *(Column(name, "fine") for name in names),
    )
    title = f"AOI{' by straight lines' if straight else ''} in {SYMBOLS[norm]}"
    return Table(title, columns, tuple(rows), tuple(notes))


def aoi_summary(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Mean AOI of each split and of all models, how far held-out models stay behind, who matches the baseline."""
    shown, known = shown_tiers(subjects), _known(subjects)
    rows: list[tuple[Any, ...]] = []
    means: dict[str, list[Spread | None]] = {}
    for split, group in grouped(subjects).items():
        values = [s.baseline.value for s in group if s.baseline]
        means[split] = [spread(values) if len(values) == len(group) else None] if known else []
        means[split] += [spread([s.aoi(tier) for s in group]) for tier in shown.values()]
        rows.append(
            (
                "mean",
                split,
                len(group),
                *means[split],
                *_printed(subjects, PUBLISHED[norm][split].aois),
            )
        )
    if len(means) > 1:
        apart = [
            a and b and a.mean - b.mean
            for a, b in zip(*(means[split] for split in SPLITS), strict=True)
        ]
        train, held_out = (PUBLISHED[norm][split].aois for split in SPLITS)
        theirs = {tier: train[tier].mean - held_out[tier].mean for tier in train}
        rows.append(
            ("difference", "train minus held-out", None, *apart, *_printed(subjects, theirs))
        )
    for what, straight in (("at least AutoAttack", False), ("the same by lines", True)):
        for split, group in grouped(known).items():
            counts = [_matched(group, tier, straight=straight) for tier in shown.values()]
            printed = _printed(subjects, {} if straight else PUBLISHED[norm][split].aois_matched)
            rows.append((what, split, len(group), None, *counts, *printed))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("models", "integer")]
    columns += [Column(name, "fine") for name in ([_BASELINE] if known else []) + list(shown)]
    columns += _printed_columns(subjects, "fine")
    return Table(f"AOI over models in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def _known(subjects: Sequence[Subject]) -> list[Subject]:
    """The models that the baseline was run on."""
    return [subject for subject in subjects if subject.baseline is not None]


def _printed(subjects: Sequence[Subject], figures: Mapping[int, Any]) -> list[Any]:
    """The paper's figures at those tiers of these models that it has."""
    return [figures.get(tier) for tier in subjects[0].tiers if tier in TIERS]


def _printed_columns(subjects: Sequence[Subject], how: Format) -> tuple[Column, ...]:
    return tier_columns([tier for tier in subjects[0].tiers if tier in TIERS], how, "published {}")


def _matched(subjects: Sequence[Subject], tier: Tier, *, straight: bool = False) -> Share:
    """On how many models a tier's AOI, exact or by straight lines, is at least the baseline's."""
    return Share.of_all(
        s.aoi(tier, straight=straight) >= s.baseline.value
        for s in subjects
        if s.baseline is not None
    )


def robust_accuracy(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """Robust accuracy at the reference radius of each data set, then at its second, and so on."""
    entries = [entry for nth in _places(subjects, radii) for entry in _at(subjects, radii, nth)]
    compared, shown = any(known for _, _, known in entries), shown_tiers(subjects)
    rows = []
    for subject, epsilon, known in entries:
        values = [
            accuracy_at(subject.families[family][tier], epsilon) for family, tier in shown.values()
        ]
        cells = [
            Strong(value) if known is not None and value <= known[0] + _EQUAL else value
            for value in values
        ]
        rows.append(
            (
                subject.model,
                subject.split,
                epsilon,
                *((known or (None, None)) if compared else ()),
                *cells,
            )
        )
    columns = [
        Column(SYMBOLS[norm], key="model"),
        Column("split"),
        Column("ε", "number", key="epsilon"),
    ]
    if compared:
        columns += [
            Column(_BASELINE, "percent"),
            Column("its queries", "count", key="AutoAttack queries"),
        ]
    columns += [Column(name, "percent") for name in shown]
    return Table(f"Robust accuracy in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def robust_summary(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """On how many models of a split, or of all, a tier is at least as strong as the baseline, and by how much."""
    shown = shown_tiers(subjects)
    rows: list[tuple[Any, ...]] = []
    for nth in _places(subjects, radii):
        for split, group in grouped(_known(subjects)).items():
            if entries := _compared(group, radii, nth):
                about = (
                    split,
                    ", ".join(dict.fromkeys(f"{epsilon:g}" for _, epsilon, *_ in entries)),
                )
                gains = [_gains(entries, tier) for tier in shown.values()]
                printed = (
                    PUBLISHED[norm][split] if nth == 0 else None
                )  # the paper has the reference radius alone
                theirs = _printed(subjects, printed.accuracies_matched if printed else {})
                rows.append(("at least as strong", *about, *map(_as_strong, gains), *theirs))
                theirs = _printed(subjects, printed.gains if printed else {})
                rows.append(("points below AutoAttack", *about, *map(spread, gains), *theirs))
    columns = [Column(SYMBOLS[norm], key="what"), Column("split"), Column("ε", key="epsilon")]
    columns += [*(Column(name, "points") for name in shown), *_printed_columns(subjects, "points")]
    return Table(
        f"Robust accuracy against AutoAttack in {SYMBOLS[norm]}", tuple(columns), tuple(rows)
    )


def queries(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """What AutoAttack spends per sample at the reference radius: mean, least and most over models, and the paper's."""
    rows = []
    for split, group in grouped(_known(subjects)).items():
        if spent := [queries for *_, queries in _compared(group, radii)]:
            theirs = PUBLISHED[norm][split].queries or (None, None, None)
            rows.append((split, len(spent), float(np.mean(spent)), min(spent), max(spent), *theirs))
    figures = ("mean", "least", "most", "published mean", "published least", "published most")
    columns = (
        Column("split"),
        Column("models", "integer"),
        *(Column(figure, "count") for figure in figures),
    )
    return Table(f"AutoAttack's queries per sample in {SYMBOLS[norm]}", columns, tuple(rows))


def _places(subjects: Sequence[Subject], radii: Radii) -> range:
    """0 for the reference radius of every data set, 1 for its second, and so on."""
    return range(max((len(radii.get(subject.data, ())) for subject in subjects), default=0))


def _at(
    subjects: Sequence[Subject], radii: Radii, nth: int
) -> list[tuple[Subject, float, tuple[float, float] | None]]:
    """The models at a radius of their data set, and accuracy and queries of the baseline if it was run there."""
    return [
        (subject, epsilon, subject.known.at(epsilon) if subject.known is not None else None)
        for subject in subjects
        for epsilon in radii.get(subject.data, ())[nth : nth + 1]
    ]


def _compared(subjects: Sequence[Subject], radii: Radii, nth: int = 0) -> list[Entry]:
    """The same, by default at the reference radius, of those models alone that the baseline was run on there."""
    return [
        (subject, epsilon, *known)
        for subject, epsilon, known in _at(subjects, radii, nth)
        if known is not None
    ]


def _gains(entries: Sequence[Entry], tier: Tier) -> list[float]:
    """By how much a tier's accuracy is below the baseline's, of each model."""
    family, budget = tier
    return [
        accuracy - accuracy_at(subject.families[family][budget], ε)
        for subject, ε, accuracy, _ in entries
    ]


def _as_strong(gains: Iterable[float]) -> Share:
    return Share.of_all(gain >= -_EQUAL for gain in gains)


def _shown_in_all(groups: Iterable[Sequence[Subject]]) -> dict[str, Tier]:
    """The tiers that the models of every norm have."""
    first, *others = [shown_tiers(group) for group in groups] or [{}]
    return {name: tier for name, tier in first.items() if all(name in other for other in others)}


def totals(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """On how many pairs of a model and a norm, over all norms, a tier matches or passes the baseline."""
    compared = {norm: grouped(own) for norm, own in subjects.items() if _known(own)}
    splits = dict.fromkeys(s.split for norm in compared for s in _known(subjects[norm]))
    shown = _shown_in_all(subjects[norm] for norm in compared)
    budgets = [
        tier for norm in list(compared)[:1] for tier in subjects[norm][0].tiers if tier in TIERS
    ]

    def counted(name: str | None, norm: str, group: Sequence[Subject], tier: Tier) -> Share:
        if name == "accuracies_matched":
            return _as_strong(_gains(_compared(group, radii.get(norm, {})), tier))
        return _matched(group, tier, straight=name is None)

    counts = {  # and the name of what is published likewise
        "AOI at least AutoAttack's": "aois_matched",
        "the same by lines": None,
        "at least as strong at the reference radius": "accuracies_matched",
    }
    rows = []
    for what, name in counts.items():
        for split in (*splits, *((ALL,) if len(splits) > 1 else ())):
            own = [(norm, groups[split]) for norm, groups in compared.items() if split in groups]
            summed = [
                _sum([counted(name, norm, group, tier) for norm, group in own])
                for tier in shown.values()
            ]
            printed = [getattr(PUBLISHED[norm][split], name) if name else {} for norm in compared]
            theirs = [[figures.get(tier) for figures in printed] for tier in budgets]
            if summed and summed[0].of:
                rows.append(
                    (what, split, *summed, *(_sum(each) if all(each) else None for each in theirs))
                )
    columns = [Column("models in all norms", key="what"), Column("split")]
    columns += [
        *(Column(name, "integer") for name in shown),
        *tier_columns(budgets, "integer", "published {}"),
    ]
    return Table("Against AutoAttack, over all norms", tuple(columns), tuple(rows))


def _sum(parts: Sequence[Any]) -> Share:
    return Share(sum(part.count for part in parts), sum(part.of for part in parts))


def glance(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """Held-out models, norm by norm: how near the smallest tiers come, and the last of them beside the baseline."""
    held_out = {
        norm: group for norm, own in subjects.items() if (group := grouped(own).get("held-out"))
    }
    shown = _shown_in_all(subjects[norm] for norm in held_out)
    budgets = [budget for _, budget in shown.values()]
    near = {
        n: tier
        for n, tier in shown.items()
        if tier[1] == min(budgets) or tier == (PAPER, max(budgets))
    }
    name, best = (
        [(n, tier) for n, tier in shown.items() if tier[1] == min(budgets)][-1]
        if shown
        else ("", ("", 0))
    )
    rows: list[tuple[Any, ...]] = []
    for norm, group in held_out.items() if shown else ():
        train, known = grouped(subjects[norm]).get("train"), _known(group)
        entries = _compared(known, radii.get(norm, {}))
        rows.append((
            norm, len(group), *(mean_above(group, *tier) for tier in near.values()),
            _matched(known, best) if known else None, _matched(known, best, straight=True) if known else None,
            _as_strong(_gains(entries, best)) if entries else None,
            float(np.mean([queries for *_, queries in entries])) if entries else None,
            mean_aoi(train, *best) - mean_aoi(group, *best) if train else None,
        ))  # fmt: skip
    columns = [
        Column("norm", "norm"),
        Column("models", "integer"),
        *(Column(f"{n} above", "fine") for n in near),
    ]
    columns += [
        Column("AOI ≥ AutoAttack's", "integer", key="AOI at least AutoAttack's"),
        Column("by lines", "integer"), Column("accuracy ≤ its", "integer", key="accuracy at most AutoAttack's"),
        Column("its queries", "count", key="AutoAttack queries"),
        Column("AOI, train minus held-out", "gain", key="train minus held-out"),
    ]  # fmt: skip
    compared = any(map(_known, held_out.values()))
    if not compared:  # no column of AutoAttack's
        columns, rows = [*columns[:-5], columns[-1]], [(*row[:-5], row[-1]) for row in rows]
    note = f"beside AutoAttack: {name}; its queries and the accuracies are those at the reference radius"
    return Table(
        "Held-out models at a glance",
        tuple(columns),
        tuple(rows),
        (note,) if rows and compared else (),
    )


def extreme_cases(
    subjects: Mapping[str, Sequence[Subject]],
) -> list[tuple[str, str, Subject, float]]:
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
        least, raced = s.baseline.value if s.baseline else float("nan"), s.families.get(RACE)
        exact = s.aoi((GREEDY, max(s.tiers))) - least
        of_race = s.aoi((RACE, max(raced)), straight=True) - least if raced else None
        rows.append((case, norm, s.model, s.split, gain, exact, of_race))
    columns = (
        Column("case"), Column("norm", "norm"), Column("model"), Column("split"),
        Column("gain in points of AOI", "gain", key="gain"),
        Column("by all distances", "gain", key="gain by all distances"),
        Column("gain of the race", "gain"),
    )  # fmt: skip
    return Table("Best and worst case against AutoAttack", columns, tuple(rows))
