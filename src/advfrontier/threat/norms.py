"""Threat norms ℓ0, ℓ1, ℓ2 and ℓ∞ of perturbations, as rows of flattened samples.

A norm is made for one shape of samples, and answers everything that solvers and the engine ask
about it. A further norm is one class in one file, and one entry of the catalogue in `names`.

Perturbations and gradients are tensors (n, d): samples × features. Sizes, radii and weights are
tensors (n,). ℓ0 counts features: each channel of a pixel separately. Pixels are counted in
`pixels`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from advfrontier.errors import FrontierError
from advfrontier.threat.hyperplanes import all_alike, in_proportion, steepest_first
from advfrontier.threat.names import norm_facts
from advfrontier.threat.random import Draws
from advfrontier.threat.thresholds import (
    TINY,
    boxed_water_level,
    keep_largest,
    room_of,
    water_level,
    wide,
)

if TYPE_CHECKING:
    from advfrontier.threat.domain import Frame

__all__ = [
    "L0",
    "L1",
    "L2",
    "TINY",
    "Linf",
    "Norm",
    "clip",
    "euclidean",
    "make_norm",
    "prox_two_thirds",
    "soft_threshold",
]

_LONG = 100_000  # features
_SECULAR = 4  # passes: they suffice for float32
_LEAST = 1e-20  # in place of smaller numbers, so that powers and quotients are finite
_LARGEST_C = 0.39686  # of the quartic y⁴ − y + c for entries that are kept
_QUINTIC = (-11.69709, 7.73988, -2.38711, 0.012458, -0.3423176, 1.00005419)  # its root, to 1.2e-4


def euclidean(v: Tensor) -> Tensor:
    """Return the Euclidean length of each row.

    Very long rows are summed in float64, because float32 sums are off by many roundings.

    Args:
        v: (n, d).
    """
    exact = v.shape[1] >= _LONG and v.device.type != "mps"  # which has no float64
    size: Tensor = torch.linalg.vector_norm(v, 2, dim=1, dtype=torch.float64 if exact else v.dtype)
    return size.to(v.dtype)


class Norm(ABC):
    """Norm, or another measure of perturbations, for samples of one shape in one box.

    The box is [0, 1], or [0, top] in the coordinates of a `frame`. A subclass must define `name`,
    `size`, `dual_size`, `project` and `prox`. The other methods have defaults that are right for
    every norm, if not always the best.

    Args:
        shape: Shape of one sample before flattening, such as (3, 32, 32).
    """

    name: ClassVar[str]
    counts: ClassVar[bool] = False  # whether sizes are whole numbers, as in ℓ0
    frame: Frame | None = None  # coordinates of a domain; None for samples in [0, 1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = tuple(shape)
        self.features = math.prod(self.shape)
        self.units = self.features  # parts of a sample that change together, such as pixels

    def framed(self, frame: Frame | None) -> Self:
        """Return the norm in the coordinates, and in the box, of a frame.

        Args:
            frame: Coordinates of a domain; None for samples in [0, 1].
        """
        framed = copy(self)
        framed.frame = frame
        return framed

    @property
    def top(self) -> Tensor | None:
        """Return the upper ends of the box, (1, d); None for 1. The lower ends are 0."""
        return None if self.frame is None else self.frame.top

    def clamp_(self, points: Tensor) -> Tensor:
        """Clamp points to the box, in place.

        Args:
            points: (n, d), overwritten.
        """
        if self.frame is None:
            return points.clamp_(0, 1)
        return torch.minimum(points.clamp_(min=0), self.frame.top, out=points)

    def room_of(self, points: Tensor, direction: Tensor) -> Tensor:
        """Return how far each entry can go in a direction before it leaves the box: (n, d).

        Args:
            points: (n, d), inside the box.
            direction: (n, d), of which only the signs count.
        """
        return room_of(points, direction, self.top)

    @property
    def changeable(self) -> Tensor | None:
        """Return 1 for units that may change and 0 for others, (1, units); None if all may."""
        return None if self.frame is None else self.totals(self.frame.top).sign()

    @abstractmethod
    def size(self, v: Tensor) -> Tensor:
        """Return ‖v‖ of each row.

        Args:
            v: (n, d), perturbations.
        """

    @abstractmethod
    def dual_size(self, g: Tensor) -> Tensor:
        """Return the dual norm: the most that a perturbation of size 1 can gain along g.

        Args:
            g: (n, d), gradients.
        """

    @abstractmethod
    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Return the nearest point of the ball ‖·‖ ≤ radius.

        Args:
            v: (n, d), perturbations.
            radius: (n,), radii of the balls, at least 0.
        """

    @abstractmethod
    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Return argmin ½‖u − v‖₂² + weight·‖u‖ over u; every entry only shrinks towards 0.

        Args:
            v: (n, d).
            weight: (n,), at least 0.
        """

    def distance(self, points: Tensor, inputs: Tensor) -> Tensor:
        """Return ‖points − inputs‖ in the precision of `inputs`; use float64 for stored points.

        Args:
            points: (n, d).
            inputs: (n, d).
        """
        return self.size(points - inputs)

    def largest(self, inputs: Tensor) -> Tensor:
        """Return the largest distance that the box allows from each input.

        Args:
            inputs: (n, d), in the box.
        """
        top = 1 if self.frame is None else self.frame.top
        return self.size(torch.maximum(inputs, top - inputs))

    def boundary(self, margin: Tensor, gradient: Tensor, inputs: Tensor) -> Tensor:
        """Return a first-order estimate of the distance at which the margin vanishes.

        Args:
            margin: (n,), margin at the inputs.
            gradient: (n, d), gradient of the margin at the inputs.
            inputs: (n, d), in the box, which limits the estimate.
        """
        estimate = margin.abs() / self.dual_size(gradient).clamp(min=TINY)
        return torch.minimum(estimate, self.largest(inputs))

    def squares(self, v: Tensor) -> Tensor:
        """Return the squared Euclidean length of each unit's change: (n, units).

        Args:
            v: (n, d), perturbations.
        """
        return v * v

    def magnitudes(self, v: Tensor) -> Tensor:
        """Return the Euclidean length of each unit's change: (n, units).

        Args:
            v: (n, d), perturbations.
        """
        return v.abs()

    def spread(self, values: Tensor) -> Tensor:
        """Return for each feature the value of its unit, from (n, units): (n, d).

        Args:
            values: (n, units), one value per unit of the norm: a feature, or in `L0pixel` a pixel.
        """
        return values

    def totals(self, values: Tensor) -> Tensor:
        """Return the sum over each unit's features, from (n, d): (n, units).

        Args:
            values: (n, d), one value per feature.
        """
        return values

    def features_of(self, units: Tensor) -> Tensor:
        """Return the places of the features of units, from the places of units: (n, k).

        Args:
            units: (n, k) int64, indices of units.
        """
        return units

    def project_in_box(self, v: Tensor, radius: Tensor, inputs: Tensor) -> Tensor:
        """Return a point u near v with ‖u‖ ≤ radius and inputs + u in the box.

        The default projects onto the ball and then clips, which is exact in ℓ0, ℓ2's interior and
        ℓ∞. Clipping never makes a perturbation larger.

        Args:
            v: (n, d), perturbations.
            radius: (n,), radii of the balls, at least 0.
            inputs: (n, d), in [0, 1].
        """
        return self.clamp_(self.project(v, radius).add_(inputs)).sub_(inputs)

    def prox_in_metric(
        self, anchor: Tensor, weight: Tensor, metric: Tensor, *, steps: int
    ) -> Tensor:
        """Return a z that lowers weight·‖z‖ + ½·Σ metric·(z − anchor)².

        The default takes proximal gradient steps from the anchor.

        Args:
            anchor: (n, d), the point to stay near.
            weight: (n,), weight of the norm, at least 0.
            metric: (n, d), weight of each feature's deviation, from 0 to 1.
            steps: Number of proximal gradient steps.
        """
        z = self.prox(anchor, weight)
        for _ in range(steps - 1):
            z = self.prox(torch.lerp(z, anchor, metric), weight)
        return z

    def subgradient(self, v: Tensor) -> Tensor:
        """Return a subgradient of ‖v‖, and 0 where v is 0; the default is that of ℓ2.

        Args:
            v: (n, d), perturbations.
        """
        return v / euclidean(v).clamp_(min=TINY)[:, None]

    def steepest(self, g: Tensor) -> Tensor:
        """Return the direction along which a step gains most; the default is that of ℓ2.

        Args:
            g: (n, d), gradients.
        """
        return g / euclidean(g).clamp_(min=TINY)[:, None]

    def move_onto_hyperplane(self, points: Tensor, slope: Tensor, gap: Tensor) -> Tensor:
        """Return the smallest move inside the box that lowers ⟨slope, points⟩ by `gap`.

        Where the box is too small for it, the move goes to the corner that comes nearest. The
        default is the smallest move in ℓ2.

        Args:
            points: (n, d), inside the box.
            slope: (n, d), of Euclidean length about 1.
            gap: (n,), by how much ⟨slope, points⟩ shall fall; negative to rise.
        """
        return in_proportion(points, slope, gap, self.top)

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Return a random point of the ball of each row, in float64 where the device has it.

        The default projects normal numbers onto a ball of random radius.

        Args:
            radius: (n,), radii of the balls.
            draws: Random numbers of the samples.
        """
        noise = draws.normal("direction", self.features)
        length = wide(draws.uniform("length", 1))[:, 0] * wide(radius)
        return self.project(noise, length)

    def random_start(self, inputs: Tensor, radius: Tensor, draws: Draws) -> Tensor:
        """Return a random point of the ball around each input, clipped to the box.

        Args:
            inputs: (n, d), in the box.
            radius: (n,), largest distance from the inputs.
            draws: Random numbers of the samples.
        """
        noise = self.random_in_ball(radius, draws)
        return self.clamp_(inputs + noise.to(inputs.dtype))

    def __repr__(self) -> str:
        return self.name


