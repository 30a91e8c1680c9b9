"""Solve for the true least distances of F17 in L1 and Linf, a fixture of the tests.

    python scripts/exact_distances.py build/exact                  # attack, solve, write; resumable
    python scripts/exact_distances.py build/exact --samples 20     # fewer images

For every sample and every wrong class a mixed-integer program looks for the nearest point that the
network gives that class. It looks only as far as the 12k queries of the attack have found one: this
bounds what goes into every ReLU, the first layer exactly, the next by linear programs. A sample's
distance is the least over the classes; its bound, the least over the classes of what the solver has
proven, is as far as the truth can still be below. How near the tiers come to it is told by
exact_tiers.py.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from exact_program import Ball, Network, nearest
from torch import nn

from advfrontier import evaluate, zoo
from advfrontier.zoo.architectures import MEAN, SPREAD

MODEL = "F17"
SIDE = 4  # of the squares whose means the network takes
SIZES = {"L1": lambda move: np.abs(move).sum(), "Linf": lambda move: np.abs(move).max()}
# In logits and in distance: HiGHS takes for feasible what is off by 1e-7 in each of its rows.
TIE = 1e-5
FIXTURE = Path(__file__).parents[1] / "tests" / "zoo" / "exact_distances.json"


def main() -> None:
    """Attack, solve what is missing, and write the fixture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one program")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    network = as_network(zoo.load(MODEL))
    images, labels = (tensor[: asked.samples] for tensor in zoo.images_and_labels())
    table = {}
    for norm in SIZES:
        place = asked.folder / MODEL / norm
        record = evaluate(
            f"zoo:{MODEL}", images, labels, norm=norm, ensemble="paper-12k", out=place
        )
        rows = []
        for sample in np.flatnonzero(record.distances > 0).tolist():
            path = asked.folder / "solved" / norm / f"{sample:04}.json"
            if not path.exists():
                started, found = time.monotonic(), float(record.distances[sample])
                # One row for the pixels of every mean that the network takes.
                pixels = nn.functional.unfold(images[sample].double()[None], SIDE, stride=SIDE)[
                    0
                ].T.numpy()
                distance, bound, wrong = solve(
                    network, Ball(norm, pixels, found), int(labels[sample]), asked.limit
                )
                seconds = round(time.monotonic() - started, 2)
                truth = {"sample": sample, "distance": distance, "bound": bound, "found": found}
                truth |= {"wrong_class": wrong, "seconds": seconds}
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(truth), encoding="utf-8")
                print(norm, truth, flush=True)
            rows.append(json.loads(path.read_text(encoding="utf-8")))
        table[norm] = rows
        distances = np.array([row["distance"] for row in rows])
        bounds = np.array([row["bound"] for row in rows])
        spent = np.array([row["seconds"] for row in rows])
        print(
            f"{norm}: {len(rows)} samples, median distance {np.median(distances):.4g}, known to "
            f"{(distances / bounds).max() - 1:.1g}, {spent.mean():.1f} s a sample"
        )
    lines = [
        f'"{norm}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for norm, rows in table.items()
    ]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def as_network(model: nn.Module) -> Network:
    """Weights and biases in float64, mean and normalisation folded into the first layer."""
    pairs = [
        (m.weight.double().numpy(), m.bias.double().numpy())
        for m in model.modules()
        if isinstance(m, nn.Linear)
    ]
    weight, bias = pairs[0]
    return (weight / (SPREAD * SIDE**2), bias - weight.sum(1) * (MEAN / SPREAD)), *pairs[1:]


def solve(network: Network, start: Ball, label: int, limit: float) -> tuple[float, float, int]:
    """Return the distance of the nearest misclassified point, its lower bound, and the class.

    `start` reaches as far as the attack has found one. Wrong classes are tried from the likeliest
    on: a near point of one class spares the search among the others.
    """
    best, wrong, bound = start.radius, -1, np.inf
    for other in np.argsort(-values(network, start.pixels)).tolist():
        if other == label:
            continue
        # A hair beyond what was found, so that the point itself is not cut off by rounding.
        distance, proven, point = nearest(
            network, replace(start, radius=best * (1 + 1e-6)), label, other, limit
        )
        bound = min(bound, proven)
        if point is not None and (wrong < 0 or distance < best):
            best, wrong = min(distance, best), other
            behind = values(network, point)[label] - values(network, point)[other]
            if behind > TIE or abs(SIZES[start.norm](point - start.pixels) - distance) > TIE:
                raise RuntimeError(f"a point of class {other} is no witness: behind by {behind}")
    return best, min(bound, best), wrong


def values(network: Network, image: np.ndarray) -> np.ndarray:
    """Return the logits of an image."""
    value = image.sum(1)
    for weight, bias in network[:-1]:
        value = np.maximum(weight @ value + bias, 0)
    logits: np.ndarray = network[-1][0] @ value + network[-1][1]
    return logits


if __name__ == "__main__":
    main()
