"""The tiers beside AutoAttack, and AutoAttack's package beside the original, on networks that others have trained.

    python scripts/other_nets.py                                # all networks of ../shared/nets, resumable
    python scripts/other_nets.py --nets mnist_cnn_a_adv --norms Linf
    python scripts/other_nets.py --cached                       # the page of what is there

The networks lie in a folder beside the repository and are not part of it: MNIST and CIFAR-10 classifiers of several
authors, with the first test images. A record of the race of 8k queries is kept for each in build/other-nets, and 4k is
read off it; AutoAttack is run at two radii. Where ../shared/reference has the distances of adv-lib and the samples that
the original AutoAttack left, its radii are taken and both are compared; elsewhere the radii are the 35 % and 70 %
quantiles of the distances that 4k found. The table goes to docs/other_nets.md, and
all figures to docs/results/other_nets.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from bench_nets import HERE, SHARED, one_thread, references, shared_net
from numpy.typing import NDArray

from advfrontier import Machine, evaluate
from advfrontier.attacks.autoattack import NORMS as AUTOATTACKS
from advfrontier.attacks.autoattack import attack_at
from advfrontier.jsonable import jsonable
from advfrontier.report.render import as_markdown, print_tables
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS

SAMPLES = 64
TIERS = (4000, 8000)
QUANTILES = ("0.35", "0.7")
WORK = HERE / "build" / "other-nets"
DOCS = HERE / "docs"


OPENING = """
The tiers that come with the package beside AutoAttack, on networks that others have trained on MNIST and CIFAR-10.
`mnist_cnn_a_adv`, `cifar_cnn_a_adv` and `mnist_small_fgsm` are among those that the races were learned on (24 images);
the others are not. The networks are not part of the repository: `python scripts/other_nets.py` writes this page where
they lie in a folder `../shared/nets` beside it. All figures are in [one file](results/other_nets.json), too.

AutoAttack is the package `pyautoattack`, which draws other random numbers than the original: where that was recorded,
the columns *original* and *differing* say how far two runs of AutoAttack agree. Where it was not, the radii are
quantiles of the distances that 4k found, so one sample that AutoAttack finds a little nearer counts at once.
""".strip()


def measure(name: str, norm: str) -> dict[str, Any]:
    """One network in one norm: what the tiers found, and whom AutoAttack leaves at two radii."""
    model, images, labels = shared_net(name, SAMPLES)
    found = evaluate(
        model, images, labels, norm=norm, ensemble="8k", name=name, batch_size=SAMPLES,
        out=WORK / "records" / name / norm, machine=Machine(progress=True),
    )  # fmt: skip
    tiers = {tier: found.distances_at(tier) for tier in TIERS}
    recorded = references().get(name, {})
    measured = {
        "net": name,
        "norm": norm,
        "mean": {tier: mean_ratio(distances, recorded, norm) for tier, distances in tiers.items()},
        "flags": [flag.text for flag in found.flags],
        "radii": [],
    }
    for quantile in QUANTILES if norm in AUTOATTACKS else ():
        key = f"AA/{norm}/{quantile}"
        known = f"{key}/eps" in recorded
        radius = (
            float(recorded[f"{key}/eps"])
            if known
            else float(np.quantile(tiers[TIERS[0]], float(quantile)))
        )
        theirs = attack_at(model, images, labels, norm=norm, radius=radius, batch_size=SAMPLES)
        measured["radii"].append(
            {
                "radius": radius,
                "tiers": {
                    tier: int((distances > radius).sum()) for tier, distances in tiers.items()
                },
                "autoattack": int(theirs.robust.sum()),
                "queries": theirs.counts["attack"] / SAMPLES,
                "original": int(recorded[f"{key}/robust"].sum()) if known else None,
                "differing": int((theirs.robust != recorded[f"{key}/robust"]).sum())
                if known
                else None,
            }
        )
    return measured


def mean_ratio(
    distances: NDArray[np.float64], recorded: Mapping[str, NDArray[Any]], norm: str
) -> float | None:
    """The mean distance over that of the nearest of adv-lib's runs, on the samples that both attacked and broke."""
    runs = [found for key, found in recorded.items() if key.startswith(f"{norm}/")]
    if not runs:
        return None
    nearest = np.min(runs, axis=0)
    both = (nearest > 0) & np.isfinite(nearest) & np.isfinite(distances)
    return float(distances[both].mean() / nearest[both].mean())


def rows(measured: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """A line for every radius; one without a radius in l0."""
    for each in measured:
        means = [each["mean"][str(tier)] for tier in TIERS]
        for point in each["radii"] or [None]:
            cells: tuple[Any, ...] = (None,) * 7
            if point is not None:
                tiers = [point["tiers"][str(tier)] for tier in TIERS]
                more = max(tiers[0] - point["autoattack"], 0)
                cells = (
                    *tiers,
                    point["autoattack"],
                    point["original"],
                    point["differing"],
                    point["queries"],
                    more,
                )
            yield (each["net"], each["norm"], point and point["radius"], *cells, *means)


def table(measured: list[dict[str, Any]]) -> Table:
    """All that was measured."""
    columns = (
        Column("network"), Column("norm", "norm"), Column("radius", "number"), Column("4k", "integer"),
        Column("8k", "integer"), Column("AutoAttack", "integer"), Column("original", "integer"),
        Column("differing", "integer"), Column("its queries", "integer"), Column("4k leaves more", "integer"),
        Column("4k over adv-lib", "number"), Column("8k over adv-lib", "number"),
    )  # fmt: skip
    points = [point for each in measured for point in each["radii"]]
    worse = {
        tier: sum(point["tiers"][str(tier)] > point["autoattack"] for point in points)
        for tier in TIERS
    }
    better = sum(point["tiers"][str(TIERS[0])] < point["autoattack"] for point in points)
    tally = f"4k leaves more samples than AutoAttack at {worse[TIERS[0]]} of {len(points)} radii, and fewer at {better}; "
    notes = (
        f"{SAMPLES} images; robust at the radius by 4k, 8k and AutoAttack as it is installed, and by the original one",
        "where it was recorded, with the samples on which those two differ",
        "over adv-lib: mean distance over that of the nearest of adv-lib's runs of 1000 queries each",
        tally + f"8k leaves more at {worse[TIERS[1]]}",
    )
    return Table("Networks of others", columns, tuple(rows(measured)), notes)


def main() -> None:
    """Measure what is missing, then write the page of all that is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nets", nargs="*", default=sorted(path.stem for path in SHARED.glob("*.safetensors"))
    )
    parser.add_argument("--norms", nargs="*", default=list(NORMS))
    parser.add_argument("--cached", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.nets:
        sys.exit(f"{SHARED} has no networks; SHARED=FOLDER names another folder than ../shared")
    one_thread()
    for name in options.nets if not options.cached else ():
        for norm in options.norms:
            path = WORK / f"{name}-{norm}.json"
            if not path.exists():
                content = json.dumps(jsonable(measure(name, norm)), indent=1)
                path.write_text(content + "\n", encoding="utf-8")
                print_tables(table([json.loads(content)]))
    measured = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(WORK.glob("*.json"))
    ]
    shown = table(measured)
    page = f"# {shown.title}\n\n{OPENING}\n\n{as_markdown(replace(shown, title=''))}\n"
    (DOCS / "other_nets.md").write_text(page, encoding="utf-8")
    content = json.dumps(measured, indent=1) + "\n"
    (DOCS / "results" / "other_nets.json").write_text(content, encoding="utf-8")
    print(f"docs/other_nets.md: {len(measured)} networks and norms")


if __name__ == "__main__":
    main()