class L0(Norm):
    """Number of changed features."""

    name = "L0"
    counts = True

    def size(self, v: Tensor) -> Tensor:
        """Return the number of non-zero entries."""
        return v.sign().abs_().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return max|g|: ℓ1 is the convex hull of ℓ0 on the unit box, and ℓ∞ its dual."""
        return g.abs().amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Keep the ⌊radius⌋ largest entries; of equal ones, those that come first."""
        return keep_largest(v.abs(), radius.floor().clamp_(min=0)).mul_(v)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Return the proximal step of the surrogate Σ|u|^{2/3}, which PDPGD's paper uses."""
        return prox_two_thirds(v, weight)

    def boundary(self, margin: Tensor, gradient: Tensor, inputs: Tensor) -> Tensor:
        """Return the fewest features whose gains reach the margin, each at its end of the box."""
        gains = self.room_of(inputs, -gradient).mul_(gradient.abs())
        ranked = gains.sort(dim=1, descending=True).values
        short = (ranked.cumsum(1) < margin.abs()[:, None]).to(gains.dtype).sum(1)
        return torch.minimum(short + 1, self.largest(inputs).clamp(min=1))

    def subgradient(self, v: Tensor) -> Tensor:
        """Return that of ℓ1, the convex hull of ℓ0."""
        return v.sign()

    def steepest(self, g: Tensor) -> Tensor:
        """Return the sign of the largest entry alone."""
        return _sign_of_largest(g)

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Choose ⌈radius⌉ features, and move each by a number uniform in (−1, 1)."""
        drawn = self._changeable(draws.uniform("features", self.features))
        chosen = keep_largest(drawn, radius.float().ceil())
        return wide(draws.uniform("values", self.features)).mul_(2).sub_(1).mul_(chosen)

    def random_start(self, inputs: Tensor, radius: Tensor, draws: Draws) -> Tensor:
        """Choose ⌈radius⌉ features, and set each to a value uniform in the box."""
        noise = self.random_in_ball(radius, draws).to(inputs.dtype)
        values = (1 + noise) / 2
        if self.frame is not None:
            values.mul_(self.frame.top)
        return torch.where(noise != 0, values, inputs)

    def _changeable(self, draws: Tensor) -> Tensor:
        """Return the numbers of units that may change, and 0 for others: (n, units)."""
        changeable = self.changeable
        return draws if changeable is None else draws * changeable.to(draws.dtype)


class L1(Norm):
    """Sum of absolute changes."""

    name = "L1"

    def size(self, v: Tensor) -> Tensor:
        """Return Σ|v|."""
        return v.abs().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return max|g|."""
        return g.abs().amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Shrink all entries by the amount that leaves exactly `radius`; rows inside stay."""
        return soft_threshold(v, water_level(v.abs(), radius))

    def project_in_box(self, v: Tensor, radius: Tensor, inputs: Tensor) -> Tensor:
        """Return the nearest u with ‖u‖₁ ≤ radius and inputs + u in the box.

        This is not one projection after the other (Croce and Hein, 2021). Rows whose level has not
        converged, which takes entries much larger than the box, are scaled down to the ball.
        """
        level = boxed_water_level(v.abs(), self.room_of(inputs, v), radius)
        u = self.clamp_(soft_threshold(v, level).add_(inputs)).sub_(inputs)
        return u.mul_((radius / self.size(u).clamp_(min=TINY)).clamp_(max=1)[:, None])

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Shrink all entries by the weight."""
        return soft_threshold(v, weight)

    def subgradient(self, v: Tensor) -> Tensor:
        """Return the signs."""
        return v.sign()

    def steepest(self, g: Tensor) -> Tensor:
        """Return the sign of the largest entry alone."""
        return _sign_of_largest(g)

    def move_onto_hyperplane(self, points: Tensor, slope: Tensor, gap: Tensor) -> Tensor:
        """Move the steepest features first, each as far as the box allows."""
        return steepest_first(points, slope, gap, self.top)

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Return signed exponential spacings, of which there is one more than features."""
        spacings = wide(draws.uniform("spacings", self.features + 1)).log_().neg_()
        signs = wide(draws.uniform("signs", self.features)).sub_(0.5).sign_()
        scale = wide(radius) / spacings.sum(1)
        return signs.mul_(spacings[:, :-1]).mul_(scale[:, None])


class L2(Norm):
    """Euclidean length of the change."""

    name = "L2"

    def size(self, v: Tensor) -> Tensor:
        """Return √Σv²."""
        return euclidean(v)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return √Σg²: ℓ2 is its own dual."""
        return euclidean(g)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Scale down the rows that are too long; rows inside stay."""
        return v * (radius / self.size(v).clamp_(min=TINY)).clamp_(max=1)[:, None]

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Shorten every row by the weight."""
        return v * (1 - weight / self.size(v).clamp_(min=TINY)).clamp_(min=0)[:, None]

    def prox_in_metric(
        self, anchor: Tensor, weight: Tensor, metric: Tensor, *, steps: int
    ) -> Tensor:
        """Return the minimum itself, which is anchor/(1 + 1/(ν·metric)) for one ν per row.

        It is 0 unless ‖metric·anchor‖ > weight, and else ν solves ‖metric·anchor/(1 + ν·metric)‖ =
        weight. Newton's method on the reciprocal of that, as for trust regions (Moré and Sorensen,
        1983), never overshoots.
        """
        del steps
        pull, weight = metric * anchor, weight.clamp(min=TINY)[:, None]
        width, force = torch.empty_like(pull), torch.empty_like(pull)
        ν = torch.zeros_like(weight)
        for _ in range(_SECULAR):
            torch.mul(metric, ν, out=width).add_(1)
            torch.div(pull, width, out=force).square_()
            square = force.sum(1, keepdim=True)
            falling = force.div_(width).mul_(metric).sum(1, keepdim=True).clamp_(min=_LEAST)
            ahead = square.sqrt().div_(weight).sub_(1)
            ν = torch.addcdiv(ν, ahead.mul_(square), falling).clamp_(0, 1 / TINY)
        torch.mul(metric, ν, out=width)
        return width.div_(torch.add(width, 1, out=force)).mul_(anchor)

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Return a normal direction with a length of the density of the ball's shells."""
        direction = draws.normal("direction", self.features)
        length = wide(draws.uniform("length", 1))[:, 0] ** (1 / self.features) * wide(radius)
        return direction * (length / euclidean(direction))[:, None]


