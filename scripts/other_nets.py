"""The default ensembles beside AutoAttack and adv-lib, on networks that others have trained.

    python scripts/other_nets.py                                # all networks of ../shared/nets
    python scripts/other_nets.py --nets mnist_cnn_a_adv --norms Linf
    python scripts/other_nets.py --cached                       # the page of what is there

The networks lie in a folder beside the repository and are not part of it: MNIST and CIFAR-10
classifiers of several authors, with the first test images. A record of 8k queries is kept for each
in build/other-nets, and 4k is read off it; interrupted, the same command resumes. AutoAttack is run
at two radii, once: what docs/results/other_nets.json holds of it is taken from there. Where
../shared/reference has the distances of adv-lib and the samples that the original AutoAttack left,
its radii are taken and both are compared; elsewhere the radii are the 35 % and 70 % quantiles of
the distances that 4k found when AutoAttack was run.
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
STORED = DOCS / "results" / "other_nets.json"


OPENING = """
The default ensembles beside AutoAttack, on networks that others have trained on MNIST and CIFAR-10.
The order of runs in ℓ0, ℓ1 and ℓ2 was learned on 24 images of `mnist_cnn_a_adv`, `cifar_cnn_a_adv`
and `mnist_small_fgsm`, among other models; in ℓ∞ none took part. The repository has no copy:
`python scripts/other_nets.py` writes this page if they are in a folder `../shared/nets`.
[One file](results/other_nets.json) has all figures.

AutoAttack is the package `pyautoattack`, which draws other random numbers than the original. Where
the original was recorded, the columns *original* and *differing* say how far two runs of AutoAttack
agree. Where it was not, the radii are quantiles of distances that a 4k ensemble once found.
""".strip()


def measure(name: str, norm: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate one network in one norm, beside AutoAttack at two radii.

    Args:
        name: Name of the network.
        norm: Name of the norm.
        known: What was measured before: radii and AutoAttack's counts are taken from there.
    """
    model, images, labels = shared_net(name, SAMPLES)
    found = evaluate(
        model,
        images,
        labels,
        norm=norm,
        ensemble="8k",
        name=name,
        batch_size=SAMPLES,
        out=WORK / "records" / name / norm,
        machine=Machine(threads=1, progress=True),
    )
    tiers = {tier: found.distances_at(tier) for tier in TIERS}
    recorded = references().get(name, {})
    points = list(known.get("radii", []))
    if not points and norm in AUTOATTACKS:
        for quantile in QUANTILES:
            usual = float(np.quantile(tiers[TIERS[0]], float(quantile)))
            points.append(autoattack_at(name, norm, quantile, usual))
    for point in points:
        robust = {tier: int((each > point["radius"]).sum()) for tier, each in tiers.items()}
        point["tiers"] = robust
    return {
        "net": name,
        "norm": norm,
        "mean": {tier: mean_ratio(each, recorded, norm) for tier, each in tiers.items()},
        "flags": [flag.text for flag in found.flags],
        "radii": points,
    }


def autoattack_at(name: str, norm: str, quantile: str, usual: float) -> dict[str, Any]:
    """Run AutoAttack at the recorded radius of a quantile, or at the usual one if there is none."""
    model, images, labels = shared_net(name, SAMPLES)
    recorded = references().get(name, {})
    key = f"AA/{norm}/{quantile}"
    known = f"{key}/eps" in recorded
    radius = float(recorded[f"{key}/eps"]) if known else usual
    theirs = attack_at(model, images, labels, norm=norm, radius=radius, batch_size=SAMPLES)
    point: dict[str, Any] = {
        "radius": radius,
        "autoattack": int(theirs.robust.sum()),
        "queries": theirs.counts["attack"] / SAMPLES,
        "original": None,
        "differing": None,
    }
    if known:
        original = recorded[f"{key}/robust"]
        point["original"] = int(original.sum())
        point["differing"] = int((theirs.robust != original).sum())
    return point


def mean_ratio(
    distances: NDArray[np.float64], recorded: Mapping[str, NDArray[Any]], norm: str
) -> float | None:
    """Return the mean distance over adv-lib's nearest, on samples broken by both."""
    runs = [found for key, found in recorded.items() if key.startswith(f"{norm}/")]
    if not runs:
        return None
    nearest = np.min(runs, axis=0)
    both = (nearest > 0) & np.isfinite(nearest) & np.isfinite(distances)
    return float(distances[both].mean() / nearest[both].mean())


def rows(measured: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Return a line for every radius; one without a radius in l0."""
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
        Column("network"),
        Column("norm", "norm"),
        Column("radius", "number"),
        Column("4k", "integer"),
        Column("8k", "integer"),
        Column("AutoAttack", "integer"),
        Column("original", "integer"),
        Column("differing", "integer"),
        Column("its queries", "integer"),
        Column("4k leaves more", "integer"),
        Column("4k over adv-lib", "number"),
        Column("8k over adv-lib", "number"),
    )
    points = [point for each in measured for point in each["radii"]]
    worse = {
        tier: sum(point["tiers"][str(tier)] > point["autoattack"] for point in points)
        for tier in TIERS
    }
    better = sum(point["tiers"][str(TIERS[0])] < point["autoattack"] for point in points)
    tally = (
        f"4k leaves more samples than AutoAttack at {worse[TIERS[0]]} of {len(points)} radii, "
        f"and fewer at {better}; "
    )
    notes = (
        (
            f"{SAMPLES} images; robust at the radius by 4k, 8k and AutoAttack as it is installed, "
            "and "
            "by the original one"
        ),
        "where it was recorded, with the samples on which those two differ",
        ("over adv-lib: mean distance over the nearest of adv-lib's runs of 1000 queries each"),
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
    known = {}
    if STORED.exists():
        for each in json.loads(STORED.read_text(encoding="utf-8")):
            known[each["net"], each["norm"]] = each
    WORK.mkdir(parents=True, exist_ok=True)
    for name in options.nets if not options.cached else ():
        for norm in options.norms:
            path = WORK / f"{name}-{norm}.json"
            if path.exists() or (known and (name, norm) not in known):
                continue
            before = known.get((name, norm), {})
            content = json.dumps(jsonable(measure(name, norm, before)), indent=1)
            path.write_text(content + "\n", encoding="utf-8")
            print_tables(table([json.loads(content)]))
    measured = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(WORK.glob("*.json"))
    ]
    shown = table(measured)
    page = f"# {shown.title}\n\n{OPENING}\n\n{as_markdown(replace(shown, title=''))}\n"
    (DOCS / "other_nets.md").write_text(page, encoding="utf-8")
    content = json.dumps(measured, indent=1) + "\n"
    STORED.write_text(content, encoding="utf-8")
    print(f"docs/other_nets.md: {len(measured)} networks and norms")


if __name__ == "__main__":
    main()
