"""Numbers as they are printed: the same way in every table. What is not known (None, NaN) is a dash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeGuard

from advfrontier.frontier.confidence import Interval

NONE = "–"


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number at all."""
    return value is not None and not math.isnan(value)


def percent(share: float | None) -> str:
    """A share in percent, one decimal: 43.1."""
    return f"{100 * share:.1f}" if known(share) else NONE


def score(value: float | None) -> str:
    """A DOI or the like: three decimals."""
    if not known(value):
        return NONE
    return "∞" if math.isinf(value) else f"{value:.3f}"


def size(value: float | None, decimals: int | None = None) -> str:
    """A perturbation size or an area: four digits, or the decimals of its column."""
    if not known(value):
        return NONE
    if math.isinf(value):
        return "∞"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == int(value) and abs(value) < 1e6:  # ℓ0 counts entries
        return str(int(value))
    digits = _decimals(value)
    return f"{value:.{digits}f}" if digits < 9 else f"{value:.3e}"


def column_decimals(values: Iterable[float | None]) -> int:
    """The decimals that give the largest of a column four digits, and none where all are whole."""
    finite = [abs(value) for value in values if value is not None and math.isfinite(value)]
    return 0 if all(value == int(value) for value in finite) else min(8, _decimals(max(finite)))


def _decimals(value: float) -> int:
    return max(0, 3 - math.floor(math.log10(abs(value))))


def ends(interval: Interval, show: Callable[[float], str]) -> str:
    """The two ends of an interval as `show` prints them: 40.1–46.2; empty where they are not known."""
    if not known(interval.low):
        return ""
    between = " to " if interval.low < 0 else "–"  # a dash before a minus would be misread
    return f"{show(interval.low)}{between}{show(interval.high)}"


def whole(count: float) -> str:
    """A count with separators: 12,000."""
    return f"{count:,.0f}"


def ranks(pair: tuple[int, int] | None) -> str:
    """The ranks a model takes in most resamples: 2–4, or 3."""
    return "" if pair is None else "–".join(map(str, dict.fromkeys(pair)))


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
