"""Diagnose whether gradient attacks can be trusted on a model.

A model can look robust because its gradients mislead attacks (Athalye et al., 2018), or because
attacks fail in silence (Pintor et al., 2022). Three things are looked at, in this order:

1. Gradients against differences. `diagnose` compares how logits change along random directions
   with what the gradient predicts, at the images and near them, before any attack.
   `diagnose_points` does so afterwards, at the points that attacks found.
2. `beaten` compares searches without gradients with the attacks that use them.
3. `noise_check` tries random noise that is smaller than the distances found.

Where a model has no gradient, `has_surrogate` tells whether surrogate gradients lead anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from advfrontier.engine.expectation import clearly_misclassified
from advfrontier.engine.margins import safety, spread
from advfrontier.engine.oracle import in_unit_box
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.threat.norms import TINY, make_norm
from advfrontier.threat.random import Draws, sample_keys

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from advfrontier.engine.oracle import Oracle
    from advfrontier.threat.criteria import Aim
    from advfrontier.threat.domain import Space

_FEWEST, _MOST = 16, 32  # samples of an evaluation that are diagnosed, at most all
_LEAST = 2  # samples that no accident explains
_CLEAR_BEATEN = 0.2  # share of the samples on which searches without gradients must be nearer
_CLEAR_NOISE = 0.1  # share of the samples that noise must break


def diagnosed(batch_size: int) -> int:
    """Return how many samples are diagnosed, in one batch.

    Args:
        batch_size: Samples per batch of the attacks.
    """
    return min(max(batch_size, _FEWEST), _MOST)


# 1. Gradients against differences


@dataclass(frozen=True)
class Width:
    """Step size of differences, and their allowed mismatch with the gradient.

    Args:
        change: Change of each pixel that takes part, if there are enough pixels.
        share: Length in ℓ2 of the whole change, as a share of the distance to the boundary. It
            decides how many pixels take part.
        directions: Directions per point, at two queries each.
        forgiven: How much of the difference between both sides of a point is forgiven.
        limit: Mismatch above which a point counts as misled.
        clear: Share of misled points from which on the model is flagged.
    """

    change: float
    share: float
    directions: int
    forgiven: float
    limit: float
    clear: float


# A change of a few pixels is large for each of them and small for the network: neither the levels
# of an 8-bit input nor the curvature of the network disturb the comparison. The longer widths find
# steps and waves that are coarser than a level.
#
# Measured on 32 images of each of 26 honest networks, plainly and robustly trained, on MNIST,
# CIFAR-10 and Fashion-MNIST: on the worst network, 0, 3 and 16 % of the points exceed the limits.
BEFORE = (
    Width(1 / 255, 0.05, 4, forgiven=1.0, limit=0.08, clear=0.2),
    Width(8 / 255, 0.2, 2, forgiven=0.5, limit=0.3, clear=0.25),
    Width(32 / 255, 0.3, 2, forgiven=0.5, limit=0.5, clear=0.3),
)
AFTER = (
    Width(1 / 255, 0.05, 4, forgiven=1.0, limit=0.1, clear=0.25),
    Width(8 / 255, 0.1, 2, forgiven=1.0, limit=0.4, clear=0.25),
)

_VISIBLE = 8  # roundings of a logit that a change must exceed to be compared
_NEAR = (1 / 255, 64 / 255)  # change of a pixel at the points near the first and the last image


@dataclass(frozen=True)
class Slope:
    """Results of one forward and one backward pass on some points.

    Args:
        points: (n, …), on the device.
        pair: (n, 2), the label and the best other class.
        logits: (n, classes).
        gradient: (n, …), of the first logit of the pair minus the second.
        length: (n,), of the gradient in ℓ2; not finite where the gradient is not.
    """

    points: Tensor
    pair: Tensor
    logits: Tensor
    gradient: Tensor
    length: Tensor

    @classmethod
    def at(cls, oracle: Oracle, points: Tensor, labels: Tensor) -> Slope:
        """Evaluate the points: 2 queries each.

        Args:
            oracle: Model on its device.
            points: (n, …), on the device of the oracle.
            labels: True classes, int64 (n,).
        """
        probe = points.detach().clone().requires_grad_()
        logits = oracle.logits(probe)
        rival = logits.detach().scatter(1, labels[:, None], -torch.inf).argmax(1)
        pair = torch.stack((labels, rival), 1)
        with torch.enable_grad():
            gap = _gap(logits, pair)
        gradient = oracle.gradient(gap, probe)
        length = torch.linalg.vector_norm(gradient.flatten(1), 2, dim=1)
        return cls(probe.detach(), pair, logits.detach(), gradient.nan_to_num(0, 0, 0), length)

    @property
    def usable(self) -> Tensor:
        """Tell where the gradient is finite and not zero: (n,) bool."""
        return self.length.isfinite() & (self.length >= TINY)

    @property
    def reach(self) -> Tensor:
        """Return the first-order distance in ℓ2 to the boundary, (n,)."""
        # At a tie the gap is zero, and a share of the logits' spread is taken instead.
        gap = torch.maximum(_gap(self.logits, self.pair).abs(), 0.05 * spread(self.logits))
        return gap / self.length.nan_to_num(0, 0, 0).clamp(min=TINY)


def diagnose(oracle: Oracle, images: Tensor, labels: Tensor) -> list[Flag]:
    """Return flags for gradients that vanish, are not finite, or mislead, at images or near them.

    36 queries per sample; 2 where no image has a gradient.

    Args:
        oracle: Model on its device. It must answer equal images equally.
        images: (n, …), as the oracle takes them.
        labels: True classes, int64 (n,).
    """
    clean = Slope.at(oracle, images, labels)
    flags = _unusable(clean.length)
    if not clean.usable.any():
        return flags
    draws = _draws_for(images)
    here = mismatch(oracle, clean, clean.reach, BEFORE, draws)
    here[:, ~clean.usable.cpu()] = torch.nan  # flagged already
    near = Slope.at(oracle, _near(images, draws), labels)
    beside = mismatch(oracle, near, clean.reach, BEFORE, draws)
    misled = _misled(here, BEFORE)
    where = "of the checked samples"
    if not misled:
        misled = _misled(beside, BEFORE)
        where = "of the points near the checked samples"
    if misled:
        flags.append(_misleading(misled, where))
    return flags


def unusable_gradients(oracle: Oracle, images: Tensor, labels: Tensor) -> list[Flag]:
    """Return flags for gradients that vanish or are not finite: 2 queries per sample.

    Args:
        oracle: Model on its device.
        images: (n, …), on the device and in the precision of the oracle.
        labels: True classes, int64 (n,).
    """
    return _unusable(Slope.at(oracle, images, labels).length)


def diagnose_points(
    oracle: Oracle, images: Tensor, labels: Tensor, points: Tensor, space: Space | None = None
) -> list[Flag]:
    """Return a flag if gradients mislead at the points that attacks found: 14 queries per sample.

    Charged to checks.

    Args:
        oracle: Model on its device. It must answer equal images equally.
        images: (n, …), the unperturbed images.
        labels: True classes, int64 (n,).
        points: (n, …), misclassified.
        space: The domain; None for [0, 1].
    """
    if space is not None:
        points = space.to_unit(points)
    oracle, images = in_unit_box(oracle, images, space)
    oracle.purpose = "checks"
    found = Slope.at(oracle, oracle.images(points).detach(), oracle.labels(labels))
    moved = (found.points - oracle.images(images)).flatten(1)
    reach = torch.linalg.vector_norm(moved, 2, dim=1)
    misled = _misled(mismatch(oracle, found, reach, AFTER, _draws_for(points)), AFTER)
    return [_misleading(misled, "of the points found")] if misled else []


def mismatch(
    oracle: Oracle, slope: Slope, reach: Tensor, widths: Iterable[Width], draws: Draws
) -> Tensor:
    """Return how far central differences are from what the gradient predicts.

    With observed changes o and predicted changes p along the directions of a width, the mismatch
    is ∑(o − p)² / ∑(o² + p²). It is 0 if they agree; 1 if one of them is zero, or if they have
    nothing to do with each other; 2 if the gradient is negated. Where the network bends, the
    prediction is wrong by different amounts on both sides, and this difference is forgiven.

    Args:
        oracle: Model on its device; its passes are charged to its current purpose.
        slope: Points, with the gradients of the difference of two logits there.
        reach: (n,), distance in ℓ2 from the points to the boundary, or from where attacks began.
        widths: Sizes of the changes to try, from small to large.
        draws: Random numbers of the points.

    Returns:
        (widths, n) float64 on the CPU; NaN where rounding hides every change.
    """
    rounding = torch.maximum(
        safety(slope.logits), _resolution(oracle, slope.logits) * slope.logits.abs().amax(1)
    ).double()
    gradient = slope.gradient.double()
    gap = _gap(slope.logits, slope.pair)
    parts = []
    for number, width in enumerate(widths):
        apart = torch.zeros_like(rounding)
        whole = torch.zeros_like(rounding)
        for k in range(width.directions):
            # At the longer widths, every second change takes the signs of the gradient: it is
            # larger, so that rounding matters less.
            aligned = number > 0 and k % 2 == 1
            step = _step(width, slope, reach, draws, f"{number}/{k}", aligned=aligned)
            above = (slope.points + step).clamp(0, 1)
            below = (slope.points - step).clamp(0, 1)
            rise = (_gap(oracle.logits(above), slope.pair) - gap).double().nan_to_num(0, 0, 0)
            fall = (gap - _gap(oracle.logits(below), slope.pair)).double().nan_to_num(0, 0, 0)
            foreseen_rise = ((above - slope.points).double() * gradient).flatten(1).sum(1)
            foreseen_fall = ((slope.points - below).double() * gradient).flatten(1).sum(1)
            observed, predicted = rise + fall, foreseen_rise + foreseen_fall
            visible = torch.maximum(observed.abs(), predicted.abs()) > _VISIBLE * rounding
            bend = ((rise - foreseen_rise) - (fall - foreseen_fall)).abs()
            error = (observed - predicted).abs() - width.forgiven * bend - 2 * rounding
            apart += torch.where(visible, error.clamp(min=0) ** 2, 0)
            whole += torch.where(visible, observed**2 + predicted**2, 0)
        parts.append(apart / whole)
    return torch.stack(parts).cpu()


def _step(
    width: Width, slope: Slope, reach: Tensor, draws: Draws, stream: str, *, aligned: bool
) -> Tensor:
    """Return a random change of a few pixels, (n, …)."""
    gradient = slope.gradient.flatten(1)
    features = gradient.shape[1]
    length = (width.share * reach).clamp(min=TINY).to(gradient)
    count = (length / width.change).square().clamp(1, features).long()
    # A single pixel may be too much; but below a level, rounded images do not change at all.
    level = (0.5 * reach).clamp(max=1 / 255).to(gradient)
    change = torch.maximum(length, level).clamp(max=width.change)
    order = draws.uniform(f"pixels {stream}", features).to(gradient)
    last = order.sort(dim=1).values.gather(1, count[:, None] - 1)
    signs = (draws.uniform(f"signs {stream}", features).to(gradient) - 0.5).sign()
    if aligned:
        signs = torch.where(gradient != 0, gradient.sign(), signs)
    step = (order <= last) * signs * change[:, None]
    return step.view_as(slope.gradient)


def _near(images: Tensor, draws: Draws) -> Tensor:
    """Return points near images, off the levels of 8 bits, each farther than the one before."""
    shape = (-1, *[1] * (images.ndim - 1))
    nearest, farthest = _NEAR
    place = torch.linspace(0, 1, len(images), device=images.device, dtype=images.dtype)
    change = nearest * (farthest / nearest) ** place
    noise = 2 * draws.uniform("near", images[0].numel()).to(images) - 1
    return (images + change.view(shape) * noise.view_as(images)).clamp(0, 1)


def _draws_for(points: Tensor) -> Draws:
    """Return random numbers that depend on the row alone."""
    return Draws(0, sample_keys(np.arange(len(points), dtype=np.uint64)).to(points.device))


def _gap(logits: Tensor, pair: Tensor) -> Tensor:
    first, second = logits.gather(1, pair).unbind(1)
    return first - second


def _resolution(oracle: Oracle, logits: Tensor) -> float:
    """Return the relative rounding of logits, also of those that were rounded and widened again."""
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(logits.to(dtype).to(logits.dtype), logits):
            return torch.finfo(dtype).eps
    return torch.finfo(oracle.logits_dtype).eps


def _misled(found: Tensor, widths: Iterable[Width]) -> float:
    """Return the share of misled points at the width where it is largest; 0 if none is clear."""
    worst = 0.0
    for width, values in zip(widths, found, strict=True):
        known = values[~values.isnan()]
        misled = int((known > width.limit).sum())
        least = max(width.clear * len(known), min(_LEAST, len(known)), 1)
        if misled >= least:
            worst = max(worst, misled / len(known))
    return worst


def _misleading(misled: float, where: str) -> Flag:
    return Flag(
        Kind.MISLEADING_GRADIENTS,
        f"on {misled:.0%} {where} the margin does not move as its gradient says: gradient attacks "
        "will overrate the model; look for detach(), rounding or a backward pass of its own in "
        "the model",
    )


def _unusable(length: Tensor) -> list[Flag]:
    """Return flags for gradients that are not finite, or zero."""
    flags = []
    bad, zero = ~length.isfinite(), length < TINY
    if bad.any():
        text = (
            f"the margin's gradient is not finite on {_share(bad):.0%} of the checked samples: "
            "taken for zero"
        )
        flags.append(Flag(Kind.BAD_GRADIENTS, text))
    if zero.any():
        text = (
            f"the margin has no gradient on {_share(zero):.0%} of the checked samples: gradient "
            "attacks will overrate the model"
        )
        kind = Kind.NO_GRADIENTS if zero.all() else Kind.ZERO_GRADIENTS
        flags.append(Flag(kind, text))
    return flags


def _share(rows: Tensor) -> float:
    return float(rows.float().mean())


def has_surrogate(oracle: Oracle, images: Tensor, labels: Tensor) -> bool:
    """Tell whether surrogate gradients lead anywhere on most of these samples: 2 queries each.

    Args:
        oracle: Model on its device; surrogate gradients are switched on during the call.
        images: (n, …) in [0, 1].
        labels: True classes, int64 (n,).
    """
    oracle.surrogate = True
    try:
        slope = Slope.at(oracle, oracle.images(images), oracle.labels(labels))
    except FrontierError:  # compiled models do not take it; what leaves PyTorch cannot be followed
        return False
    finally:
        oracle.surrogate = False
    return _share(slope.usable) > 1 / 2


# 2. Searches without gradients against attacks that use them

# A point is clearly nearer than another at 0.9 of its distance. In ℓ∞ with square_min at 1000
# queries against four gradient runs: on eleven honest networks no sample is at 0.9 of their
# distance if they have 500 queries each, and up to 8 % are if they have 100. With shattered
# gradients 90 to 100 % are. A single gradient run can be beaten on an honest network too, and then
# its distances are too large all the same.
_NEARER = 0.9
# In ℓ0, gradients say little of single features: on honest networks, searches lower up to 7 of 20
# distances by a tenth, and up to 1 of 20 by more than half.
_NEARER_IN_FEATURES = 0.5
_GRADIENT_QUERIES = 300  # that attacks must have spent before a search can beat them


@dataclass(frozen=True, eq=False)
class Stretch:
    """Part of a step of an ensemble, on the samples that took it.

    Args:
        black_box: Whether it used no gradients.
        queries: Queries that it spent.
        rows: (n,) bool, the samples that took it.
        before: (n,), the best distance of each sample before it.
        after: (n,), the best distance of each sample after it.
    """

    black_box: bool
    queries: int
    rows: NDArray[np.bool_]
    before: NDArray[np.float64]
    after: NDArray[np.float64]


def beaten(stretches: Iterable[Stretch], *, norm: str) -> Flag | None:
    """Return a flag if searches without gradients lowered distances that attacks had reached.

    A sample counts if searches lowered its distance by a tenth in all. What a search achieved stays
    achieved: a longer list of stretches never loses a sample. In ℓ0 it takes more than half, and
    more than a single feature.

    Args:
        stretches: The parts of the ensemble, in order.
        norm: Name of the norm of the distances.
    """
    counts = make_norm(norm, ()).counts
    enough, fewest = (_NEARER_IN_FEATURES, 1) if counts else (_NEARER, 0)
    factor = np.ones(0)
    for stretch in stretches:
        if not len(factor):
            attacked = stretch.before > 0
            factor = np.ones(len(attacked))
            lowered = np.zeros(len(attacked))
            spent = np.zeros(len(attacked), dtype=np.int64)
        if not stretch.black_box:
            spent[stretch.rows] += stretch.queries
            continue
        tried = stretch.rows & (spent >= _GRADIENT_QUERIES) & (stretch.after < stretch.before)
        factor[tried] *= stretch.after[tried] / stretch.before[tried]
        lowered[tried] += stretch.before[tried] - stretch.after[tried]
    if not len(factor):
        return None
    nearer = attacked & (factor < enough) & (lowered > fewest)
    if nearer.sum() < max(_LEAST, _CLEAR_BEATEN * attacked.sum()):
        return None
    return Flag(
        Kind.BEATEN,
        f"searches without gradients lowered distances by more than {1 - enough:.0%} on "
        f"{nearer.sum()} of {attacked.sum()} samples where attacks with gradients had stopped: "
        "distances may be too large; the model's gradients mislead, or more gradient runs are "
        "needed",
    )


# 3. Noise

# Noise breaks no sample of honest networks after 400 queries of one run, except in ℓ0 (up to 8 %).
# After 100 queries it breaks more, because the run is far from its end.
_DRAWS = 4


@torch.no_grad()
def noise_check(
    oracle: Oracle,
    images: Tensor,
    labels: Tensor,
    distances: ArrayLike,
    *,
    norm: str,
    seed: int,
    batch_size: int = 100,
    aim: Aim | None = None,
    space: Space | None = None,
) -> Flag | None:
    """Return a flag if noise smaller by a tenth than the distances breaks a clear share of samples.

    A single sample that noise breaks proves its distance too large. For samples that were never
    broken the noise is as large as the box allows. 4 forward passes per attacked sample, charged
    to verification.

    Args:
        oracle: Model on its device; its passes are charged to verification.
        images: (n, …), unperturbed.
        labels: True classes, int64 (n,).
        distances: (n,), 0 for samples that were not attacked, inf for those never broken.
        norm: Name of the norm of the distances.
        seed: Random seed of the noise.
        batch_size: Samples per batch.
        aim: The criterion of success; None for misclassification.
        space: The domain; None for [0, 1].
    """
    oracle.purpose = "verification"
    threat = make_norm(norm, tuple(images.shape[1:]))
    if space is not None:
        threat = space.norm(norm, oracle.device, oracle.dtype)
    frame = threat.frame
    found = torch.from_numpy(np.asarray(distances, dtype=np.float64))
    attacked = (found > 0).nonzero().squeeze(1)
    broken = 0
    for rows in torch.split(attacked, batch_size) if len(attacked) else ():
        x, y = oracle.images(images[rows]).detach(), oracle.labels(labels[rows])
        inputs = x.flatten(1)
        flat = inputs if frame is None else frame.enter(inputs)
        reached = found[rows] if frame is None else found[rows] / frame.unit
        keys = sample_keys(rows.numpy().astype(np.uint64)).to(x.device)
        radius = torch.minimum(_NEARER * reached.to(flat), threat.largest(flat))
        if threat.counts:
            radius = radius.floor()
        wrong = torch.zeros(len(rows), dtype=torch.bool, device=x.device)
        for draw in range(_DRAWS):
            noisy = threat.random_start(flat, radius, Draws(seed + draw, keys))
            if frame is not None:
                noisy = frame.leave(noisy, flat, inputs)
            here = None if aim is None else aim.select(rows.to(x.device))
            wrong |= clearly_misclassified(oracle, noisy.view_as(x), y, "noise", here)
        broken += int(wrong.sum())
    if broken < max(_LEAST, _CLEAR_NOISE * len(attacked)):
        return None
    return Flag(
        Kind.NOISE,
        f"random noise a tenth smaller than the distances found breaks {broken} of {len(attacked)} "
        "samples: distances are too large; the model's gradients mislead, or the attacks need more "
        "queries",
    )
