"""Numbers as they are printed: the same way in every table. What is not known (None, NaN) is a dash."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from advfrontier.frontier.confidence import Interval
    from advfrontier.frontier.ranking import RankRow

NONE = "–"


def known(value: float | None) -> bool:
    """Whether there is a number at all."""
    return value is not None and not math.isnan(value)


def percent(share: float | None) -> str:
    """A share in percent, one decimal: 43.1."""
    return f"{100 * share:.1f}" if share is not None and known(share) else NONE


def percent_interval(interval: Interval) -> str:
    """40.1–46.2."""
    return ends(interval, percent)


def size(value: float | None, decimals: int | None = None) -> str:
    """A perturbation size or an area: four digits, or the decimals of its column."""
    if value is None or not known(value):
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
    if all(value == int(value) for value in finite):
        return 0
    return min(8, _decimals(max(finite)))


def size_interval(interval: Interval) -> str:
    """The two ends of an interval of sizes; empty where they are not known."""
    return ends(interval, size)


def ends(interval: Interval, show: Callable[[float], str]) -> str:
    """The two ends of an interval as `show` prints them."""
    if not known(interval.low):
        return ""
    between = " to " if interval.low < 0 else "–"  # a dash before a minus would be misread
    return f"{show(interval.low)}{between}{show(interval.high)}"


def _decimals(value: float) -> int:
    return max(0, 3 - math.floor(math.log10(abs(value))))


def score(value: float | None) -> str:
    """A DOI or the like: three decimals."""
    if value is None or not known(value):
        return NONE
    return "∞" if math.isinf(value) else f"{value:.3f}"


def score_interval(interval: Interval) -> str:
    """The two ends of an interval of scores; empty where they are not known."""
    return ends(interval, score)


def doi(row: RankRow, norm: str | None = None) -> str:
    """The DOI of a model, or of one norm: in brackets if it is in doubt, for it may then be above 1."""
    text = score(row.doi.estimate if norm is None else row.dois.get(norm))
    return f"({text})" if row.bracketed and text != NONE else text


def whole(count: float) -> str:
    """A count with separators: 12,000."""
    return f"{count:,.0f}"


def tier(queries: int) -> str:
    """A budget by its short name: 4k, 12k, or the number."""
    return f"{queries // 1000}k" if queries and queries % 1000 == 0 else str(queries)


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
