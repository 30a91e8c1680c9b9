"""Learn the shipped races and greedy ensembles from traces of the extended pool, and show what they reach elsewhere.

    python scripts/learn_races.py build/traces --train F1 F3 F6 F7 F8 F10 F11 F13 F15 --held-out F2 F4 F5 F9 F12 F14

The folder holds one trace per norm and model (`advfrontier trace zoo:F3 --pool extended --out build/traces/Linf/F3`, at
any depth); models are known by the last part of their source. The table tells the mean distance above the frontier of
each model's traced runs. With `--write` behind it the files go into the package.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

import numpy as np

from advfrontier.evaluation.trace import Traces, read_traces
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.optimality import excess
from advfrontier.frontier.race import learn_race, race_excess
from advfrontier.pool import TIERS, Ensemble, Race, paper_ensemble
from advfrontier.record import find_records
from advfrontier.threat.names import NORMS

KINDS = ("paper", "greedy", "race")


def main() -> None:
    """Learn norm by norm, and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--held-out", nargs="+", required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    print(
        "| norm | model | "
        + " | ".join(f"{kind} {tier // 1000}k" for kind in KINDS for tier in TIERS)
        + " |"
    )
    print("|---" * (2 + len(KINDS) * len(TIERS)) + "|")
    for norm in NORMS:
        traces = traces_of(options.folder, norm)
        training = [traces[name] for name in options.train]
        greedy, race = allocate(training), learn_race(training, name="race-12k")
        for group, names in (("training", options.train), ("held-out", options.held_out)):
            rows = {name: row(traces[name], greedy, race) for name in names if name in traces}
            rows[f"{group}, mean"] = np.mean(list(rows.values()), axis=0).tolist()
            for name, figures in rows.items():
                print(
                    f"| {norm} | {name} |",
                    " | ".join(f"{100 * figure:.2f}" for figure in figures),
                    "|",
                    flush=True,
                )
        if options.write:
            place = Path(str(files("advfrontier.pool"))) / "learned"
            race.save(place / f"race-{norm}.toml")
            greedy[-1].save(place / f"greedy-{norm}.toml")


def traces_of(folder: str, norm: str) -> dict[str, Traces]:
    """The traces in a norm, by the name of their model."""
    records = [
        record for record in find_records(folder, kind="trace") if record.header.terms.norm == norm
    ]
    return {record.header.model.name.rpartition(":")[2]: read_traces(record) for record in records}


def row(traces: Traces, greedy: tuple[Ensemble, ...], race: Race) -> list[float]:
    """What every tier of every kind exceeds the frontier by."""
    papers = [paper_ensemble(f"paper-{tier // 1000}k", traces.norm) for tier in TIERS]
    frontier = traces.frontier()
    fixed = [excess(traces.best(ensemble.queries), frontier) for ensemble in (*papers, *greedy)]
    return [*fixed, *race_excess(traces, race, TIERS).values()]


if __name__ == "__main__":
    main()
