"""Print how far tiers are from proven least distances of F17: a table of docs/certified.md.

python scripts/exact_tiers.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from advfrontier import evaluate, zoo
from advfrontier.pool import TIERS, tier_label

FIXTURE = Path(__file__).parents[1] / "tests" / "zoo" / "exact_distances.json"


def main() -> None:
    """Evaluate the largest tier of two families in both norms, and read the others off it."""
    torch.set_num_threads(1)
    images, labels = zoo.images_and_labels()
    print(
        "| | within 1 % | median above | mean above | at most |\n|---|---|---|---|---|", flush=True
    )
    for norm, table in json.loads(FIXTURE.read_text(encoding="utf-8")).items():
        rows = torch.tensor([row["sample"] for row in table])
        truth = np.array([row["bound"] for row in table])
        for family in ("paper-", ""):
            found = evaluate(
                zoo.load("F17"), images[rows], labels[rows], norm=norm, ensemble=f"{family}12k"
            )
            for tier in TIERS:
                above = found.distances_at(tier) / truth - 1
                near, middle, mean, most = (
                    (above < 0.01).mean(),
                    np.median(above),
                    above.mean(),
                    above.max(),
                )
                figures = f"{near:.1%} | {middle:.2%} | {mean:.1%} | {most:.0%}"
                print(f"| {norm}, `{family}{tier_label(tier)}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
