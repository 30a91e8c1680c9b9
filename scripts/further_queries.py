"""Make the table of what further queries change: the default ensembles on the embedded models.

    python scripts/further_queries.py build/reference            # evaluate what is missing, print
    python scripts/further_queries.py build/reference --check    # try the table on other models
    python scripts/further_queries.py build/reference --write    # put the table into the package

The largest default ensemble is run on the embedded models; interrupted, the same command resumes.
Records of these terms that are in the folder already, FOLDER/MODEL/NORM, are read. The distances
after fewer queries are prefixes of the same evaluation. `--check` counts in how many cases the
change of a held-out model lies in the interval that is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from advfrontier import Evaluation, Machine, evaluate, zoo
from advfrontier.evaluation.further import (
    FILE,
    FurtherTable,
    NormRows,
    Row,
    prediction_interval,
    relative_changes,
)
from advfrontier.pool import TIERS, tier_label
from advfrontier.sources import load_data
from advfrontier.threat.names import NORMS

DATA = "fashion-mnist"
LARGEST = TIERS[-1]
BUDGETS = (50, 100, 200, 400, 700, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 10000)
CHECKED = (400, 1000, 4000)
LEARNED = [name for name, card in zoo.MODELS.items() if card.split == "train"]
HELD_OUT = [name for name, card in zoo.MODELS.items() if card.split == "held-out"]

Changes = dict[int, tuple[float, float]]  # queries to the decrease of AUREC and mean distance


def evaluated(folder: Path, model: str, norm: str, samples: int) -> Evaluation:
    """Return the evaluation of a model with the largest default ensemble."""
    return evaluate(
        f"zoo:{model}",
        load_data(DATA, samples=samples),
        norm=norm,
        ensemble=tier_label(LARGEST),
        out=folder / model / norm,
        name=model,
        batch_size=samples,
        machine=Machine(threads=1, progress=True),
    )


def changes_of(evaluation: Evaluation, budgets: Sequence[int]) -> Changes:
    """Return what the queries after each budget changed; budgets without a point are left out."""
    changes = {}
    for budget in budgets:
        change = relative_changes(evaluation.distances_at(budget), evaluation.distances)
        if not np.isnan(change).any():
            changes[budget] = change
    return changes


def rows_of(models: Sequence[Changes]) -> tuple[Row, ...]:
    """Return the rows of a norm: at each budget at which every model had a point."""
    rows = []
    for budget in BUDGETS:
        if all(budget in changes for changes in models):
            areas = [changes[budget][0] for changes in models]
            means = [changes[budget][1] for changes in models]
            rows.append(
                Row(
                    queries=budget,
                    aurec=rounded(prediction_interval(areas)),
                    distance=rounded(prediction_interval(means)),
                )
            )
    return tuple(rows)


def rounded(shares: Sequence[float]) -> tuple[float, float, float]:
    """Return shares with the digits that the file holds."""
    low, median, high = (round(share, 5) for share in shares)
    return low, median, high


def to_toml(table: FurtherTable) -> str:
    """Return the table as a file."""
    names = ", ".join(f'"{name}"' for name in table.models)
    lines = [
        "# By which share further queries lowered AUREC and the mean distance: lower end, median",
        "# and upper end of a 90 % interval for one more model.",
        "# Made by scripts/further_queries.py.",
        f"models = [{names}]",
        f'data = "{table.data}"',
        f"samples = {table.samples}",
        f"queries = {table.queries}",
    ]
    for entry in table.norms:
        lines += ["", "[[norms]]", f'norm = "{entry.norm}"', "rows = ["]
        for row in entry.rows:
            area, mean = list(row.aurec), list(row.distance)
            lines.append(f"    {{ queries = {row.queries}, aurec = {area}, distance = {mean} }},")
        lines.append("]")
    return "\n".join(lines) + "\n"


def check(table: FurtherTable, changes: dict[str, dict[str, Changes]]) -> None:
    """Print in how many cases the change of a model lies in the interval of the table.

    Args:
        table: The table.
        changes: Norm to model to what further queries changed.
    """
    print("| norm | queries | interval of AUREC, % | inside | outside, with the true change in % |")
    print("|---|---|---|---|---|")
    inside = cases = 0
    for entry in table.norms:
        for row in entry.rows:
            if row.queries not in CHECKED:
                continue
            low, _, high = row.aurec
            found, missed = [], []
            for name, change in changes[entry.norm].items():
                area = change[row.queries][0]
                found.append(low <= area <= high)
                if not found[-1]:
                    missed.append(f"{name} {100 * area:.2f}")
            inside, cases = inside + sum(found), cases + len(found)
            print(
                f"| {entry.norm} | {row.queries} | {100 * low:.2f}–{100 * high:.2f} | "
                f"{sum(found)} of {len(found)} | {', '.join(missed)} |"
            )
    print(f"inside in {inside} of {cases} cases: {inside / cases:.1%} (expected: 80–98 %)")


def show(table: FurtherTable) -> None:
    """Print the medians and intervals of the table."""
    for entry in table.norms:
        print(f"{entry.norm}: median decrease of AUREC up to {tier_label(table.queries)} queries")
        for row in entry.rows:
            low, median, high = row.aurec
            print(f"  {row.queries:6}  {median:7.2%}  ({low:.2%}–{high:.2%})")


def main() -> None:
    """Evaluate what is missing, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of evaluations")
    parser.add_argument("--samples", type=int, default=100, help="samples per model (default: 100)")
    parser.add_argument("--norms", nargs="*", default=list(NORMS), help="norms (default: all)")
    parser.add_argument("--models", nargs="*", default=LEARNED, help="models of the table")
    parser.add_argument("--others", nargs="*", default=HELD_OUT, help="models to try it on")
    parser.add_argument("--check", action="store_true", help="try the table on the others")
    parser.add_argument("--write", action="store_true", help="write into the package")
    options = parser.parse_args()
    norms = []
    tried: dict[str, dict[str, Changes]] = {}
    for norm in options.norms:
        learned = []
        for name in options.models:
            evaluation = evaluated(options.folder, name, norm, options.samples)
            learned.append(changes_of(evaluation, BUDGETS))
        norms.append(NormRows(norm=norm, rows=rows_of(learned)))
        if options.check:
            tried[norm] = {}
            for name in options.others:
                evaluation = evaluated(options.folder, name, norm, options.samples)
                tried[norm][name] = changes_of(evaluation, CHECKED)
    table = FurtherTable(
        models=tuple(options.models),
        data=DATA,
        samples=options.samples,
        queries=LARGEST,
        norms=tuple(norms),
    )
    show(table)
    if options.check:
        check(table, tried)
    if options.write:
        path = Path(str(files("advfrontier.evaluation"))) / FILE
        path.write_text(to_toml(table), encoding="utf-8")
        print(f"table: {path}")


if __name__ == "__main__":
    main()
