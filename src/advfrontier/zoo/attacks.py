"""Projected gradient ascent inside a ball of known radius: what the zoo is trained against and first tested with.

These are not the attacks of the pool, which look for the nearest adversarial example; here the radius is given and
the loss is to be as large as possible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from advfrontier.threat.losses import margin, plain_ce
from advfrontier.threat.norms import L0, L1, L2, TINY, euclidean, get_norm

REACH = 0.6  # the first step in radii; steps shrink linearly, so that five of them cover 1.8 radii
_COORDINATES = 20  # that an ℓ1 step moves: one only would need as many steps as there are features to change
_MEMORY, _FIRST_SCORE = 0.9, 1e-3  # of the ℓ0 scores


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    norm: str,
    radius: float,
    *,
    steps: int,
    generator: torch.Generator,
    loss: Callable[[Tensor, Tensor], Tensor] = plain_ce,
    reach: float = REACH,
    visit: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """The last of `steps` points of each image's ball; `visit` sees the logits at the start and at every point."""
    ball = _BALLS[get_norm(norm).name](images.flatten(1), radius)
    point = ball.start(generator)
    for i in range(steps):
        probe = point.requires_grad_()
        with torch.enable_grad():
            logits = model(probe.view_as(images))
            (gradient,) = torch.autograd.grad(-loss(logits, labels).sum(), probe)
        if visit is not None:
            visit(logits.detach())
        point = ball.step(point.detach(), gradient, reach * (1 - i / steps))
    if visit is not None:
        with torch.no_grad():
            visit(model(point.view_as(images)))
    return point.view_as(images)


def survivors(
    model: nn.Module, images: Tensor, labels: Tensor, norm: str, radius: float, *, steps: int = 50, seed: int = 0
) -> Tensor:
    """Which images are classified correctly, and still are at every point that PGD on the margin visits."""
    with torch.no_grad():
        standing: Tensor = model(images).argmax(1) == labels

    def visit(logits: Tensor) -> None:
        standing.logical_and_(logits.argmax(1) == labels)

    generator = torch.Generator().manual_seed(seed)
    pgd(model, images, labels, norm, radius, steps=steps, generator=generator, loss=margin, visit=visit)
    return standing


class _Ball(ABC):
    """The ball around flat inputs, cut off by the box [0, 1]."""

    def __init__(self, inputs: Tensor, radius: float) -> None:
        self.inputs, self.radius = inputs, radius
        self.radii = torch.full((len(inputs),), radius, dtype=inputs.dtype)

    @abstractmethod
    def start(self, generator: torch.Generator) -> Tensor:
        """A random point inside."""

    @abstractmethod
    def step(self, point: Tensor, gradient: Tensor, size: float) -> Tensor:
        """The next point, by `size` radii uphill."""


class _Cube(_Ball):
    """ℓ∞."""

    def start(self, generator: torch.Generator) -> Tensor:
        noise = torch.rand(self.inputs.shape, generator=generator).mul_(2 * self.radius).sub_(self.radius)
        return noise.add_(self.inputs).clamp_(0, 1)

    def step(self, point: Tensor, gradient: Tensor, size: float) -> Tensor:
        moved = point + size * self.radius * gradient.sign()
        return (self.inputs + (moved - self.inputs).clamp_(-self.radius, self.radius)).clamp_(0, 1)


class _Sphere(_Ball):
    """ℓ2."""

    def start(self, generator: torch.Generator) -> Tensor:
        noise = torch.randn(self.inputs.shape, generator=generator)
        length = self.radius * torch.rand(len(noise), 1, generator=generator)
        return noise.mul_(length / euclidean(noise)[:, None]).add_(self.inputs).clamp_(0, 1)

    def step(self, point: Tensor, gradient: Tensor, size: float) -> Tensor:
        length = euclidean(gradient)[:, None].clamp_(min=TINY)
        change = point + size * self.radius * gradient / length - self.inputs
        return (self.inputs + L2().project(change, self.radii)).clamp_(0, 1)


class _Diamond(_Ball):
    """ℓ1."""

    def start(self, generator: torch.Generator) -> Tensor:
        """As many features as the radius lets go from end to end, half of them set to a random value."""
        noise = torch.rand(self.inputs.shape, generator=generator)
        chosen = noise >= noise.topk(max(int(self.radius), 1), dim=1).values[:, -1:]
        values = torch.rand(self.inputs.shape, generator=generator)
        return torch.where(chosen & (values < 0.5), 2 * values, self.inputs)

    def step(self, point: Tensor, gradient: Tensor, size: float) -> Tensor:
        """The steepest features that have room, all by the same length; then the exact projection onto ball and box."""
        room = torch.where(gradient > 0, 1 - point, point)
        steepest = (gradient.abs() * (room > 0)).topk(_COORDINATES, dim=1).indices
        length = size * self.radius / _COORDINATES
        moved = torch.zeros_like(point).scatter_(1, steepest, length * gradient.sign().gather(1, steepest))
        return self.inputs + L1().project_in_box(point + moved - self.inputs, self.radii, self.inputs)


class _Axes(_Ball):
    """ℓ0: a value that every feature would take, and a score that says which of them do.

    Values climb the gradient from random ones. If features went straight to the ends of the box, a model could learn
    to resist those two values and no others.
    """

    def start(self, generator: torch.Generator) -> Tensor:
        self.values = torch.rand(self.inputs.shape, generator=generator)
        self.scores = _FIRST_SCORE * torch.rand(self.inputs.shape, generator=generator)
        return self._point()

    def step(self, point: Tensor, gradient: Tensor, size: float) -> Tensor:  # noqa: ARG002
        self.values.add_(gradient.sign(), alpha=size / 2).clamp_(0, 1)
        gain = gradient * (self.values - self.inputs)
        gain.div_(gain.abs().amax(1, keepdim=True).clamp_(min=TINY))
        self.scores.mul_(_MEMORY).add_(gain, alpha=1 - _MEMORY)
        return self._point()

    def _point(self) -> Tensor:
        """The features of highest positive score at their values, the others as they were."""
        kept = L0().project(self.scores.clamp(min=0), self.radii)
        return torch.where(kept > 0, self.values, self.inputs)


_BALLS: dict[str, type[_Ball]] = {"Linf": _Cube, "L2": _Sphere, "L1": _Diamond, "L0": _Axes}
