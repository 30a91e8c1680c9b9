"""Numbers as they are printed: the same way in every table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advfrontier.pool import tier_label as tier
from advfrontier.threat.names import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advfrontier.frontier.confidence import Interval

__all__ = [
    "SYMBOLS", "column_decimals", "duration", "memory", "percent", "percent_interval", "ranks", "score",
    "score_interval", "size", "size_interval", "tier", "whole",
]  # fmt: skip


def percent(share: float) -> str:
    """A share in percent, one decimal: 43.1."""
    return f"{100 * share:.1f}"


def percent_interval(interval: Interval) -> str:
    """40.1–46.2."""
    return f"{percent(interval.low)}–{percent(interval.high)}"


def size(value: float, decimals: int | None = None) -> str:
    """A perturbation size or an area: four digits, or the decimals of its column."""
    if math.isinf(value):
        return "∞"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == int(value) and abs(value) < 1e6:  # ℓ0 counts entries
        return str(int(value))
    digits = _decimals(value)
    return f"{value:.{digits}f}" if digits < 9 else f"{value:.3e}"


def column_decimals(values: Iterable[float]) -> int:
    """The decimals that give the largest of a column four digits, and none where all are whole."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    if all(value == int(value) for value in finite):
        return 0
    return min(8, _decimals(max(finite)))


def size_interval(interval: Interval) -> str:
    """The two ends of an interval of sizes."""
    between = " to " if interval.low < 0 else "–"  # a dash before a minus would be misread
    return f"{size(interval.low)}{between}{size(interval.high)}"


def _decimals(value: float) -> int:
    return max(0, 3 - math.floor(math.log10(abs(value))))


def score(value: float) -> str:
    """A DOI or the like: three decimals."""
    return f"{value:.3f}"


def score_interval(interval: Interval) -> str:
    """The two ends of an interval of scores; empty where they are not known."""
    if math.isnan(interval.low):
        return ""
    return f"{score(interval.low)}–{'∞' if math.isinf(interval.high) else score(interval.high)}"


def whole(count: float) -> str:
    """A count with separators: 12,000."""
    return f"{count:,.0f}"


def ranks(pair: tuple[int, int] | None) -> str:
    """The ranks a model takes in most resamples: 2–4, or 3."""
    if pair is None:
        return ""
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}–{pair[1]}"


def duration(seconds: float) -> str:
    """How long something took, in the unit a person would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def memory(size: float) -> str:
    """Bytes in the unit a person would use."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
