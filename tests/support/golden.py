"""The distances that the golden test holds every run to, and where they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from advfrontier.engine import Unit, advance
from advfrontier.threat.names import NORMS
from support.ensembles import small_ensemble
from support.models import samples, tanh_mlp
from support.runs import Bench, runs_of

FILE = Path(__file__).resolve().parents[1] / "golden" / "numerics.json"
QUERIES = 100
VARIANTS = ("restart1", "target1")


def golden_bench(norm) -> Bench:
    """Return a tiny net in float64 with four samples."""
    model = tanh_mlp((2, 4, 4), hidden=12, classes=5, seed=7).double()
    images, _ = samples(model.float(), 4, (2, 4, 4), seed=7)
    model.double()
    labels = model(images.double()).argmax(1)
    return Bench.of(model, images.double(), labels, norm, dtype=torch.float64)


def distances_now() -> dict[str, dict[str, list[float]]]:
    """Return norm and run to distances after 50 and 100 queries, as this code computes them.

    Of each attack the base run, a restart and a target, and of each norm an ensemble with all kinds
    of steps.
    """
    found = {}
    for norm in NORMS:
        bench = golden_bench(norm)
        table = {}
        for run in runs_of(norm, *VARIANTS, classes=5):
            trajectory = bench.finished(run, QUERIES, horizon=QUERIES).trajectory
            table[str(run)] = [*trajectory[4].tolist(), *trajectory[-1].tolist()]
        unit = Unit.start(small_ensemble(norm), bench.shard)
        with bench.oracle:
            advance(bench.oracle, unit, 290)
        table["ensemble"] = unit.best_distance.tolist()
        found[norm] = table
    return found


def write_golden(numerics: dict[str, int]) -> None:
    """Write the distances of this code, beside the versions that they belong to."""
    content = {"numerics": numerics, "distances": distances_now()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
