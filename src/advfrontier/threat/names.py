"""The four norms by name, without torch."""

from __future__ import annotations

from advfrontier.errors import FrontierError

NORMS = ("L0", "L1", "L2", "Linf")
SYMBOLS = {"L0": "ℓ0", "L1": "ℓ1", "L2": "ℓ2", "Linf": "ℓ∞"}


def norm_name(text: str | float) -> str:
    """Return the canonical name of a norm: `l2`, `2`, `inf`, `Linf` and the like are all understood."""
    key = str(text).strip().lower().removeprefix("ℓ").removeprefix("l").removesuffix(".0")
    names = {"0": "L0", "1": "L1", "2": "L2", "inf": "Linf", "∞": "Linf"}
    if key not in names:
        raise FrontierError(f"unknown norm {text!r}: expected one of {', '.join(NORMS)}")
    return names[key]
