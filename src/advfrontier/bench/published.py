"""Figures that the paper publishes (`published.toml`), to print beside those of a benchmark."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from advfrontier.bench.frame import pd
from advfrontier.pool import TIERS


def published() -> pd.DataFrame:
    """Return the paper's figures: one row per norm, split and budget.

    Columns: `models` in the split; `aoi`, the mean; `matched`, on how many models the AOI is at
    least AutoAttack's; `accuracy`, on how many the ensemble is at least as strong at the reference
    radius; `gain`, by how much its robust accuracy is lower on average. They are missing in ℓ0,
    where there is no AutoAttack.
    """
    text = files("advfrontier.bench").joinpath("published.toml").read_text(encoding="utf-8")
    rows = []
    for norm, splits in tomllib.loads(text).items():
        for split, printed in splits.items():
            for place, budget in enumerate(TIERS):
                row = {"norm": norm, "split": split, "budget": budget, "models": printed["models"]}
                row["aoi"] = printed["aois"][place][0] / 100
                if "gains" in printed:
                    row["matched"] = printed["aois_matched"][place]
                    row["accuracy"] = printed["accuracies_matched"][place]
                    row["gain"] = printed["gains"][place][0] / 100
                rows.append(row)
    return pd.DataFrame(rows)
