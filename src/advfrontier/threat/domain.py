"""Domains: a box per feature, features that may not change, and weights of features.

A domain is searched in other coordinates: `z = scale · (x − lower)`, in which the box is [0, top]
and the weighted norm is the plain one. Solvers and norms see these coordinates alone; points,
distances and records are in the user's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.threat.norms import Norm, make_norm

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

_TOLERANCE = 1e-6  # of a feature's largest value: how far rounding may take an input outside
_FIELDS = ("lower", "upper", "changeable", "weights")


@dataclass(frozen=True, eq=False)
class Domain:
    """What samples may be, which of their features may change, and what a change costs.

    Every field is one number, or an array that broadcasts to the shape of a sample.

    Args:
        lower: Smallest value of each feature.
        upper: Largest value of each feature.
        changeable: True for features that may change; None for all.
        weights: By what each feature's change is multiplied before it is measured, above 0; None
            for 1. In norms that count features all weights must be equal.
    """

    lower: ArrayLike | Tensor = 0.0
    upper: ArrayLike | Tensor = 1.0
    changeable: ArrayLike | Tensor | None = None
    weights: ArrayLike | Tensor | None = None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file of `numpy.savez` with some of lower, upper, changeable and weights.

        Args:
            path: File of `numpy.savez`.
        """
        try:
            # It refuses pickled objects.
            with Path(path).open("rb") as content, np.load(content) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, TypeError, BadZipFile) as error:
            missing = isinstance(error, FileNotFoundError)
            raise FrontierError(
                f"{path} {'does not exist' if missing else 'is no domain'}: expected a file of "
                "np.savez with lower, upper, changeable or weights"
            ) from error
        if others := sorted(arrays.keys() - set(_FIELDS)):
            raise FrontierError(
                f"{path} holds {', '.join(others)}: expected some of {', '.join(_FIELDS)}"
            )
        return cls(**arrays)

    def space(self, shape: tuple[int, ...]) -> Space | None:
        """Return the domain for samples of one shape; None if it is the unit box.

        Args:
            shape: Shape of one sample, such as (3, 32, 32).
        """
        lower, upper = (_spread(name, getattr(self, name), shape) for name in ("lower", "upper"))
        changeable = torch.ones(shape, dtype=torch.bool)
        if self.changeable is not None:
            chosen = _spread("changeable", self.changeable, shape)
            if not bool(((chosen == 0) | (chosen == 1)).all()):
                raise FrontierError("changeable holds other values than 0 and 1: expected a mask")
            changeable = chosen.bool()
        weights = torch.ones(shape, dtype=torch.float64)
        if self.weights is not None:
            weights = _spread("weights", self.weights, shape)
        tensors = {
            "lower": lower.float(),
            "upper": upper.float(),
            "changeable": changeable,
            "weights": weights,
        }
        space = Space.of(tensors)
        return None if space.is_unit_box else space


