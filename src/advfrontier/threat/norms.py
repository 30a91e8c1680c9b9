"""The threat norms ℓ0, ℓ1, ℓ2 and ℓ∞ on rows of flattened samples.

Perturbations and gradients are tensors (samples, features); sizes, radii and weights are tensors (samples,). ℓ0 counts
features: each channel of a pixel separately.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advfrontier.threat.names import norm_name
from advfrontier.threat.random import normal, uniform
from advfrontier.threat.thresholds import boxed_water_level, largest, water_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Radii = NDArray[np.float64]
    Ids = NDArray[np.uint64]

TINY = 1e-12  # below this a gradient has no direction
_LONG = 100_000  # features


def euclidean(v: Tensor) -> Tensor:
    """Euclidean length of each row; of very long rows summed in float64, as float32 sums are off by many roundings."""
    exact = v.shape[1] >= _LONG and v.device.type != "mps"  # which has no float64
    size: Tensor = torch.linalg.vector_norm(v, 2, dim=1, dtype=torch.float64 if exact else v.dtype)
    return size.to(v.dtype)


class Norm(ABC):
    """One ℓp norm: sizes, projections, proximal step and random points."""

    name: str

    @abstractmethod
    def size(self, v: Tensor) -> Tensor:
        """‖v‖ of each row."""

    @abstractmethod
    def dual_size(self, g: Tensor) -> Tensor:
        """The dual norm of each row: how much one unit of perturbation can gain along g."""

    @abstractmethod
    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """The nearest point of the ball ‖·‖ ≤ radius."""

    @abstractmethod
    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """argmin ½‖u − v‖² + weight·‖u‖ over u."""

    @abstractmethod
    def random_in_ball(self, radius: Radii, *, features: int, seed: int, ids: Ids) -> Tensor:
        """A point drawn uniformly from the ball, one row per sample id, in float64 on the CPU."""

    def distance(self, points: Tensor, inputs: Tensor) -> Tensor:
        """‖points − inputs‖ in the precision of `inputs`: pass them in float64 to measure stored points."""
        return self.size(points - inputs)

    def largest(self, inputs: Tensor) -> Tensor:
        """The largest distance that the box [0, 1] allows from each input."""
        return self.size(torch.maximum(inputs, 1 - inputs))

    def boundary(self, margin: Tensor, gradient: Tensor, inputs: Tensor) -> Tensor:
        """First-order estimate of the distance at which the margin vanishes, never more than the box allows."""
        return torch.minimum(margin.abs() / self.dual_size(gradient).clamp(min=TINY), self.largest(inputs))

    def random_start(self, inputs: Tensor, radius: Tensor, *, seed: int, ids: Ids) -> Tensor:
        """A random point of the ball around each input, clipped to the box."""
        reach = radius.cpu().double().numpy()
        noise = self.random_in_ball(reach, features=inputs.shape[1], seed=seed, ids=ids)
        return (inputs + noise.to(inputs)).clamp_(0, 1)

    def __repr__(self) -> str:
        return self.name


class L0(Norm):
    """The number of changed features."""

    name = "L0"

    def size(self, v: Tensor) -> Tensor:
        """Number of non-zero entries."""
        return v.sign().abs_().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """The steepest entry: ℓ1 is the convex hull of ℓ0 on the unit box, and ℓ∞ its dual."""
        return g.abs().amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Keep the ⌊radius⌋ largest entries; of equal ones, those that come first."""
        count = radius.floor().clamp(0, v.shape[1]).long()[:, None]
        magnitude = v.abs()
        order = largest(magnitude, int(count.amax()) + 1 if len(v) else 1)
        last = order.gather(1, (count - 1).clamp_(min=0))
        after = order.gather(1, count.clamp(max=v.shape[1] - 1))
        # 1 from the last kept entry up, 0 below: sign and clamp are faster than a comparison.
        kept = (magnitude - last).sign_().add_(1).clamp_(max=1).mul_(count > 0)
        if ((last == after) & (last > 0) & (count < v.shape[1])).any():
            tied = magnitude == last
            first = tied.long().cumsum(1) <= count - (magnitude > last).sum(1, keepdim=True)
            kept.mul_(~tied | first)
        return kept.mul_(v)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """The proximal step of the surrogate that the paper uses in ℓ0: argmin ½‖u − v‖² + weight·Σ|u|^{2/3}."""
        return prox_two_thirds(v, weight)

    def boundary(self, margin: Tensor, gradient: Tensor, inputs: Tensor) -> Tensor:
        """The fewest features whose summed gains reach the margin, each moved to the end of the box."""
        room = torch.where(gradient > 0, inputs, 1 - inputs)
        gains = (gradient.abs() * room).sort(dim=1, descending=True).values.cumsum(1)
        short = (gains < margin.abs()[:, None]).to(gains.dtype).sum(1)
        return torch.minimum(short + 1, self.largest(inputs).clamp(min=1))

    def random_in_ball(self, radius: Radii, *, features: int, seed: int, ids: Ids) -> Tensor:
        """⌈radius⌉ distinct features, uniformly chosen, each with a displacement uniform in (−1, 1)."""
        rank = uniform(seed, ids, "features", features).argsort(axis=1).argsort(axis=1)
        chosen = rank < np.ceil(radius)[:, None]
        return torch.from_numpy(chosen * (2 * uniform(seed, ids, "values", features) - 1))

    def random_start(self, inputs: Tensor, radius: Tensor, *, seed: int, ids: Ids) -> Tensor:
        """⌈radius⌉ distinct features, uniformly chosen, each set to a value uniform in (0, 1)."""
        reach = radius.cpu().double().numpy()
        noise = self.random_in_ball(reach, features=inputs.shape[1], seed=seed, ids=ids).to(inputs)
        return torch.where(noise != 0, (1 + noise) / 2, inputs)


