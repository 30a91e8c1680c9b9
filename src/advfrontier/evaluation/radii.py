"""Reference radii: the ε that people quote, per data set and norm. The curve itself needs none."""

from __future__ import annotations

from fractions import Fraction

from advfrontier.errors import FrontierError

Radius = tuple[str, float]  # as it is written, and its size

# Those of the paper, and of RobustBench; in ℓ0, where neither has one, what the literature uses most.
_KNOWN = {
    "cifar": {"L0": "24", "L1": "12", "L2": "0.5", "Linf": "8/255"},
    "imagenet": {"L0": "150", "L1": "40", "L2": "3", "Linf": "4/255"},
}


def parse_radii(text: str) -> tuple[Radius, ...]:
    """Read sizes such as `8/255`, `0.5` or `12`, with commas between them."""
    radii = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            size = float(Fraction(part))
        except (ValueError, ZeroDivisionError) as error:
            raise FrontierError(f"{part!r} is not a radius: expected a number such as 0.5 or 8/255") from error
        if size < 0:
            raise FrontierError(f"a radius of {part} is negative: expected a number such as 0.5 or 8/255")
        radii.append((part, size))
    return tuple(radii)


def reference_radii(data: str, norm: str) -> tuple[Radius, ...]:
    """The radii usually quoted for data of this name; none where there is no custom."""
    if data.startswith("fashion-mnist"):
        from advfrontier.zoo import REFERENCE_RADII  # noqa: PLC0415  # the zoo imports torch models

        return tuple((f"{size:g}", size) for size in REFERENCE_RADII[norm])
    family = next((family for family in _KNOWN if family in data.lower()), "")
    return parse_radii(_KNOWN.get(family, {}).get(norm, ""))


def chosen_radii(data: str, norm: str, text: str | None) -> tuple[Radius, ...]:
    """The radii asked for, or those usually quoted."""
    return parse_radii(text) if text else reference_radii(data, norm)