class Linf(Norm):
    """Largest absolute change."""

    name = "Linf"

    def size(self, v: Tensor) -> Tensor:
        """Return max|v|."""
        return v.abs().amax(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Return Σ|g|."""
        return g.abs().sum(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Clip every entry."""
        return clip(v, radius)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Clip at the level above which exactly `weight` lies.

        By Moreau's identity this is v minus its projection onto the ℓ1 ball of radius `weight`.
        """
        return clip(v, water_level(v.abs(), weight))

    def prox_in_metric(
        self, anchor: Tensor, weight: Tensor, metric: Tensor, *, steps: int
    ) -> Tensor:
        """Clip at the level above which exactly `weight` lies, weighed by the metric: exact."""
        del steps
        return clip(anchor, water_level(anchor.abs(), weight, metric))

    def subgradient(self, v: Tensor) -> Tensor:
        """Return the sign of the largest entry alone."""
        return _sign_of_largest(v)

    def steepest(self, g: Tensor) -> Tensor:
        """Return the signs."""
        return g.sign()

    def move_onto_hyperplane(self, points: Tensor, slope: Tensor, gap: Tensor) -> Tensor:
        """Move all features alike, each as far as the box allows."""
        return all_alike(points, slope, gap, self.top)

    def random_in_ball(self, radius: Tensor, draws: Draws) -> Tensor:
        """Return independent uniform entries."""
        box = wide(draws.uniform("box", self.features)).mul_(2).sub_(1)
        return box.mul_(wide(radius)[:, None])


def make_norm(norm: str | float | Norm, shape: tuple[int, ...]) -> Norm:
    """Return a norm for samples of this shape.

    Args:
        norm: Name of a registered norm, such as `L2`; or a Norm, which is returned as it is.
        shape: Shape of one sample before flattening, such as (3, 32, 32).
    """
    if isinstance(norm, Norm):
        if norm.shape != tuple(shape):
            raise FrontierError(
                f"{norm} is made for samples of shape {norm.shape}, and these have the shape "
                f"{tuple(shape)}: expected the name of a norm, or a norm of the same shape"
            )
        return norm
    facts = norm_facts(norm)
    kind = facts.norm
    if not kind:
        raise FrontierError(
            f"{facts.name} is a union of norms: evaluate in each of them, and type `advfrontier "
            "union` with the folders"
        )
    if isinstance(kind, str):
        module, _, name = kind.partition(":")
        kind = getattr(import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, Norm)):
        raise FrontierError(
            f"the norm {facts.name} names {facts.norm!r}: expected a subclass of "
            f"advfrontier.threat.norms.Norm, or module:Class"
        )
    return kind(tuple(shape))


def clip(v: Tensor, level: Tensor) -> Tensor:
    """Clip every entry to ± its row's level; twice as fast as torch.clamp over rows.

    Args:
        v: (n, d).
        level: (n,), at least 0.
    """
    level = level[:, None]
    low = torch.maximum(v, -level)
    return torch.minimum(low, level, out=low)


def soft_threshold(v: Tensor, level: Tensor) -> Tensor:
    """Return sign(v)·max(|v| − level, 0).

    Args:
        v: (n, d).
        level: (n,), at least 0.
    """
    clipped = clip(v, level)
    return torch.sub(v, clipped, out=clipped)


def prox_two_thirds(v: Tensor, weight: Tensor) -> Tensor:
    """Return argmin ½(u − v)² + weight·|u|^{2/3}, entry by entry.

    With u = v·y³, the stationary points are the roots of y⁴ − y + c, c = ⅔·weight/|v|^{4/3}, and
    the largest root is the minimum. A quintic fit of it and Newton's method find it: the closed
    form takes the difference of nearly equal numbers, which in float32 turns entries into NaN. The
    minimum beats u = 0 from |v| = ⅔·(24·weight³)^{1/4} on, which is where c is 0.397.

    Args:
        v: (n, d).
        weight: (n,), weight of the surrogate, at least 0.
    """
    magnitude = v.abs()
    kept = (magnitude - (2 / 3 * 24**0.25) * weight[:, None] ** 0.75).sign_().clamp_(min=0)
    power = magnitude.clamp_(min=_LEAST).log2_().mul_(-4 / 3).exp2_()
    c = power.mul_((2 / 3) * weight[:, None]).clamp_(max=_LARGEST_C)
    y = c * _QUINTIC[0]
    for coefficient in _QUINTIC[1:-1]:
        y.add_(coefficient).mul_(c)
    y.add_(_QUINTIC[-1])
    for _ in range(3 if v.dtype == torch.float64 else 1):
        cube = (y * y).mul_(y)
        y = (cube * y).mul_(3).sub_(c).div_(cube.mul_(4).sub_(1))
    return kept.mul_(y).mul_(y).mul_(y).mul_(v)


def _sign_of_largest(v: Tensor) -> Tensor:
    """Return the sign of each row's largest entry, in its place; 0 elsewhere."""
    place = v.abs().argmax(1, keepdim=True)
    return torch.zeros_like(v).scatter_(1, place, v.gather(1, place).sign_())
