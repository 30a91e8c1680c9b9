"""Measure what departures from the papers gain on the zoo, and write it into docs/solvers.md.

    python scripts/departures.py                # all models with gradients, 24 samples
    python scripts/departures.py --models F3 F8 F4 F5 --samples 48
    python scripts/departures.py --table        # only write the table again

One departure at a time is taken back, in the base run of its attack, 1000 queries. A figure is the
mean distance without the departure over that with it, so above 1 the departure helps. Every
measurement goes into the JSON file as it is made: interrupted, the same command resumes;
other samples or other solvers are measured anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advfrontier import Machine, trace
from advfrontier.pool import Run
from advfrontier.solvers import DEPARTURES, PUBLISHED, Solver, solver_of
from advfrontier.sources import Samples, load_data
from advfrontier.threat.names import NORMS, norm_symbol
from advfrontier.zoo import MODELS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "solvers.md"
FOUND = ROOT / "docs" / "results" / "departures.json"
BEGIN, END = "<!-- departures: begin -->\n", "<!-- departures: end -->\n"
SPLITS = ("train", "held-out")
# F16 has no gradients: every attack fails on it, with its departures and without.
ALL = [
    name
    for name, card in MODELS.items()
    if card.split in SPLITS and card.recipe.architecture != "masked-cnn"
]


def main() -> None:
    """Measure what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=ALL)
    parser.add_argument("--norms", nargs="+", default=list(NORMS))
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.table:
        measure(options.models, options.norms, load_data("fashion-mnist", samples=options.samples))
    write_table(json.loads(FOUND.read_text()) if FOUND.is_file() else {})


def measure(models: list[str], norms: list[str], samples: Samples) -> None:
    """Measure every solver on every model, and store distances by model, norm, attack, solver."""
    found: dict[str, Any] = json.loads(FOUND.read_text()) if FOUND.is_file() else {}
    if found.get("samples") != len(samples):
        found = {"samples": len(samples), "distances": {}}
    for model in models:
        for norm in norms:
            for attack, solver in solvers(norm):
                known = (
                    found["distances"]
                    .setdefault(model, {})
                    .setdefault(norm, {})
                    .setdefault(attack, {})
                )
                if (words := repr(solver)) in known:
                    continue
                traced = trace(
                    f"zoo:{model}",
                    samples,
                    norm=norm,
                    runs=[attack],
                    solvers={attack: solver},
                    machine=Machine(progress=False),
                )
                distances = traced.frontier()
                known[words] = [None if np.isinf(d) else float(f"{d:.5g}") for d in distances]
                mean = distances[np.isfinite(distances)].mean()
                print(f"{model} {norm} {attack}: mean {mean:.5g}  {words}", flush=True)
                FOUND.parent.mkdir(exist_ok=True)
                FOUND.write_text(json.dumps(found, ensure_ascii=False) + "\n")


def solvers(norm: str) -> Iterator[tuple[str, Solver]]:
    """Yield the solvers of a norm: our own, without one departure each, and the published ones."""
    for attack, published in PUBLISHED.items():
        here = [each for each in DEPARTURES if each.attack == attack and norm in each.norms]
        if here:
            yield attack, solver_of(Run.parse(attack))
        for departure in here:
            yield attack, departure.solver
        if len(here) > 1:
            yield attack, published


def write_table(found: dict[str, Any]) -> None:
    """Put the table between its two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE} has no marks: expected {BEGIN.strip()} and {END.strip()}")
    PAGE.write_text(before + BEGIN + table(found) + END + after, encoding="utf-8")


def table(found: dict[str, Any]) -> str:
    """Return the departures with their switches and figures as Markdown."""
    lines = [
        "| attack | here | published | as published | "
        + " | ".join(norm_symbol(norm) for norm in NORMS)
        + " |",
        "|---" * (4 + len(NORMS)) + "|",
    ]
    for attack in PUBLISHED:
        own = [each for each in DEPARTURES if each.attack == attack]
        rows = [
            (each.here, each.published, f"`{each.switch}`", each.solver, each.norms) for each in own
        ]
        if len(own) > 1:
            everywhere = tuple(
                norm for norm in NORMS if sum(norm in each.norms for each in own) > 1
            )
            rows.append(("all of these", "none", "`--published`", PUBLISHED[attack], everywhere))
        for here, published, switch, solver, norms in rows:
            cells = [cell(found, norm, attack, solver) if norm in norms else "" for norm in NORMS]
            lines.append(f"| `{attack}` | {here} | {published} | {switch} | {' | '.join(cells)} |")
    return "\n" + "\n".join(lines) + "\n\n" + caption(found) + "\n\n"


def cell(found: dict[str, Any], norm: str, attack: str, solver: Solver) -> str:
    """Return mean ratios over training and held-out models, and how many more are unbroken."""
    figures = []
    for split in SPLITS:
        ratios, more = [], 0
        for model, by_norm in found.get("distances", {}).items():
            known = by_norm.get(norm, {}).get(attack, {})
            own, other = (
                known.get(repr(solver_of(Run.parse(attack)))),
                known.get(repr(solver)),
            )
            if MODELS[model].split == split and own and other:
                pairs = np.array(
                    [[a, b] for a, b in zip(own, other, strict=True) if None not in (a, b)]
                )
                ratios.append(pairs[:, 1].mean() / pairs[:, 0].mean())
                more += other.count(None) - own.count(None)
        if ratios:
            figures.append(f"{np.mean(ratios):.3f}" + (f" ({more:+d})" if more else ""))
    return ", ".join(figures)


def caption(found: dict[str, Any]) -> str:
    """Describe the measurement."""
    if not found:
        return "Not measured yet: type `python scripts/departures.py`."
    known = [model for model in MODELS if model in found["distances"]]
    models = {
        split: ", ".join(model for model in known if MODELS[model].split == split)
        for split in SPLITS
    }
    groups = ", then ".join(
        f"the {split} models {names}" for split, names in models.items() if names
    )
    return (
        f"Figures: {groups}, on the first {found['samples']} images, base runs of 1000 queries: "
        "the mean distance with this one departure taken back, over that with it, so above 1 it "
        "helps; behind it, in brackets, how many more samples stay unbroken, means are of those "
        "that both break. Measured by `python scripts/departures.py`; all distances are in "
        "`docs/results/departures.json`."
    )


if __name__ == "__main__":
    main()
