"""Learn the default and the greedy ensembles, and show what they reach.

    python scripts/learn_ensembles.py build/learn                # all norms; resumable
    python scripts/learn_ensembles.py build/learn --norms L1     # one norm
    python scripts/learn_ensembles.py build/learn --write        # put them into the package
    python scripts/learn_ensembles.py build/learn --norms L0pixel --data npz:images.npz \
        --learn nets.py:one nets.py:two --choose nets.py:three   # models of RGB images

Runs are traced on the models of LEARN. The greedy allocation of those traces gives the order of the
raises; refinements follow at the end of every 4000 queries. Several candidates (how long to refine,
whether a run is raised once per tier) are then run on the models of CHOOSE, and the one whose
distances are smallest is kept. The zoo's held-out models take no part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advfrontier import Ensemble, Machine, Traces, evaluate, trace
from advfrontier.frontier.allocation import allocate
from advfrontier.pool import TARGETS, TIERS, Raise, find_ensemble, make_ensemble, pool
from advfrontier.pool.ensemble import tier_label
from advfrontier.sources import load_data
from advfrontier.threat.names import NORMS

LEARN = ("zoo:F1", "zoo:F6", "zoo:F8", "zoo:F11", "zoo:F13")
CHOOSE = ("zoo:F3", "zoo:F7", "zoo:F10", "zoo:F15")
TRACED_RESTARTS, TRACED_TARGETS = 2, 5  # variants of each attack that are traced
TIER = TIERS[0]
PROBE = 100  # queries of a search without gradients that come early
PROBED = 300  # queries of other runs before it
EARLY = (1000, 2000, 3000)  # budgets within a tier that are looked at as well
LATER = 1.005  # how much farther these may be where every run is raised once per tier
LATITUDE = 0.002  # of the distances
FACTOR = 10.0  # distances beyond this many times the best count as this
QUIET = Machine(threads=1, progress=False, keep_state=False)

Steps = list[dict[str, Any]]


def beyond(run: str, queries: int, reach: float = 3.0) -> dict[str, Any]:
    """Return a refinement that starts beyond the best point."""
    return {"run": run, "queries": queries, "start": "beyond", "reach": reach}


def best(run: str, queries: int) -> dict[str, Any]:
    """Return a refinement that starts at the best point."""
    return {"run": run, "queries": queries, "start": "best"}


def search_first(search: str, first: int, more: int, otherwise: Steps) -> Steps:
    """Search without gradients; continue with it where it gained, else take other refinements."""
    fork = {"gained": [best(search, more)], "otherwise": otherwise}
    return [best(search, first), {"fork": fork}]


# Candidates for the refinements that end every 4000 queries.
REFINEMENTS: dict[str, dict[str, Steps]] = {
    "L0": {
        "fmn 200": [best("fmn", 200)],
        "prune 200": [best("prune", 200)],
        "fmn 100, prune 100": [best("fmn", 100), best("prune", 100)],
        "fmn 100, prune 300": [best("fmn", 100), best("prune", 300)],
    },
    "L1": {
        "1000": [
            beyond("pdpgd", 400),
            beyond("fab_min", 200),
            beyond("apgd_min-dlr", 200),
            best("fmn", 200),
        ],
        "1100, search": [
            beyond("pdpgd", 400),
            beyond("fab_min", 200),
            best("square_min", 100),
            beyond("apgd_min-dlr", 200),
            best("fmn", 200),
        ],
    },
    "L2": {
        "1000": [
            beyond("pdgd", 400),
            beyond("fmn", 200),
            beyond("apgd_min-dlr", 200),
            best("fmn", 200),
        ],
        "1100, search": [
            beyond("pdgd", 400),
            beyond("fmn", 200),
            best("square_min", 100),
            beyond("apgd_min-dlr", 200),
            best("fmn", 200),
        ],
    },
    "Linf": {
        "800": [
            beyond("apgd_min-dlr", 200),
            beyond("apgd_min-ce", 200),
            best("square_min", 200),
            best("fmn", 200),
        ],
        "search twice, 800": search_first(
            "square_min",
            200,
            600,
            [beyond("apgd_min-dlr", 200), beyond("apgd_min-ce", 200), best("fmn", 200)],
        ),
        "search, 1000": search_first(
            "square_min",
            200,
            800,
            [beyond("apgd_min-dlr", 300), beyond("apgd_min-ce", 300), best("fmn", 200)],
        ),
    },
}


# Refinements in the middle of the first 4000, after so many queries of raises.
MIDDLE_AFTER = 1400
MIDDLE: dict[tuple[str, str], Steps] = {
    ("Linf", "search twice, 800"): search_first(
        "square_min",
        200,
        1000,
        [beyond("apgd_min-dlr", 500), beyond("apgd_min-ce", 500)],
    ),
}


def candidates(norm: str) -> list[str]:
    """Return the runs that are traced."""
    runs = []
    for run in pool(norm, name="extended"):
        most = {"base": 0, "restart": TRACED_RESTARTS, "target": TRACED_TARGETS}[run.variant]
        if run.index <= most:
            runs.append(str(run))
    return runs


def label_of(model: str) -> str:
    """Return the name of a folder for a model such as `zoo:F1` or `nets.py:small`."""
    return model.rpartition(":")[2]


def traces_of(
    folder: Path, norm: str, models: Sequence[str], text: str, samples: int
) -> list[Traces]:
    """Return the traces on the models to learn from, made now if they are not there."""
    data = load_data(text, samples=samples)
    machine = Machine(threads=1, progress=True)
    found = []
    for model in models:
        out = folder / "traces" / label_of(model)
        found.append(trace(model, data, norm=norm, runs=candidates(norm), out=out, machine=machine))
        print(f"traced {model} in {norm}", flush=True)
    return found


def spent(steps: Steps) -> int:
    """Return the queries of refinements."""
    total = 0
    for step in steps:
        if "fork" in step:
            total += spent(step["fork"]["gained"])
        else:
            total += step["queries"]
    return total


def raises(traces: Sequence[Traces], queries: int, *, plain: bool) -> list[list[tuple[str, int]]]:
    """Return for each tier the raises, in order, when each tier leaves `queries` to raises."""
    budgets = [queries * (k + 1) for k in range(len(TIERS))]
    tiers: list[list[tuple[str, int]]] = []
    before = 0
    for ensemble in allocate(traces, budgets=budgets, levels=range(100, 1001, 100), plain=plain):
        steps = []
        for step in ensemble.steps[before:]:
            if isinstance(step, Raise):  # an allocation has no other steps
                steps.append((step.run, step.queries))
        before = len(ensemble.steps)
        tiers.append(steps)
    return tiers


def once_per_tier(tiers: list[list[tuple[str, int]]]) -> list[list[tuple[str, int]]]:
    """Raise every run once per tier: to its last level, where it is first raised."""
    merged = []
    for tier in tiers:
        last = dict(tier)
        merged.append([(run, last[run]) for run in dict.fromkeys(run for run, _ in tier)])
    return merged


def excess_of(traces: Sequence[Traces], steps: list[tuple[str, int]], budget: int) -> float:
    """Return the mean of distance over frontier that the first queries of raises find."""
    queries: dict[str, int] = {}
    left = budget
    for run, level in steps:
        given = min(level, queries.get(run, 0) + left)
        left -= given - queries.get(run, 0)
        queries[run] = given
    ratios = []
    for each in traces:
        frontier = each.frontier()
        counted = (frontier > 0) & (frontier < np.inf)
        found = each.best({run: count for run, count in queries.items() if count})
        ratios.append(np.minimum(found[counted] / frontier[counted], FACTOR))
    return float(np.concatenate(ratios).mean())


def order(traces: Sequence[Traces], queries: int) -> tuple[list[list[tuple[str, int]]], str]:
    """Return the order of raises, and how it was made.

    Of the paper's algorithm as printed and the one with moves of several runs the nearer is taken;
    every run is raised once per tier unless the early budgets suffer.
    """
    options = {}
    for plain in (True, False):
        tiers = raises(traces, queries, plain=plain)
        options["plain" if plain else "moves of several runs"] = tiers
    scores = {}
    for name, tiers in options.items():
        scores[name] = excess_of(traces, [step for tier in tiers for step in tier], queries)
    chosen = min(scores, key=lambda name: scores[name])
    tiers = options[chosen]
    merged = once_per_tier(tiers)
    apart = sum(excess_of(traces, tiers[0], budget) for budget in EARLY)
    together = sum(excess_of(traces, merged[0], budget) for budget in EARLY)
    if together <= LATER * apart:
        return merged, f"{chosen}, once per tier"
    return tiers, chosen


def kept_order(norm: str) -> list[list[tuple[str, int]]]:
    """Return for each tier the raises of the default ensemble in the package."""
    whole = find_ensemble(tier_label(TIERS[-1]), norm, TARGETS + 1)
    tiers: list[list[tuple[str, int]]] = [[] for _ in TIERS]
    for span in whole.spans:
        if isinstance(span.step, Raise):
            tiers[span.begin // TIER].append((span.step.run, span.step.queries))
    return tiers


def probed(norm: str, tier: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the raises with a short search without gradients after the first of them."""
    search = (str(pool(norm, name="black-box")[0]), PROBE)
    reached: dict[str, int] = {}
    for place, (run, level) in enumerate(tier):
        reached[run] = level
        if search[0] in reached:
            return tier
        if sum(reached.values()) >= PROBED:
            return [*tier[: place + 1], search, *tier[place + 1 :]]
    return [*tier, search]


