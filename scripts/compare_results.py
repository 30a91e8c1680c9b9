"""Compare the table of results with the one of the last commit, as `make results` does at its end.

    python scripts/compare_results.py            # docs/results/results.parquet, against HEAD
    python scripts/compare_results.py HEAD~3     # against another commit

A row for every norm and kind of ensemble: how many distances both tables have, how many of them
are the same, and how far the others moved. Exit code 1 if a mean moved by more than 1 %.
"""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np

from advfrontier.bench.frame import COLUMNS, FAMILIES, pd
from advfrontier.report.render import print_tables
from advfrontier.table import Column, Table

ROOT = Path(__file__).parents[1]
TABLE = "docs/results/results.parquet"
KEYS = [name for name in COLUMNS if name != "distance"]
MOST = 0.01  # relative change of a mean


def stored(commit: str) -> pd.DataFrame:
    """Return the table of a commit."""
    command = ["git", "-C", str(ROOT), "show", f"{commit}:{TABLE}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{commit} has no {TABLE}: {done.stderr.decode().strip()}")
    return pd.read_parquet(BytesIO(done.stdout))


def compared(before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[str, str, int, int, float]]:
    """Return norm, kind, common distances, equal ones, and the relative change of the mean.

    Args:
        before: The stored table.
        after: The new table.
    """
    for table in (before, after):
        for key in KEYS:
            table[key] = table[key].astype(str)
    both = before.merge(after, on=KEYS, suffixes=("_before", "_after"))
    both["kind"] = both["ensemble"].where(both["ensemble"].isin(FAMILIES), "single runs")
    rows = []
    for (norm, kind), group in both.groupby(["norm", "kind"]):
        old, new = group["distance_before"].to_numpy(), group["distance_after"].to_numpy()
        found = np.isfinite(old) & np.isfinite(new)
        change = new[found].mean() / old[found].mean() - 1
        rows.append((str(norm), str(kind), len(group), int((old == new).sum()), float(change)))
    return rows


def main() -> int:
    """Print the table; return 1 if a mean moved too far."""
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    rows = compared(stored(commit), pd.read_parquet(ROOT / TABLE))
    columns = (
        Column("norm", "norm"),
        Column("distances of"),
        Column("in both", "integer"),
        Column("equal", "integer"),
        Column("change of the mean", "percent"),
    )
    print_tables(Table(f"Results against {commit}", columns, tuple(rows)))
    return 1 if any(abs(row[-1]) > MOST for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
