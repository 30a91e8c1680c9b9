"""Figures that the paper publishes, to stand beside those of a benchmark. They are in `published.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from advfrontier.pool import TIERS
from advfrontier.table import Share, Spread


@dataclass(frozen=True)
class Published:
    """One norm and one split of the paper: tier → figure, for 4k, 8k and 12k."""

    aois: dict[int, Spread]
    aois_matched: dict[int, Share]  # models on which its AOI is at least AutoAttack's
    accuracies_matched: dict[
        int, Share
    ]  # models on which it is at least as strong at the reference radius
    gains: dict[int, Spread]  # by how much its robust accuracy is below AutoAttack's
    queries: (
        Sequence[int] | None
    )  # AutoAttack's per sample at the reference radius: mean, least, most


def _published(printed: Mapping[str, Any]) -> Published:
    found: dict[str, dict[int, Any]] = {
        name: dict(zip(TIERS, printed.get(name, ()), strict=False))
        for name in ("aois", "aois_matched", "accuracies_matched", "gains")
    }
    for name, figures in found.items():
        for tier, figure in figures.items():
            is_count = name.endswith("matched")
            figures[tier] = (
                Share(figure, printed["models"])
                if is_count
                else Spread(figure[0] / 100, figure[1] / 100)
            )
    return Published(**found, queries=printed.get("queries"))


def _joined(splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All splits together."""
    joined: dict[str, Any] = {}
    models = [split["models"] for split in splits]
    for name in splits[0]:
        parts = np.array([split[name] for split in splits])
        if name in ("aois", "gains"):  # (split, tier, mean and deviation)
            means, deviations = np.moveaxis(parts, -1, 0)
            mean = np.average(means, axis=0, weights=models)
            deviation = np.sqrt(
                np.average(deviations**2 + (means - mean) ** 2, axis=0, weights=models)
            )
            joined[name] = list(zip(mean.tolist(), deviation.tolist(), strict=True))
        elif name == "queries":
            mean, least, most = parts.T
            joined[name] = (
                round(np.average(mean, weights=models)),
                int(least.min()),
                int(most.max()),
            )
        else:
            joined[name] = parts.sum(axis=0).tolist()
    return joined


_PRINTED = tomllib.loads(
    files("advfrontier.bench").joinpath("published.toml").read_text(encoding="utf-8")
)
PUBLISHED = {
    norm: {
        name: _published(part)
        for name, part in (splits | {"all": _joined([*splits.values()])}).items()
    }
    for norm, splits in _PRINTED.items()
}