def _spread(name: str, values: ArrayLike | Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the values of a field for every feature, in float64; raise if they do not fit."""
    try:
        tensor = (
            values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values).copy())
        )
        spread = tensor.detach().cpu().double().broadcast_to(shape).contiguous()
    except (TypeError, ValueError, RuntimeError) as error:
        given = values.shape if isinstance(values, (np.ndarray, Tensor)) else type(values).__name__
        held = f"an array of shape {tuple(given)}" if isinstance(given, tuple) else f"a {given}"
        raise FrontierError(
            f"{name} of the domain is {held}, which does not fit samples of the shape {shape}: "
            "expected one number, or an array of numbers of that shape"
        ) from error
    if not bool(spread.isfinite().all()):
        raise FrontierError(
            f"{name} of the domain is not finite everywhere: expected finite numbers; of a feature "
            "without a natural bound give the smallest and largest value that samples may have"
        )
    return spread


@dataclass(frozen=True, eq=False)
class Space:
    """Domain for samples of one shape, with a tensor per field on the CPU.

    Args:
        lower: (…) float32.
        upper: (…) float32.
        changeable: (…) bool.
        weights: (…) float64.
    """

    lower: Tensor
    upper: Tensor
    changeable: Tensor
    weights: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the space of these tensors; raise if they contradict each other.

        Args:
            tensors: Field to tensor, as `tensors` returns them.
        """
        space = cls(**{name: tensors[name] for name in _FIELDS})
        if wrong := int((space.lower > space.upper).sum()):
            raise FrontierError(
                f"the lower end of the domain is above the upper one in {wrong} features: expected "
                "lower ≤ upper"
            )
        if not bool((space.upper - space.lower).isfinite().all()):
            raise FrontierError("the domain is wider than float32 reaches: expected a smaller box")
        if float(space.weights.min()) <= 0:
            raise FrontierError(
                f"the least weight of the domain is {float(space.weights.min()):g}: expected "
                "weights above 0; for a feature that may not change give changeable=False"
            )
        if not bool(space.moves.any()):
            raise FrontierError("no feature of the domain may change: expected one at least")
        return space

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return tuple(self.lower.shape)

    @property
    def moves(self) -> Tensor:
        """Return which features may change, and have room to."""
        return self.changeable & (self.upper > self.lower)

    @property
    def is_unit_box(self) -> bool:
        """Tell whether it is the box [0, 1], all of whose features may change and weigh 1."""
        plain = (self.lower == 0) & (self.upper == 1) & self.changeable & (self.weights == 1)
        return bool(plain.all())

    @cached_property
    def name(self) -> str:
        """Return the name that records keep: a digest; equal names stand for equal domains."""
        content = blake2b(repr(self.shape).encode(), digest_size=8)
        for tensor in self.tensors.values():
            content.update(tensor.contiguous().numpy().tobytes())
        return f"domain-{content.hexdigest()}"

    @property
    def words(self) -> str:
        """Return the domain as a reader sees it."""
        low, high = self.limits
        box = f"a box from {low:.6g} to {high:.6g}"
        if low < float(self.lower.max()) or high > float(self.upper.min()):
            box = f"a box per feature between {low:.6g} and {high:.6g}"
        parts = []
        features, moving = self.changeable.numel(), int(self.changeable.sum())
        if moving < features:
            parts.append(f"{moving} of {features} features changeable")
        least, most = float(self.weights.min()), float(self.weights.max())
        if (least, most) != (1, 1):
            parts.append(f"weights from {least:.6g} to {most:.6g}")
        return f"{box} with {' and '.join(parts)}" if parts else box

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest value of any feature."""
        return float(self.lower.min()), float(self.upper.max())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def check(self, samples: Tensor, source: str = "") -> Tensor:
        """Return samples clamped to the box where rounding took them outside; else raise.

        Args:
            samples: (n, …).
            source: Name of the data, for messages.
        """
        which = f"{source}: samples" if source else "samples"
        if not samples.is_floating_point():
            raise FrontierError(f"{which} are {samples.dtype}: expected floats; type .float()")
        if tuple(samples.shape[1:]) != self.shape or not len(samples):
            raise FrontierError(
                f"{which} have the shape {tuple(samples.shape)}, and the domain is for "
                f"(samples, {', '.join(map(str, self.shape))}): expected the same"
            )
        lower, upper = self.lower.to(samples), self.upper.to(samples)
        slack = _TOLERANCE * torch.maximum(lower.abs(), upper.abs())
        # Written so that a value that is no number is outside.
        outside = ~((samples >= lower - slack) & (samples <= upper + slack)).all(0)
        if not bool(outside.any()):
            return torch.minimum(torch.maximum(samples, lower), upper)
        places = outside.nonzero()
        place = tuple(places[0].tolist())
        values = samples[(slice(None), *place)]
        index = place[0] if len(place) == 1 else place
        raise FrontierError(
            f"{which} leave the box of the domain in {len(places)} features: feature {index} has "
            f"values from {float(values.min()):g} to {float(values.max()):g}, and its box is "
            f"{float(lower[place]):g} to {float(upper[place]):g}; expected inputs inside, so widen "
            "the box, or leave these samples out"
        )

    def breaches(self, points: Tensor, inputs: Tensor) -> Tensor:
        """Tell which points are outside the box, or change what may not: (n,) bool.

        Args:
            points: (n, d) on the CPU.
            inputs: (n, d) on the CPU.
        """
        lower, upper = self.lower.flatten().to(points), self.upper.flatten().to(points)
        inside = (points >= lower) & (points <= upper)
        kept = (points == inputs) | self.changeable.flatten()
        return ~(inside & kept).all(1)

    def distance(self, norm: str, points: Tensor, inputs: Tensor) -> Tensor:
        """Return the weighted distances of points, in their precision; use float64: (n,).

        Args:
            norm: Name of the norm.
            points: (n, d).
            inputs: (n, d).
        """
        change = (points - inputs).mul_(self.weights.flatten().to(points))
        return make_norm(norm, self.shape).size(change)

    def to_unit(self, samples: Tensor) -> Tensor:
        """Return samples with every feature's box stretched to [0, 1], as pictures need them.

        Args:
            samples: (n, …), in the domain.
        """
        lower, upper = self.lower.to(samples), self.upper.to(samples)
        width = upper - lower
        return torch.where(width > 0, (samples - lower) / width, 0)

    def from_unit(self, samples: Tensor) -> Tensor:
        """Return the samples in the domain of which `to_unit` made these.

        Args:
            samples: (n, …), in [0, 1].
        """
        lower, upper = self.lower.to(samples), self.upper.to(samples)
        return torch.lerp(lower, upper, samples)

    def norm(self, norm: str, device: torch.device, dtype: torch.dtype) -> Norm:
        """Return a norm in the coordinates in which the domain is searched.

        Args:
            norm: Name of the norm.
            device: Where points are.
            dtype: Precision of points.
        """
        plain = make_norm(norm, self.shape)
        moves, weights = self.moves.flatten(), self.weights.flatten()
        lower, upper = (each.flatten()[None].to(device, dtype) for each in (self.lower, self.upper))
        self.check_norm(norm)
        widths = (self.upper.double() - self.lower.double()).flatten()
        if plain.counts:  # sizes do not depend on the widths: let all of them be 1
            weights, unit = torch.ones_like(weights), 1.0
            scale = torch.where(moves, 1 / widths, 0)
        else:
            widest = float((weights * widths)[moves].max())
            unit = 2.0 ** math.ceil(math.log2(widest))
            scale = torch.where(moves, weights / unit, 0)
        stretch = torch.where(moves, 1 / scale, 0)
        used = scale[None].to(device, dtype)
        top = (upper - lower).mul_(used)
        if plain.counts:
            top = top.sign_()
        frame = Frame(
            lower=lower,
            upper=upper,
            scale=used,
            stretch=stretch[None].to(device, dtype),
            top=top,
            weights=weights[None] if device.type == "mps" else weights[None].to(device),
            unit=unit,
        )
        return plain.framed(frame)

    def check_norm(self, norm: str) -> None:
        """Raise if the weights make no sense in a norm.

        Args:
            norm: Name of the norm.
        """
        weights = self.weights[self.moves]
        if make_norm(norm, self.shape).counts and float(weights.min()) < float(weights.max()):
            raise FrontierError(
                f"{norm} counts features, and the domain has weights from {float(weights.min()):g} "
                f"to {float(weights.max()):g}: expected no weights, or another norm, such as L1"
            )


@dataclass(frozen=True, eq=False)
class Frame:
    """Coordinates in which a domain is searched: `z = scale · (x − lower)` in the box [0, top].

    A distance there, times `unit`, is the weighted distance. `unit` is a power of 2 with which the
    widest feature is between 1/2 and 1 wide, as solvers' steps are made for images in [0, 1].

    Args:
        lower: (1, d), the lower ends of the user's box.
        upper: (1, d), the upper ends.
        scale: (1, d), change of z per change of x; 0 for features that may not change.
        stretch: (1, d), change of x per change of z; 0 for features that may not change.
        top: (1, d), the upper ends of the box in z; 0 for features that may not change.
        weights: (1, d) float64, by which changes are multiplied to be measured.
        unit: Distance of the user per distance in z.
    """

    lower: Tensor
    upper: Tensor
    scale: Tensor
    stretch: Tensor
    top: Tensor
    weights: Tensor
    unit: float

    def enter(self, points: Tensor) -> Tensor:
        """Return the coordinates z of points: (n, d).

        Args:
            points: (n, d), in the user's box.
        """
        z = (points - self.lower).mul_(self.scale)
        return torch.where(points < self.upper, torch.minimum(z, self.top, out=z), self.top)

    def leave(self, z: Tensor, origin: Tensor, inputs: Tensor) -> Tensor:
        """Return the points of coordinates; features that are at the origin have the input's value.

        Args:
            z: (n, d), inside [0, top].
            origin: (n, d), the coordinates of the inputs.
            inputs: (n, d), the unperturbed samples in the user's box.
        """
        points = torch.addcmul(inputs, z - origin, self.stretch)
        points = torch.maximum(points, self.lower, out=points)
        return torch.minimum(points, self.upper, out=points)

    def measure(self, norm: Norm, points: Tensor, inputs: Tensor) -> Tensor:
        """Return the weighted distance of points, in the user's units and their precision.

        Args:
            norm: Norm that measures the changes.
            points: (n, d), in the user's box.
            inputs: (n, d), the unperturbed samples.
        """
        return norm.size((points - inputs).mul_(self.weights.to(points)))
