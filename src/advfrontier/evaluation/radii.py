"""Radii at which robust accuracy is read: given, stored, customary, or quantiles."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import distance_quantile
from advfrontier.record import HeaderChange
from advfrontier.threat.names import norm_name

if TYPE_CHECKING:
    from advfrontier.evaluation.evaluation import Evaluation

Radius = tuple[str, float]  # as it is written, and its size

# Those of RobustBench and of work on several norms at once; in ℓ0 what the literature uses most.
_KNOWN = {
    "mnist": {"L0": "24", "L1": "10", "L2": "2", "Linf": "0.3"},
    "cifar": {"L0": "24", "L0pixel": "24", "L1": "12", "L2": "0.5", "Linf": "8/255"},
    "imagenet": {"L0": "150", "L1": "40", "L2": "3", "Linf": "4/255"},
}
# What images of unknown origin are taken for: channels, least height and width, most, and the
# numbers of classes.
_SHAPES = {
    "mnist": (1, 28, 28, {10}),
    "cifar": (3, 32, 32, {10, 100}),
    "imagenet": (3, 160, 600, {1000}),
}
_QUANTILES = (0.25, 0.5, 0.75)


def parse_radii(text: str, norm: str | None = None) -> tuple[Radius, ...]:
    """Read sizes such as `8/255` or `L2=0.5,1,Linf=8/255`, per norm or for all.

    Args:
        text: Text, as the user typed it.
        norm: Norm to read the sizes of; by default of all.
    """
    radii, named = [], None
    for part in filter(None, map(str.strip, str(text).split(","))):
        before, equals, size = part.rpartition("=")
        named = norm_name(before) if equals else named
        try:
            # A fraction of 1e99999999 would be computed digit by digit.
            radius = float(Fraction(size.strip())) if "/" in size else float(size)
        except (ValueError, ZeroDivisionError, OverflowError):
            radius = math.nan
        if not 0 <= radius < math.inf:
            raise FrontierError(f"{size!r} is not a radius: expected a number such as 0.5 or 8/255")
        if norm is None or named in {None, norm}:
            radii.append((size.strip(), radius))
    return tuple(radii)


def as_radius(radius: float | str) -> float:
    """Return one radius as a number, read from a text such as `8/255` if it is one.

    Args:
        radius: A number, or a text such as `8/255`.
    """
    if not isinstance(radius, str):
        return radius
    found = parse_radii(radius)
    if len(found) != 1 or "=" in radius:
        raise FrontierError(f"{radius!r} is not one radius: expected a number such as 0.5 or 8/255")
    return found[0][1]


def reference_radii(data: str, norm: str) -> tuple[Radius, ...]:
    """Return the radii usually quoted for data of this name, or none.

    Args:
        data: Name of the data, as a source: `cifar10:DIR` is CIFAR-10.
        norm: Name of the norm.
    """
    name = data.lower().replace("-", "").replace("_", "")
    if "fashionmnist" in name:
        from advfrontier.zoo import REFERENCE_RADII  # noqa: PLC0415  # the zoo imports torch models

        return tuple((f"{size:g}", size) for size in REFERENCE_RADII.get(norm, ()))
    family = next((family for family in _KNOWN if family in name), "")
    return parse_radii(_KNOWN.get(family, {}).get(norm, ""))


def chosen_radii(evaluation: Evaluation, text: str | None = None) -> tuple[Radius, ...]:
    """Return the given radii, else stored ones, else customary ones, else quartiles.

    Args:
        evaluation: Evaluation whose data and record suggest radii.
        text: Radii as the user typed them, if any.
    """
    asked = parse_radii(text or "", evaluation.norm) or tuple(
        (_written(size), size) for size in evaluation.radii
    )
    if evaluation.space is not None:  # radii are quoted for images in [0, 1]
        return asked or _quartiles(evaluation)
    return (
        asked
        or reference_radii(evaluation.data, evaluation.norm)
        or reference_radii(_family(evaluation), evaluation.norm)
        or _quartiles(evaluation)
    )


def remember_radii(evaluation: Evaluation, text: str | None) -> None:
    """Let the record keep the radii that were asked for in its norm.

    Args:
        evaluation: Evaluation whose record stores the radii.
        text: Radii as the user typed them, if any.
    """
    if sizes := tuple(size for _, size in parse_radii(text or "", evaluation.norm)):
        evaluation.record.change(HeaderChange(radii=sizes), optional=True)


def _family(evaluation: Evaluation) -> str:
    """Guess the kind of data from the images' shape and the number of classes."""
    shape, classes = tuple(evaluation.images([0]).shape[1:]), evaluation.clean_logits.shape[1]
    for family, (channels, least, most, numbers) in _SHAPES.items():
        if (
            len(shape) == 3
            and shape[0] == channels
            and classes in numbers
            and least <= min(shape[1:]) <= most
        ):
            return family
    return ""


def _quartiles(evaluation: Evaluation) -> tuple[Radius, ...]:
    broken = evaluation.distances[(evaluation.distances > 0) & np.isfinite(evaluation.distances)]
    rounded = (f"{distance_quantile(broken, share):.2g}" for share in _QUANTILES if broken.size)
    return tuple((text, float(text)) for text in dict.fromkeys(rounded))


def _written(size: float) -> str:
    """Write a size as people do: 0.5, or 8/255."""
    levels = round(255 * size)
    return f"{levels}/255" if float(f"{size:g}") != size and levels / 255 == size else f"{size:g}"