def interleaved(
    norm: str, tiers: list[list[tuple[str, int]]], label: str, name: str = "12k"
) -> Ensemble:
    """Return the ensemble: of each 4000 queries first raises, then refinements.

    A short search without gradients comes early, so that small budgets notice gradients that
    mislead.
    """
    reached: dict[str, int] = {}
    steps: Steps = []
    middle = MIDDLE.get((norm, label), [])
    tiers = [probed(norm, tiers[0]), *tiers[1:]]
    for tier in tiers:
        closing = REFINEMENTS[norm][label]
        left = TIER - spent(closing) - spent(middle)
        for run, level in tier:
            given = min(level, reached.get(run, 0) + left)
            if given > reached.get(run, 0):
                left -= given - reached.get(run, 0)
                reached[run] = given
                steps.append({"run": run, "queries": given})
            if middle and sum(reached.values()) >= MIDDLE_AFTER:
                steps.extend(middle)
                middle = []
        for run in list(reached):  # an allocation may have had no use for all of its queries
            given = min(1000, reached[run] + left)
            if given > reached[run]:
                left -= given - reached[run]
                reached[run] = given
                steps.append({"run": run, "queries": given})
        steps.extend(closing)
    return make_ensemble(name=name, norm=norm, steps=steps)


def evaluated(
    folder: Path,
    norm: str,
    label: str,
    ensemble: Ensemble,
    *,
    models: Sequence[str],
    text: str,
    samples: int,
    budget: int,
) -> dict[str, NDArray[np.float64]]:
    """Run an ensemble on the models to choose on; return model to distances at 4k, 8k and 12k."""
    data = load_data(text, samples=samples)
    found = {}
    for model in models:
        name = label_of(model)
        out = folder / "chosen" / f"{label}, {budget}" / name
        done = evaluate(
            model,
            data,
            norm=norm,
            ensemble=ensemble.at(budget),
            out=out,
            batch_size=samples,
            machine=QUIET,
        )
        tiers = [tier for tier in TIERS if tier <= budget]
        found[name] = np.stack([done.distances_at(tier) for tier in tiers])
    return found


