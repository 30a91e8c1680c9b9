"""Figures that the paper publishes, to stand beside those of a benchmark: means and counts over its thirty models.

All were computed from its tables of single models. In ℓ0 it has no AutoAttack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advfrontier.pool import TIERS
from advfrontier.table import Share, Spread


@dataclass(frozen=True)
class Published:
    """One norm and one split of the paper, at 4k, 8k and 12k."""

    models: int
    # Mean and standard deviation, in percent; AutoAttack's first, where it is known
    aoi: tuple[tuple[float, float], ...]
    aoi_matched: tuple[int, ...] = ()  # models on which a tier reaches at least AutoAttack's
    robust_matched: tuple[int, ...] = ()  # models on which it is at least as strong at the reference radius
    robust_gain: tuple[tuple[float, float], ...] = ()  # by how many points its robust accuracy is below AutoAttack's
    queries: tuple[float, int, int] | None = None  # AutoAttack's per sample at the reference radius: mean, least, most

    def join(self, other: Published) -> Published:
        """Both splits together."""
        counts = self.models, other.models
        queries = None
        if self.queries and other.queries:
            (mean, least, most), (mean_2, least_2, most_2) = self.queries, other.queries
            queries = round(np.average([mean, mean_2], weights=counts)), min(least, least_2), max(most, most_2)
        return Published(
            sum(counts),
            tuple(_together(counts, *pair) for pair in zip(self.aoi, other.aoi, strict=True)),
            tuple(map(sum, zip(self.aoi_matched, other.aoi_matched, strict=True))),
            tuple(map(sum, zip(self.robust_matched, other.robust_matched, strict=True))),
            tuple(_together(counts, *pair) for pair in zip(self.robust_gain, other.robust_gain, strict=True)),
            queries,
        )

    @property
    def aois(self) -> dict[int, Spread]:
        """Tier → mean AOI."""
        return dict(zip(TIERS, (_spread(pair) for pair in self.aoi[-len(TIERS) :]), strict=True))

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
        return {tier: _spread(pair) for tier, pair in zip(TIERS, self.robust_gain, strict=False)}


def _spread(pair: tuple[float, float]) -> Spread:
    return Spread(pair[0] / 100, pair[1] / 100)


def _together(counts: tuple[int, int], *parts: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation of two groups of so many models."""
    means, deviations = np.array(parts).T
    mean = np.average(means, weights=counts)
    return float(mean), float(np.sqrt(np.average(deviations**2 + (means - mean) ** 2, weights=counts)))


_SPLITS = {
    "L0": {
        "train": Published(17, ((97.465, 1.806), (98.865, 0.635), (99.471, 0.404))),
        "held-out": Published(13, ((97.138, 1.799), (98.585, 0.785), (99.254, 0.485))),
    },
    "L1": {
        "train": Published(
            17,
            ((98.017, 1.319), (98.025, 0.511), (98.728, 0.306), (99.028, 0.241)),
            (7, 13, 15),
            (5, 8, 10),
            ((-0.788, 0.783), (-0.059, 0.639), (0.188, 0.677)),
            (2272, 187, 5179),
        ),
        "held-out": Published(
            13,
            ((97.828, 0.680), (97.828, 0.532), (98.610, 0.282), (98.944, 0.231)),
            (8, 12, 13),
            (2, 7, 10),
            ((-0.885, 0.741), (0.200, 0.664), (0.623, 0.747)),
            (1565, 219, 3682),
        ),
    },
    "L2": {
        "train": Published(
            17,
            ((98.294, 1.121), (99.205, 0.504), (99.591, 0.284), (99.731, 0.216)),
            (14, 16, 17),
            (14, 14, 16),
            ((0.400, 0.627), (0.529, 0.806), (0.588, 0.867)),
            (4383, 195, 7566),
        ),
        "held-out": Published(
            13,
            ((97.138, 1.474), (98.825, 0.713), (99.358, 0.468), (99.558, 0.369)),
            (12, 12, 12),
            (13, 13, 13),
            ((0.992, 1.092), (1.438, 1.496), (1.538, 1.556)),
            (4322, 372, 7006),
        ),
    },
    "Linf": {
        "train": Published(
            17,
            ((99.405, 0.403), (99.381, 0.367), (99.528, 0.300), (99.644, 0.184)),
            (5, 12, 15),
            (7, 7, 8),
            ((-0.159, 0.255), (-0.129, 0.222), (-0.071, 0.224)),
            (3888, 183, 6411),
        ),
        "held-out": Published(
            13,
            ((99.230, 0.481), (99.291, 0.387), (99.472, 0.277), (99.567, 0.211)),
            (9, 10, 10),
            (4, 5, 5),
            ((-0.300, 0.422), (-0.262, 0.391), (-0.192, 0.279)),
            (5062, 192, 6691),
        ),
    },
}
PUBLISHED = {norm: {**splits, "all": splits["train"].join(splits["held-out"])} for norm, splits in _SPLITS.items()}
