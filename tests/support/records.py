"""Evaluations as their readers see them, made of random curves: no model is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from advfrontier.frontier import Evaluated, ReferencePool
from advfrontier.pool import paper_ensemble

if TYPE_CHECKING:
    from advfrontier.flags import Flag

SCALES = {"L0": 14.0, "L1": 6.0, "L2": 0.8, "Linf": 0.06}
RADII = {
    "L0": (("5", 5.0), ("10", 10.0)),
    "L1": (("3", 3.0), ("6", 6.0)),
    "L2": (("0.5", 0.5), ("1", 1.0)),
    "Linf": (("8/255", 8 / 255), ("16/255", 16 / 255)),
}


@dataclass
class Record:
    """What `Evaluation` offers to those who read it."""

    model: str
    norm: str
    samples: tuple[str, ...]
    labels: torch.Tensor
    full: np.ndarray  # the distances all queries find
    first: np.ndarray  # after so many queries of a sample anything is found at all
    originals: torch.Tensor
    adversarials: torch.Tensor
    predictions: torch.Tensor
    winners: tuple[str | None, ...]
    ensemble: object
    data: str = "fashion-mnist"
    seed: int = 42
    flags: tuple[Flag, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(
        default_factory=lambda: {"advfrontier": "0.1.0", "torch": "2.13.0"}
    )
    commands: tuple = (
        "advfrontier evaluate zoo:F3 --data fashion-mnist --norm Linf --tier 12k --out runs/mine",
    )
    seconds: float = 12.5
    solver_words: dict[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    certified: np.ndarray | None = None
    shares: np.ndarray | None = None
    radii: tuple[float, ...] = ()

    def images(self, rows):
        return self.originals[rows]

    def points(self, rows):
        return self.adversarials[rows]

    @property
    def clean_logits(self):
        return torch.nn.functional.one_hot(self.labels, 10).float()

    @property
    def distances(self):
        return self.distances_at(self.ensemble.total)

    @property
    def queries(self):
        return np.where(self.full > 0, self.ensemble.total, 0)

    def distances_at(self, budget):
        with np.errstate(invalid="ignore"):
            grown = self.full * (
                1 + 0.4 * np.maximum(self.first / budget - self.first / self.ensemble.total, 0)
            )
        grown = np.round(grown) if self.norm == "L0" else grown
        return np.where(
            self.full == 0, 0.0, np.where(budget < self.first, np.inf, np.maximum(grown, self.full))
        )


def record(
    model="zoo:F3",
    norm="Linf",
    *,
    n=60,
    seed=0,
    strength=1.0,
    unbroken=0,
    wrong=0.1,
    tier="paper-12k",
    side=12,
    channels=1,
    classes=10,
):
    """A record of random distances, the same samples for every model and norm."""
    rng = np.random.default_rng(seed)
    full = rng.gamma(2.0, SCALES[norm] * strength / 2, n)
    full = np.maximum(np.round(full), 1) if norm == "L0" else full
    full[: int(wrong * n)] = 0.0
    if unbroken:
        full[-unbroken:] = np.inf
    ensemble = paper_ensemble(tier, norm)
    first = np.minimum(rng.integers(10, 600, n), ensemble.total)
    pixels = np.random.default_rng(99)
    grid = np.linspace(0, 3, side)
    originals = np.stack(
        [
            0.5 + 0.4 * np.sin(grid[:, None] * (k % 5) + grid[None, :] * (1 + k % 3))
            for k in range(n)
        ]
    )[:, None].repeat(channels, 1)
    noise = pixels.normal(size=originals.shape)
    shown = np.where(np.isfinite(full) & (full > 0), 0.05, 0.0)[:, None, None, None]
    labels = torch.arange(n) % classes
    moved = torch.tensor((full > 0) & np.isfinite(full))
    runs = np.array(ensemble.runs)
    winners = runs[rng.integers(0, min(6, len(runs)), n)]
    return Record(
        model=model,
        norm=norm,
        samples=tuple(f"{k:016x}" for k in range(n)),
        labels=labels,
        full=full,
        first=first,
        originals=torch.tensor(originals, dtype=torch.float32),
        adversarials=torch.tensor(np.clip(originals + shown * noise, 0, 1), dtype=torch.float32),
        predictions=torch.where(moved, (labels + 1) % classes, labels),
        winners=tuple(
            str(run) if m else None for run, m in zip(winners, moved.tolist(), strict=True)
        ),
        ensemble=ensemble,
        counts={
            "checks": 80,
            "setup": 2 * n,
            "attack": int((full > 0).sum()) * ensemble.total,
            "verification": n,
        },
    )


def pool(norm="Linf", *, models=8, n=60, queries=12000, masked=True):
    """A reference pool of random models; the last one was never broken on some samples."""
    distances = {}
    for k in range(models):
        one = record(f"F{k + 1}", norm, n=n, seed=100 + k, strength=0.4 + 0.25 * k)
        distances[one.model] = one.full.copy()
    if masked:
        distances[f"F{models}"][-3:] = np.inf
    return ReferencePool(
        norm, "fashion-mnist", queries, tuple(f"{k:016x}" for k in range(n)), distances
    )


def evaluated(summary, name=None, queries=None):
    """What a comparison sees of a summary."""
    tier = summary.tier if queries is None else queries
    return Evaluated(
        name or summary.model, summary.norm, summary.samples, np.array(summary.distances), tier
    )
