"""Numbers and norms as text, the same way in every table and page. None and NaN are a dash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeGuard

from advfrontier.frontier.confidence import Interval
from advfrontier.threat.names import norm_symbol

NONE = "–"
LEVELS = {"Linf": 255}  # norms whose distances are also read as steps of an 8-bit image
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def known(value: float | None) -> TypeGuard[float]:
    """Tell whether there is a number: neither None nor NaN.

    Args:
        value: A figure, NaN where it cannot be computed.
    """
    return value is not None and not math.isnan(value)


def percent(share: float | None) -> str:
    """Return a share in percent with one decimal, such as 43.1.

    Args:
        share: A share from 0 to 1; a dash where it is unknown.
    """
    return f"{100 * share:.1f}" if known(share) else NONE


def score(value: float | None) -> str:
    """Return an index such as a DOI with three decimals.

    Args:
        value: An index from 0 to 1; a dash where it is unknown.
    """
    if not known(value):
        return NONE
    return "∞" if math.isinf(value) else f"{value:.3f}"


def size(value: float | None, decimals: int | None = None) -> str:
    """Return a perturbation size or an area.

    Args:
        value: Distance in units of the norm; whole numbers are printed without decimals, as ℓ0
            counts features.
        decimals: Decimals of its column; by default as many as give four digits.
    """
    if not known(value):
        return NONE
    if math.isinf(value):
        return "∞"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == int(value):
        return str(int(value))
    digits = _decimals(value)
    return f"{value:.{digits}f}" if digits < 9 else f"{value:.3e}"


def levels(value: float | None, norm: str) -> str:
    """Return a distance in steps of an 8-bit image, such as 26.5/255.

    Args:
        value: The distance, for images in [0, 1].
        norm: Name of the norm. The text is empty in norms where such steps mean nothing.
    """
    if norm not in LEVELS or not known(value) or math.isinf(value) or value == 0:
        return ""
    return f"{LEVELS[norm] * value:.3g}/{LEVELS[norm]}"


def distance(value: float | None, norm: str) -> str:
    """Return a distance with its steps of an 8-bit image where they mean something.

    Args:
        value: Distance in units of the norm; a dash where it is unknown.
        norm: Name of the norm. In ℓ∞ the text is such as `0.03137 (8/255)`.
    """
    steps = levels(value, norm)
    return f"{size(value)} ({steps})" if steps else size(value)


def norm_text(norm: str) -> str:
    """Return the symbol of a norm with its number set low: ℓ₂. There is no low ∞: ℓ∞.

    Args:
        norm: Name of the norm.
    """
    return norm_symbol(norm).translate(_SUBSCRIPTS)


def column_decimals(values: Iterable[float | None]) -> int:
    """Return the decimals that give the largest of a column four digits, 0 if all are whole.

    Args:
        values: Values of the column; unknown ones are skipped.
    """
    finite = [abs(value) for value in values if value is not None and math.isfinite(value)]
    if all(value == int(value) for value in finite):
        return 0
    return min(8, _decimals(max(finite)))


def _decimals(value: float) -> int:
    return max(0, 3 - math.floor(math.log10(abs(value))))


def ends(interval: Interval, show: Callable[[float], str]) -> str:
    """Return the two ends of an interval, such as 40.1–46.2; empty where they are not known.

    Args:
        interval: Interval, whose ends may be unknown.
        show: Prints one end.
    """
    if not known(interval.low):
        return ""
    between = " to " if interval.low < 0 else "–"  # a dash before a minus would be misread
    return f"{show(interval.low)}{between}{show(interval.high)}"


def whole(count: float) -> str:
    """Return a count with separators, such as 12,000.

    Args:
        count: A count, rounded to an integer.
    """
    return f"{count:,.0f}"


def ranks(pair: tuple[int, int] | None) -> str:
    """Return a range of ranks, such as 2–4, or 3 where both ends are equal.

    Args:
        pair: First and last rank; None prints a dash.
    """
    if pair is None:
        return ""
    low, high = pair
    return str(low) if low == high else f"{low}–{high}"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours.

    Args:
        seconds: Time in seconds.
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def memory(count: float) -> str:
    """Return a number of bytes in kB, MB or GB.

    Args:
        count: Number of bytes.
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
