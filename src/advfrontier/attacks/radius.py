"""Minimum-norm run made of an attack at one radius, by a search over radii per sample.

All samples begin at the same radius, the median of their first-order estimates of the distance to
the boundary. A sample that is broken continues at half the radius, one that is not at twice, until
both kinds of radius are known; then the interval is bisected, on a scale of 64 radii per octave,
until neighbouring radii are left (1.1 %). Samples at the same radius are attacked together.
A radius below a point that was found counts as open: the search continues below the point.

Every query is counted, and a budget cuts the search wherever it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from advfrontier.attacks.watched import Attack, Watched
from advfrontier.engine import Shard

AtRadius = Callable[[nn.Module, Tensor, Tensor, float], object]

_RUNGS = 64  # radii per octave
_LOWEST = -24 * _RUNGS  # 2^-24 of the first radius
_TOLERANCE = 1e-4  # by how much rounding may carry points beyond a radius


@dataclass
class _Interval:
    """State of the search per sample: numbers of radii, on the scale of `_RUNGS` per octave.

    Args:
        low: The largest radius at which it was not broken.
        high: The smallest at which it was, or that of its nearest point.
    """

    low: int | None = None
    high: int | None = None

    def next(self, highest: int) -> int | None:
        """Return the radius to try next; None where the search is finished."""
        if self.high is None:
            if self.low is None:
                return 0
            return min(self.low + _RUNGS, highest) if self.low < highest else None
        if self.low is None:
            return self.high - _RUNGS if self.high > _LOWEST else None
        return (self.low + self.high) // 2 if self.high - self.low > 1 else None


def search_radius(watch: Watched, attack: AtRadius, shard: Shard) -> None:
    """Search the smallest radius at which an attack breaks each sample.

    Args:
        watch: The stand-in for the model, which keeps what is found.
        attack: `attack(model, images, labels, radius)`.
        shard: Samples to attack, with their first-order estimate of the distance.
    """
    estimates = shard.boundary[shard.boundary.isfinite()]
    first = float(estimates.median()) if len(estimates) else 1.0
    first = max(first, 1e-9)
    largest = float(shard.norm.largest(shard.inputs).max())
    highest = max(0, int(np.ceil(_RUNGS * np.log2(max(largest, first) / first))))
    intervals = [_Interval() for _ in range(len(shard))]
    open_samples = list(range(len(shard)))
    while open_samples:
        groups: dict[tuple[int, int], list[int]] = {}
        for sample in open_samples:
            rung = intervals[sample].next(highest)
            if rung is not None:
                groups.setdefault((rung, int(watch.spent[sample])), []).append(sample)
        open_samples = []
        for (rung, _), samples in sorted(groups.items()):
            radius = first * 2.0 ** (rung / _RUNGS)
            members = torch.tensor(samples, device=watch.images.device)
            ended = watch.attack(_at(attack, radius), members)
            if not ended:
                continue  # its queries are spent
            for sample in samples:
                _narrow(intervals[sample], rung, float(watch.best[sample]) / first)
            open_samples.extend(samples)
        open_samples.sort()


def _at(attack: AtRadius, radius: float) -> Attack:
    """Return the attack at a radius, as one of model, images and labels."""
    return lambda model, images, labels: attack(model, images, labels, radius)


def _narrow(interval: _Interval, rung: int, best: float) -> None:
    """Narrow a sample's interval by an attack at a rung.

    `best` is the distance of the nearest point so far over the first radius, and inf without one.
    """
    if not np.isfinite(best):
        interval.low = rung
        return
    reached = int(np.ceil(_RUNGS * np.log2(max(best * (1 - _TOLERANCE), 1e-30))))
    if reached > rung:  # nothing was found within this radius
        interval.low = rung
        interval.high = reached if interval.high is None else min(interval.high, reached)
        return
    interval.high = min(rung, reached)
    if interval.low is not None and interval.low >= interval.high:
        interval.low = None if interval.high <= _LOWEST else interval.high - 1
