"""Figures that the paper publishes, to stand beside those of a benchmark: means and counts over its thirty models.

All were computed from its tables of single models. In ℓ0 it has no AutoAttack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from advfrontier.pool import TIERS
from advfrontier.table import Share, Spread


@dataclass(frozen=True)
class Published:
    """One norm and one split of the paper: tier → figure, for 4k, 8k and 12k."""

    aois: dict[int, Spread]
    aois_matched: dict[int, Share]  # models on which its AOI is at least AutoAttack's
    accuracies_matched: dict[int, Share]  # models on which it is at least as strong at the reference radius
    gains: dict[int, Spread]  # by how much its robust accuracy is below AutoAttack's
    queries: tuple[float, int, int] | None  # AutoAttack's per sample at the reference radius: mean, least, most


def _published(printed: tuple[Any, ...]) -> Published:
    models, aois, aois_matched, accuracies_matched, gains, queries = printed

    def spreads(pairs: Iterable[tuple[float, float]]) -> dict[int, Spread]:
        return {tier: Spread(mean / 100, std / 100) for tier, (mean, std) in zip(TIERS, pairs, strict=False)}

    def shares(counts: Iterable[int]) -> dict[int, Share]:
        return {tier: Share(count, models) for tier, count in zip(TIERS, counts, strict=False)}

    return Published(spreads(aois), shares(aois_matched), shares(accuracies_matched), spreads(gains), queries)


def _joined(splits: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """All splits together."""
    models, aois, aois_matched, matched, gains, queries = zip(*splits, strict=True)

    def together(every: Iterable[Any]) -> Iterator[tuple[float, float]]:
        for parts in zip(*every, strict=True):
            means, deviations = np.array(parts).T
            mean = np.average(means, weights=models)
            yield float(mean), float(np.sqrt(np.average(deviations**2 + (means - mean) ** 2, weights=models)))

    spent = None
    if all(queries):
        mean, least, most = zip(*queries, strict=True)
        spent = round(np.average(mean, weights=models)), min(least), max(most)
    counts = (tuple(map(sum, zip(*each, strict=True))) for each in (aois_matched, matched))
    return (sum(models), tuple(together(aois)), *counts, tuple(together(gains)), spent)


# Models; mean and standard deviation of AOI in percent, tier by tier; the two counts of models; by how many points
# robust accuracy is below AutoAttack's, as pairs again; AutoAttack's queries.
_PRINTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "L0": {
        "train": (17, ((97.465, 1.806), (98.865, 0.635), (99.471, 0.404)), (), (), (), None),
        "held-out": (13, ((97.138, 1.799), (98.585, 0.785), (99.254, 0.485)), (), (), (), None),
    },
    "L1": {
        "train": (
            17, ((98.025, 0.511), (98.728, 0.306), (99.028, 0.241)), (7, 13, 15),
            (5, 8, 10), ((-0.788, 0.783), (-0.059, 0.639), (0.188, 0.677)), (2272, 187, 5179),
        ),
        "held-out": (
            13, ((97.828, 0.532), (98.610, 0.282), (98.944, 0.231)), (8, 12, 13),
            (2, 7, 10), ((-0.885, 0.741), (0.200, 0.664), (0.623, 0.747)), (1565, 219, 3682),
        ),
    },
    "L2": {
        "train": (
            17, ((99.205, 0.504), (99.591, 0.284), (99.731, 0.216)), (14, 16, 17),
            (14, 14, 16), ((0.400, 0.627), (0.529, 0.806), (0.588, 0.867)), (4383, 195, 7566),
        ),
        "held-out": (
            13, ((98.825, 0.713), (99.358, 0.468), (99.558, 0.369)), (12, 12, 12),
            (13, 13, 13), ((0.992, 1.092), (1.438, 1.496), (1.538, 1.556)), (4322, 372, 7006),
        ),
    },
    "Linf": {
        "train": (
            17, ((99.381, 0.367), (99.528, 0.300), (99.644, 0.184)), (5, 12, 15),
            (7, 7, 8), ((-0.159, 0.255), (-0.129, 0.222), (-0.071, 0.224)), (3888, 183, 6411),
        ),
        "held-out": (
            13, ((99.291, 0.387), (99.472, 0.277), (99.567, 0.211)), (9, 10, 10),
            (4, 5, 5), ((-0.300, 0.422), (-0.262, 0.391), (-0.192, 0.279)), (5062, 192, 6691),
        ),
    },
}  # fmt: skip
PUBLISHED = {
    norm: {name: _published(figures) for name, figures in (splits | {"all": _joined(splits.values())}).items()}
    for norm, splits in _PRINTED.items()
}
