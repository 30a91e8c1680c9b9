"""Query the published results: one table of distances, a `groupby` for each answer.

    python examples/results.py                    # the tables of docs/results
    python examples/results.py bench/NAME/results # those of your own benchmark

The folder holds `results.parquet` (norm, model, data, split, ensemble, budget, sample, distance)
and `autoattack.csv`. It needs `pip install 'advfrontier[pandas,parquet]'`.
"""

import sys
from pathlib import Path

import pandas as pd

from advfrontier.bench import tables
from advfrontier.bench.frame import FAMILIES, Results
from advfrontier.frontier import contributions
from advfrontier.frontier.optimality import excess
from advfrontier.pool import Run, facts_of

PUBLISHED = Path(__file__).parents[1] / "docs" / "results"


def tables_of_the_paper(results: Results) -> None:
    """Print AOI, and DOI by the ensembles that every model has."""
    family = tables.ranking_family(results.distances)
    scores = tables.aoi(results.distances, results.points)
    print("Mean AOI and mean distance above the best known, per ensemble and split")
    print(tables.aoi_by_split(scores).to_string(index=False))
    print(f"\nDOI by the largest {family} ensemble")
    doi = tables.doi(results.distances, results.flags, family)
    last = doi[doi["budget"] == doi["budget"].max()]
    print(last.pivot(index="model", columns="norm", values="doi").round(3).to_string())


def what_each_run_adds(results: Results, count: int = 5) -> None:
    """Print the runs that are most often the only one at the frontier of all runs."""
    for norm, runs in traced(results).groupby("norm", observed=True):
        rows = []
        for _, own in runs.groupby("model", observed=True):
            wide = own.pivot(index="ensemble", columns="sample", values="distance")
            found = {run: wide.loc[run].to_numpy() for run in wide.index}
            rows += [(part.run, part.alone, part.loss) for part in contributions(found)]
        table = pd.DataFrame(rows, columns=["run", "alone on samples", "AOI lost without it"])
        parts = table.groupby("run").agg({"alone on samples": "sum", "AOI lost without it": "mean"})
        print(f"\nRuns that are most often the only nearest in {norm}")
        print(parts.sort_values("alone on samples", ascending=False).head(count).to_string())


def the_pool_without_parts_of_it(results: Results) -> None:
    """Print how much farther the frontier of all runs is without restarts, targets, or a solver."""
    runs = traced(results)
    parsed = {name: Run.parse(name) for name in runs["ensemble"].unique()}
    parts = {
        "restarts": [name for name, run in parsed.items() if run.variant == "restart"],
        "targets": [name for name, run in parsed.items() if run.variant == "target"],
        "black-box runs": [name for name, run in parsed.items() if is_black_box(run)],
    }
    for name, run in parsed.items():
        parts.setdefault(run.solver, []).append(name)
    rows = []
    for norm, own in runs.groupby("norm", observed=True):
        keys = ["model", "sample"]
        frontier = own.groupby(keys, observed=True)["distance"].min()
        for part, dropped in parts.items():
            kept = own[~own["ensemble"].isin(dropped)]
            if 0 < len(kept) < len(own):
                nearest = kept.groupby(keys, observed=True)["distance"].min()
                rows.append((part, norm, excess(nearest, frontier)))
    table = pd.DataFrame(rows, columns=["without", "norm", "rise"])
    print("\nBy how much the frontier's distances rise without parts of the pool (%)")
    print((100 * table.pivot(index="without", columns="norm", values="rise")).round(2).to_string())


def traced(results: Results) -> pd.DataFrame:
    """Return the rows of runs that were traced on their own."""
    distances = results.distances
    return distances[~distances["ensemble"].isin(FAMILIES)]


def is_black_box(run: Run) -> bool:
    """Tell whether a run uses no gradients."""
    facts = facts_of(run.solver)
    return facts is not None and facts.step_queries == 1


if __name__ == "__main__":
    chosen = Results.load(sys.argv[1] if len(sys.argv) > 1 else PUBLISHED)
    tables_of_the_paper(chosen)
    what_each_run_adds(chosen)
    the_pool_without_parts_of_it(chosen)