def ratios(
    found: dict[str, dict[str, NDArray[np.float64]]],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each candidate with its mean of distance over the best of all candidates, per tier."""
    for label, models in found.items():
        means = []
        for name, table in models.items():
            best_known = np.min([other[name].min(0) for other in found.values()], axis=0)
            counted = (best_known > 0) & (best_known < np.inf)
            means.append((table[:, counted] / best_known[counted]).mean(1))
        yield label, np.mean(means, axis=0)


def choose(norm: str, table: dict[str, NDArray[np.float64]]) -> str:
    """Return the candidate with the largest share of forks among those with small distances.

    Distances may be larger than the smallest ones by LATITUDE: in a fork, samples whose gradients
    mislead continue without gradients.
    """
    nearest = min(means[0] for means in table.values())
    forked = {}
    for label, means in table.items():
        if means[0] <= nearest + LATITUDE:
            steps = [*MIDDLE.get((norm, label), []), *REFINEMENTS[norm][label]]
            forked[label] = spent([step for step in steps if "fork" in step])
    return max(forked, key=lambda label: (forked[label], -table[label][0]))


def main() -> None:
    """Learn norm by norm, print a table, and write the files if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of traces and evaluations")
    parser.add_argument("--norms", nargs="*", default=list(NORMS), help="norms (default: all)")
    parser.add_argument("--data", default="fashion-mnist", help="data (default: fashion-mnist)")
    parser.add_argument("--learn", nargs="*", default=LEARN, help="models to trace")
    parser.add_argument("--choose", nargs="*", default=CHOOSE, help="models to choose on")
    parser.add_argument("--samples", type=int, default=32, help="samples per model (default: 32)")
    parser.add_argument("--budget", type=int, default=TIER, help="queries to choose at")
    parser.add_argument(
        "--keep-order", action="store_true", help="take the raises of the package, trace nothing"
    )
    parser.add_argument("--trace-only", action="store_true", help="stop after the traces")
    parser.add_argument("--write", action="store_true", help="write into the package")
    options = parser.parse_args()
    learned = Path(str(files("advfrontier.pool"))) / "learned"
    for norm in options.norms:
        traces = []
        if not options.keep_order:
            traces = traces_of(options.folder, norm, options.learn, options.data, options.samples)
        if options.trace_only:
            continue
        found, ensembles = {}, {}
        for label, refinements in REFINEMENTS[norm].items():
            refining = spent(refinements) + spent(MIDDLE.get((norm, label), []))
            if options.keep_order:
                tiers, how = kept_order(norm), "the order of the package"
            else:
                tiers, how = order(traces, TIER - refining)
            ensembles[label] = interleaved(norm, tiers, label)
            found[label] = evaluated(
                options.folder,
                norm,
                label,
                ensembles[label],
                models=options.choose,
                text=options.data,
                samples=options.samples,
                budget=options.budget,
            )
            print(f"{norm}: ran {label} ({how})", flush=True)
        table = dict(ratios(found))
        for label, means in table.items():
            shown = " ".join(f"{mean:.4f}" for mean in means)
            print(f"| {norm} | {label} | {shown} |", flush=True)
        chosen = choose(norm, table)
        print(f"{norm}: {chosen}", flush=True)
        if options.write:
            ensembles[chosen].save(learned / f"default-{norm}.toml")
            if traces:
                allocate(traces)[-1].save(learned / f"greedy-{norm}.toml")


if __name__ == "__main__":
    main()
