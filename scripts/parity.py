"""Our solvers against the recorded figures of other implementations, on real nets.

The reference folder holds, for the first 64 test images of four nets, the distances that adv-lib's
solvers reach with 1000 queries and the samples that AutoAttack leaves robust at two radii. Without
options this prints the ratio of mean distances for every solver that adv-lib has, and how APGD_min
compares with the best of them. With --published the solvers are those of their papers: what the
departures are worth is the ratio of the two tables. What whole tiers leave beside AutoAttack is
told by other_nets.py, FAB and Square beside those of AutoAttack by parity_autoattack.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from bench_nets import SHARED, one_thread, references, report, shared_net
from numpy.typing import NDArray

from advfrontier import Machine, trace
from advfrontier.pool import pool
from advfrontier.solvers import PUBLISHED
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS

IMAGES = 64
NOISY = {
    ("alma", "L1"),
    ("alma", "L2"),
    ("pdpgd", "L0"),
}  # adv-lib's own figure moves by as much between batch sizes
APGD, BEST = "apgd_min-dlr", "apgd_min-dlr over the best run of adv-lib"

Row = tuple[Any, ...]  # net, norm, run, our mean distance and failures, theirs, ratio, bar


def distances(
    net: str, norm: str, runs: list[str], *, published: bool
) -> dict[str, NDArray[np.float64]]:
    """Distance per image after 1000 queries, by run."""
    traces = trace(
        *shared_net(net, IMAGES),
        norm=norm,
        runs=runs,
        batch_size=IMAGES,
        machine=Machine(progress=True),
        solvers=PUBLISHED if published else None,
    )
    for flag in traces.flags:
        print(f"  flag on {net} {norm}: {flag}", file=sys.stderr)
    return dict(zip(traces.runs, traces.distances[:, -1], strict=True))


def mean(distance: NDArray[np.float64], correct: NDArray[np.bool_], worst: float) -> float:
    """Return the mean distance; a failure counts as the largest that any solver found."""
    return float(np.where(np.isinf(distance), worst, distance)[correct].mean())


def rows(
    net: str, norm: str, recorded: Mapping[str, NDArray[Any]], options: argparse.Namespace
) -> Iterator[Row]:
    """Yield our base runs on one net in one norm, beside adv-lib's."""
    correct = recorded["clean"]
    peers = {key.split("/")[1]: recorded[key] for key in recorded if key.startswith(norm + "/")}
    runs = [str(run) for run in pool(norm, name="extended") if run.variant == "base"]
    if not (runs := [run for run in runs if not options.only or run in options.only]):
        return
    ours = distances(net, norm, runs, published=options.published)
    worst = max(d[np.isfinite(d)].max() for d in (*peers.values(), *ours.values()))
    means = {run: mean(d, correct, worst) for run, d in ours.items()}
    for run, value in means.items():
        row: Row = (net, norm, run, value, int(np.isinf(ours[run]).sum()), None, None, None, None)
        if run in peers:
            theirs = mean(peers[run], correct, worst)
            bar = 1.03 if (run, norm) in NOISY else 1.01
            row = (*row[:5], theirs, int(np.isinf(peers[run]).sum()), value / theirs, bar)
        yield row
    if net.startswith("cifar") and norm != "L0" and APGD in means:
        best = min(mean(d, correct, worst) for d in peers.values())
        yield (net, norm, BEST, means[APGD], None, best, None, means[APGD] / best, None)


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--published", action="store_true", help="the solvers of their papers")
    parser.add_argument("--only", nargs="+", help="base runs to compare, such as fmn")
    parser.add_argument("--nets", nargs="+", help="nets to compare on, of those in the reference")
    options = parser.parse_args()
    one_thread()
    reference = {
        net: known for net, known in references().items() if not options.nets or net in options.nets
    }
    if not reference:
        print(
            f"no recorded figures in {SHARED.parent / 'reference'}; SHARED=FOLDER names another",
            file=sys.stderr,
        )
        return 2
    found = []
    for net, recorded in reference.items():
        for norm in NORMS:
            for row in rows(net, norm, recorded, options):
                print(" ", *row, file=sys.stderr, flush=True)
                found.append(row)
    means = {"all runs": [row[7] for row in found if row[8] is not None]}
    means |= {
        f"{BEST} in {norm}": [row[7] for row in found if row[1:3] == (norm, BEST)]
        for norm in ("L1", "Linf")
    }
    over = {what: float(np.mean(ratios)) for what, ratios in means.items() if ratios}
    columns = (
        Column("net"),
        Column("norm", "norm"),
        Column("run"),
        Column("ours", "number"),
        Column("failed", "integer"),
        Column("adv-lib", "number"),
        Column("failed ", "integer", key="adv-lib failed"),
        Column("ratio", "number"),
        Column("bar", "number"),
    )
    notes = tuple(
        f"mean ratio, {what}: {ratio:.4f} (bar: at most 1)" for what, ratio in over.items()
    )
    report("parity", Table("Mean distances over those of adv-lib", columns, tuple(found), notes))
    return (
        1
        if any(row[8] and row[7] > row[8] for row in found)
        or any(ratio > 1 for ratio in over.values())
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