class L1(Norm):
    """The sum of absolute changes."""

    name = "L1"

    def size(self, v: Tensor) -> Tensor:
        """Σ|v|."""
        return v.abs().sum(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """max|g|."""
        return g.abs().amax(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Soft thresholding at the level that leaves exactly `radius`; rows inside stay as they are."""
        return soft_threshold(v, water_level(v.abs(), radius))

    def project_in_box(self, v: Tensor, radius: Tensor, inputs: Tensor) -> Tensor:
        """The nearest u with ‖u‖₁ ≤ radius and inputs + u in [0, 1], exactly: not one projection after the other."""
        u = soft_threshold(v, boxed_water_level(v, inputs, radius))
        return u.add_(inputs).clamp_(0, 1).sub_(inputs)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Soft thresholding."""
        return soft_threshold(v, weight)

    def random_in_ball(self, radius: Radii, *, features: int, seed: int, ids: Ids) -> Tensor:
        """Signed exponential spacings over one more than there are features."""
        spacings = -np.log(uniform(seed, ids, "spacings", features + 1))
        signs = np.sign(uniform(seed, ids, "signs", features) - 0.5)
        return torch.from_numpy(radius[:, None] * signs * spacings[:, :-1] / spacings.sum(1, keepdims=True))


class L2(Norm):
    """The Euclidean length of the change."""

    name = "L2"

    def size(self, v: Tensor) -> Tensor:
        """√Σv²."""
        return euclidean(v)

    def dual_size(self, g: Tensor) -> Tensor:
        """√Σg²: its own dual."""
        return euclidean(g)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Scale down rows that are too long; rows inside stay as they are."""
        return v * (radius / self.size(v).clamp_(min=TINY)).clamp_(max=1)[:, None]

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Shorten every row by the weight."""
        return v * (1 - weight / self.size(v).clamp_(min=TINY)).clamp_(min=0)[:, None]

    def random_in_ball(self, radius: Radii, *, features: int, seed: int, ids: Ids) -> Tensor:
        """A normal direction, and a length with the density of the ball's shells."""
        direction = normal(seed, ids, "direction", features)
        length = radius * uniform(seed, ids, "length", 1)[:, 0] ** (1 / features)
        return torch.from_numpy(direction * (length / np.linalg.norm(direction, axis=1))[:, None])


class Linf(Norm):
    """The largest absolute change."""

    name = "Linf"

    def size(self, v: Tensor) -> Tensor:
        """max|v|."""
        return v.abs().amax(1)

    def dual_size(self, g: Tensor) -> Tensor:
        """Σ|g|."""
        return g.abs().sum(1)

    def project(self, v: Tensor, radius: Tensor) -> Tensor:
        """Clip every entry."""
        return clip(v, radius)

    def prox(self, v: Tensor, weight: Tensor) -> Tensor:
        """Clip at the level above which exactly `weight` lies (Moreau: v minus the projection onto the ℓ1 ball)."""
        return self.project(v, water_level(v.abs(), weight))

    def random_in_ball(self, radius: Radii, *, features: int, seed: int, ids: Ids) -> Tensor:
        """Independent uniform entries."""
        return torch.from_numpy(radius[:, None] * (2 * uniform(seed, ids, "box", features) - 1))


def clip(v: Tensor, level: Tensor) -> Tensor:
    """Every entry clipped to ± its row's level; twice as fast as torch.clamp, which does not vectorise over rows."""
    level = level[:, None]
    low = torch.maximum(v, -level)
    return torch.minimum(low, level, out=low)


def soft_threshold(v: Tensor, level: Tensor) -> Tensor:
    """sign(v)·max(|v| − level, 0)."""
    clipped = clip(v, level)
    return torch.sub(v, clipped, out=clipped)


def prox_two_thirds(v: Tensor, weight: Tensor) -> Tensor:
    """argmin ½(u − v)² + weight·|u|^{2/3}, entry by entry.

    For u = w³ > 0 the stationary points are the roots of w⁴ − |v|·w + ⅔·weight, and the largest root is the minimum.
    It is found by Newton's method: the closed form takes the difference of nearly equal numbers, which in float32 turns
    entries into NaN. The minimum beats u = 0 from |v| = ⅔·(24·weight³)^{1/4} on.
    """
    magnitude = v.abs()
    # Only entries above the cut survive, few of them in a sparse perturbation: the rest is spared the arithmetic.
    place = (magnitude > (2 / 3) * 24**0.25 * weight[:, None] ** 0.75).flatten().nonzero().squeeze(1)
    a = magnitude.flatten().index_select(0, place)
    constant = ((2 / 3) * weight).index_select(0, place // v.shape[1])
    root = a.log().div_(3).exp_()
    # In units of |v|^{1/3} the quartic is y⁴ − y + c with c ≤ 0.397: a cubic fit of its root, and Newton does the rest.
    c = constant / (root * root).square_()
    y = (-1.224 * c).add_(0.093).mul_(c).sub_(0.3585).mul_(c).add_(1)
    for _ in range(3):
        cube = (y * y).mul_(y)
        y = (cube * y).mul_(3).sub_(c).div_(cube.mul_(4).sub_(1))
    kept = a.sub_(constant.div_(root.mul_(y))).copysign_(v.flatten().index_select(0, place))
    return v.new_zeros(v.numel()).index_copy_(0, place, kept).view(v.shape)


NORMS: dict[str, Norm] = {norm.name: norm for norm in (L0(), L1(), L2(), Linf())}


def get_norm(name: str | float | Norm) -> Norm:
    """The norm of that name."""
    return name if isinstance(name, Norm) else NORMS[norm_name(name)]
