"""What several tables share: models by split, columns of tiers, and counts against the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from advfrontier.bench.benchmark import SPLITS
from advfrontier.pool import tier_label
from advfrontier.table import Column, Share, Spread, Strong

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advfrontier.bench.subject import Subject
    from advfrontier.table import Format

ALL = "all"  # in place of a split: the complete pool


def grouped(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """By split, and all of them where there are several splits."""
    every = {split: [subject for subject in subjects if subject.split == split] for split in SPLITS}
    named: dict[str, list[Subject]] = {split: group for split, group in every.items() if group}
    return {**named, ALL: list(subjects)} if len(named) > 1 else named


def matched_aoi(subjects: Sequence[Subject], tier: int, *, straight: bool = False) -> Share:
    """Of the models with a baseline, on how many a tier's AOI is at least the baseline's; or that by straight lines."""
    pairs = [
        (subject.straight_aois[tier] if straight else subject.aois[tier].value, subject.baseline.value)
        for subject in subjects
        if subject.baseline is not None
    ]
    return Share(sum(own >= least for own, least in pairs), len(pairs))


def tier_columns(budgets: Iterable[int], how: Format, name: str = "{}") -> tuple[Column, ...]:
    """A column for each budget, under its short name."""
    return tuple(Column(name.format(tier_label(budget)), how) for budget in budgets)


def strong(value: float | None, *, when: bool) -> Any:
    """A cell that stands out if it is to."""
    return Strong(value) if when else value


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and standard deviation over all that there are; None if there are none."""
    return Spread(float(np.mean(values)), float(np.std(values))) if values else None
