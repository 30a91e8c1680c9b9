"""Figures that the paper publishes, to stand beside those of a benchmark: means and counts over its thirty models.

All were computed from its tables of single models. In ℓ0 it has no AutoAttack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from advfrontier.pool import TIERS
from advfrontier.table import Share, Spread

Pairs = tuple[tuple[float, float], ...]  # mean and standard deviation in percent, tier by tier


@dataclass(frozen=True)
class Published:
    """One norm and one split of the paper, at 4k, 8k and 12k."""

    models: int
    aoi: Pairs
    aoi_matched: tuple[int, ...] = ()  # models on which a tier reaches at least AutoAttack's
    robust_matched: tuple[int, ...] = ()  # models on which it is at least as strong at the reference radius
    robust_gain: Pairs = ()  # by how many points its robust accuracy is below AutoAttack's
    queries: tuple[float, int, int] | None = None  # AutoAttack's per sample at the reference radius: mean, least, most

    @property
    def aois(self) -> dict[int, Spread]:
        """Tier → mean AOI."""
        return _spreads(self.aoi)

    @property
    def aois_matched(self) -> dict[int, Share]:
        """Tier → on how many models its AOI is at least AutoAttack's."""
        return {tier: Share(count, self.models) for tier, count in zip(TIERS, self.aoi_matched, strict=False)}

    @property
    def accuracies_matched(self) -> dict[int, Share]:
        """Tier → on how many models it is at least as strong as AutoAttack at the reference radius."""
        return {tier: Share(count, self.models) for tier, count in zip(TIERS, self.robust_matched, strict=False)}

    @property
    def gains(self) -> dict[int, Spread]:
        """Tier → by how much its robust accuracy is below AutoAttack's."""
        return _spreads(self.robust_gain)


def _spreads(pairs: Pairs) -> dict[int, Spread]:
    return {tier: Spread(mean / 100, deviation / 100) for tier, (mean, deviation) in zip(TIERS, pairs, strict=False)}


def _joined(splits: Iterable[Published]) -> Published:
    """All splits together."""
    own = list(splits)
    counts = [split.models for split in own]

    def together(every: Iterable[Pairs]) -> Pairs:
        pairs = []
        for parts in zip(*every, strict=True):
            means, deviations = np.array(parts).T
            mean = np.average(means, weights=counts)
            deviation = np.sqrt(np.average(deviations**2 + (means - mean) ** 2, weights=counts))
            pairs.append((float(mean), float(deviation)))
        return tuple(pairs)

    queries = None
    if all(split.queries for split in own):
        means, least, most = zip(*(split.queries for split in own if split.queries), strict=True)
        queries = round(np.average(means, weights=counts)), min(least), max(most)
    return Published(
        sum(counts),
        together(split.aoi for split in own),
        tuple(map(sum, zip(*(split.aoi_matched for split in own), strict=True))),
        tuple(map(sum, zip(*(split.robust_matched for split in own), strict=True))),
        together(split.robust_gain for split in own),
        queries,
    )


_SPLITS = {
    "L0": {
        "train": Published(17, ((97.465, 1.806), (98.865, 0.635), (99.471, 0.404))),
        "held-out": Published(13, ((97.138, 1.799), (98.585, 0.785), (99.254, 0.485))),
    },
    "L1": {
        "train": Published(
            17, ((98.025, 0.511), (98.728, 0.306), (99.028, 0.241)), (7, 13, 15),
            (5, 8, 10), ((-0.788, 0.783), (-0.059, 0.639), (0.188, 0.677)), (2272, 187, 5179),
        ),
        "held-out": Published(
            13, ((97.828, 0.532), (98.610, 0.282), (98.944, 0.231)), (8, 12, 13),
            (2, 7, 10), ((-0.885, 0.741), (0.200, 0.664), (0.623, 0.747)), (1565, 219, 3682),
        ),
    },
    "L2": {
        "train": Published(
            17, ((99.205, 0.504), (99.591, 0.284), (99.731, 0.216)), (14, 16, 17),
            (14, 14, 16), ((0.400, 0.627), (0.529, 0.806), (0.588, 0.867)), (4383, 195, 7566),
        ),
        "held-out": Published(
            13, ((98.825, 0.713), (99.358, 0.468), (99.558, 0.369)), (12, 12, 12),
            (13, 13, 13), ((0.992, 1.092), (1.438, 1.496), (1.538, 1.556)), (4322, 372, 7006),
        ),
    },
    "Linf": {
        "train": Published(
            17, ((99.381, 0.367), (99.528, 0.300), (99.644, 0.184)), (5, 12, 15),
            (7, 7, 8), ((-0.159, 0.255), (-0.129, 0.222), (-0.071, 0.224)), (3888, 183, 6411),
        ),
        "held-out": Published(
            13, ((99.291, 0.387), (99.472, 0.277), (99.567, 0.211)), (9, 10, 10),
            (4, 5, 5), ((-0.300, 0.422), (-0.262, 0.391), (-0.192, 0.279)), (5062, 192, 6691),
        ),
    },
}  # fmt: skip
PUBLISHED = {norm: {**splits, "all": _joined(splits.values())} for norm, splits in _SPLITS.items()}
