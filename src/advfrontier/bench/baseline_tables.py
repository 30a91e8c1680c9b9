"""The tables that compare with the baseline: robust accuracy at the reference radii, totals, best and worst case.

| paper | here |
|---|---|
| robust accuracy at the reference ε with AutoAttack's queries | `robust_accuracy`, `robust_summary` |
| counts over all pairs of model and norm | `totals` |
| best and worst case against AutoAttack | `cases` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advfrontier.bench.benchmark import SPLITS
from advfrontier.bench.subject import ALL, grouped, matched_aoi, spread, strong, tier_columns
from advfrontier.frontier.curve import robust_accuracy as accuracy_at
from advfrontier.table import Column, Share, Table
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advfrontier.bench.subject import Subject

    Entry = tuple[Subject, float, tuple[float, float] | None]

_EQUAL = 1e-9  # accuracies are shares of the same samples: a hair's breadth keeps equal counts equal

Radii = dict[str, tuple[float, ...]]  # data set → the radii to read accuracy at, the reference first


def robust_accuracy(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """Robust accuracy at the reference radius of each data set, then at its second, and so on."""
    entries = [entry for nth in range(_most(subjects, radii)) for entry in _at_radius(subjects, radii, nth)]
    compared = any(known for _, _, known in entries)
    rows = []
    for subject, epsilon, known in entries:
        values = [accuracy_at(distances, epsilon) for distances in subject.tiers.values()]
        cells = [strong(value, when=known is not None and value <= known[0] + _EQUAL) for value in values]
        rows.append((subject.model, subject.split, epsilon, *((known or (None, None)) if compared else ()), *cells))
    columns = [Column(SYMBOLS[norm], key="model"), Column("split"), Column("ε", "number", key="epsilon")]
    if compared:
        columns += [Column("AutoAttack", "percent"), Column("its queries", "count", key="AutoAttack queries")]
    columns += tier_columns(subjects[0].tiers, "percent")
    return Table(f"Robust accuracy in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def robust_summary(subjects: Sequence[Subject], radii: Radii, *, norm: str) -> Table:
    """On how many models of a split, or of all, a tier is at least as strong as the baseline, and by how much."""
    budgets = subjects[0].tiers
    rows: list[tuple[Any, ...]] = []
    for nth in range(_most(subjects, radii)):
        for split, group in grouped(subjects).items():
            entries = _at_radius(group, radii, nth)
            gains = _gains(entries)
            if not gains:
                continue
            about = (
                split,
                ", ".join(f"{epsilon:g}" for epsilon in dict.fromkeys(epsilon for _, epsilon, _ in entries)),
            )
            rows.append(("at least as strong", *about, *(_at_least_as_strong(gains, tier) for tier in budgets)))
            rows.append(("points below AutoAttack", *about, *(spread([g[tier] for g in gains]) for tier in budgets)))
    columns = (Column(SYMBOLS[norm], key="what"), Column("split"), Column("ε", key="epsilon"))
    return Table(
        f"Robust accuracy against AutoAttack in {SYMBOLS[norm]}",
        (*columns, *tier_columns(budgets, "points")),
        tuple(rows),
    )


def _most(subjects: Sequence[Subject], radii: Radii) -> int:
    """Radii of the data set that has most."""
    return max((len(radii.get(subject.data, ())) for subject in subjects), default=0)


def _at_radius(subjects: Sequence[Subject], radii: Radii, nth: int) -> list[Entry]:
    """The models at the n-th radius of their data set, with the baseline's accuracy and queries where it was run."""
    return [
        (subject, epsilon, subject.known.at(epsilon) if subject.known is not None else None)
        for subject in subjects
        for epsilon in radii.get(subject.data, ())[nth : nth + 1]
    ]


def _gains(entries: Sequence[Entry]) -> list[dict[int, float]]:
    """Of each model with a baseline, by how much each tier's accuracy is below it."""
    return [
        {tier: known[0] - accuracy_at(distances, epsilon) for tier, distances in subject.tiers.items()}
        for subject, epsilon, known in entries
        if known is not None
    ]


def _at_least_as_strong(gains: Sequence[Mapping[int, float]], tier: int) -> Share:
    return Share(sum(gain[tier] >= -_EQUAL for gain in gains), len(gains))


def totals(subjects: Mapping[str, Sequence[Subject]], radii: Mapping[str, Radii]) -> Table:
    """On how many pairs of a model and a norm, over all norms, a tier matches or passes the baseline."""
    budgets = next((norm[0].tiers for norm in subjects.values()), {})
    rows = []
    counts: dict[str, Callable[[str, Sequence[Subject], int], Share]] = {
        "AOI at least AutoAttack's": lambda _, group, tier: matched_aoi(group, tier),
        "the same by lines": lambda _, group, tier: matched_aoi(group, tier, straight=True),
        "at least as strong at the reference radius": lambda norm, group, tier: _at_least_as_strong(
            _gains(_at_radius(group, radii.get(norm, {}), 0)), tier
        ),
    }
    for what, count in counts.items():
        for split in (*SPLITS, ALL):
            groups = [(norm, grouped(own).get(split, [])) for norm, own in subjects.items()]
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
