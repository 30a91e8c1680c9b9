"""Every case in which a peer is nearer or faster than the default 4k, as docs/where_it_loses.md.

    python scripts/where_it_loses.py

It reads what other commands have stored: `docs/results` (`make results`), `other_nets.json`
(`scripts/other_nets.py`) and `peers.json` (`make peers`, copied from `build/bench`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advfrontier.bench.frame import DEFAULT, pd
from advfrontier.report.render import as_markdown
from advfrontier.table import Column, Table
from advfrontier.threat.names import NORMS, norm_symbol

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "where_it_loses.md"
MEASURED = ROOT / "build" / "bench" / "peers.json"
PEERS = RESULTS / "peers.json"
TIERS = (4000, 8000, 12000)

OPENING = """
# Where it loses

Every case that was measured in which AutoAttack or a solver of another library is nearer or faster,
and why. `python scripts/where_it_loses.py` writes this page from the stored figures.
""".strip()
AUTOATTACK = """
On the held-out models of the [results](results.md) AutoAttack ran at ten radii per model and norm,
64 images each. At how many of them it leaves fewer samples, as many, or more than 4k:
""".strip()
LOST = """
The radii at which it leaves fewer. *Its queries* were spent at this radius alone; those of 4k serve
all radii.
""".strip()
OTHERS = """
On the [networks of others](other_nets.md), at two radii each. AutoAttack's Square attack has 5000
queries at each radius, which pays where gradients are masked, as in `mnist_small_fgsm`.
""".strip()
SOLVERS = """
Beside the same solver in another library, on F3 with 64 images and 1000 queries. Ours over theirs:
above 1 the peer is faster, or nearer. Ours judges, measures and keeps the best point at every
query, which costs a few percent of a small network's passes. adv-lib's APGD is another search: it
bisects over radii, with a run of APGD at each.
""".strip()


def robust_counts() -> pd.DataFrame:
    """Return a row for every radius of AutoAttack, with the samples that each side leaves."""
    distances = pd.read_parquet(RESULTS / "results.parquet")
    own = distances[distances["ensemble"] == DEFAULT]
    points = pd.read_csv(RESULTS / "autoattack.csv")
    rows = []
    for point in points.itertuples():
        chosen = own[(own["norm"] == point.norm) & (own["model"] == point.model)]
        row: dict[str, Any] = {"norm": point.norm, "model": point.model, "radius": point.radius}
        for tier in TIERS:
            found = chosen.loc[chosen["budget"] == tier, "distance"]
            row[f"{tier // 1000}k"] = int((found > point.radius).sum()) if len(found) else None
            row["samples"] = row.get("samples") or len(found)
        row["AutoAttack"] = round(point.accuracy * row["samples"])
        row["its queries"] = point.queries
        rows.append(row)
    return pd.DataFrame(rows)


def tally(counts: pd.DataFrame) -> Table:
    """Count the radii at which either side leaves fewer."""
    rows = []
    for norm in NORMS:
        each = counts[counts["norm"] == norm]
        if len(each):
            difference = each["4k"] - each["AutoAttack"]
            sides = (difference > 0, difference == 0, difference < 0)
            rows.append((norm, *(int(side.sum()) for side in sides)))
    names = ("AutoAttack fewer", "as many", "4k fewer")
    columns = (Column("norm", "norm"), *(Column(name, "integer") for name in names))
    return Table("", columns, tuple(rows))


def lost_radii(counts: pd.DataFrame) -> Table:
    """Return the radii at which AutoAttack leaves fewer samples than 4k."""
    lost = counts[counts["4k"] > counts["AutoAttack"]]
    columns = [Column("model"), Column("norm", "norm"), Column("radius", "number")]
    names = ("4k", "8k", "12k", "AutoAttack", "its queries")
    columns += [Column(name, "integer") for name in names]
    rows = []
    for _, row in lost.iterrows():
        counted = [None if pd.isna(row[name]) else round(row[name]) for name in names]
        rows.append((row["model"], row["norm"], row["radius"], *counted))
    return Table("", tuple(columns), tuple(rows))


def closed_by_queries(counts: pd.DataFrame) -> str:
    """Say at how many of the lost radii larger budgets leave as few samples as AutoAttack."""
    lost = counts[counts["4k"] > counts["AutoAttack"]]
    closed = lost[["8k", "12k"]].min(axis=1) <= lost["AutoAttack"]
    return (
        f"At {int(closed.sum())} of these {len(lost)} radii 8k or 12k leaves as few as AutoAttack, "
        "or fewer: there the reason is the number of queries. At the others AutoAttack's runs "
        "find samples that none of ours do."
    )


def lost_on_other_nets() -> Table:
    """Return the cases of `other_nets.json` in which a peer is nearer."""
    columns = (
        Column("network"),
        Column("norm", "norm"),
        Column("radius", "number"),
        Column("4k", "integer"),
        Column("8k", "integer"),
        Column("AutoAttack", "integer"),
        Column("original", "integer"),
    )
    rows = []
    for each in json.loads((RESULTS / "other_nets.json").read_text(encoding="utf-8")):
        for point in each["radii"]:
            first, second = (point["tiers"][str(tier)] for tier in TIERS[:2])
            if first > point["autoattack"]:
                sides = (first, second, point["autoattack"], point["original"])
                rows.append((each["net"], each["norm"], point["radius"], *sides))
    return Table("", columns, tuple(rows))


def nearer_than_adv_lib() -> str:
    """Say in how many networks and norms adv-lib's nearest runs are nearer in the mean."""
    ratios = []
    for each in json.loads((RESULTS / "other_nets.json").read_text(encoding="utf-8")):
        if each["mean"]["4000"] is not None:
            ratios.append((each["mean"]["4000"], each["net"], norm_symbol(each["norm"])))
    nearer = [f"{net} in {norm}" for ratio, net, norm in ratios if ratio > 1]
    told = ", ".join(nearer) if nearer else "none"
    return (
        f"Cases of {len(ratios)} in which the nearest of adv-lib's runs is nearer in the mean: "
        f"{told}."
    )


def slower_or_farther() -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `make peers` in which the peer is faster or nearer."""
    for row in json.loads(PEERS.read_text(encoding="utf-8"))["rows"]:
        if row["missed"]:
            yield tuple(row[key] for key in ("norm", "run", "peer", "time", "distance", "missed"))


def main() -> None:
    """Write the page."""
    if MEASURED.exists():
        shutil.copyfile(MEASURED, PEERS)
    counts = robust_counts()
    solvers = Table(
        "",
        (
            Column("norm", "norm"),
            Column("run", "code"),
            Column("library"),
            Column("time", "number"),
            Column("distance", "number"),
            Column("ours is"),
        ),
        tuple(slower_or_farther()),
    )
    parts: list[str | Table] = [
        OPENING,
        "## AutoAttack on the held-out models",
        AUTOATTACK,
        tally(counts),
        LOST,
    ]
    parts += [
        lost_radii(counts),
        closed_by_queries(counts),
        "## Networks of others",
        OTHERS,
        lost_on_other_nets(),
    ]
    parts += [nearer_than_adv_lib(), "## Single solvers", SOLVERS, solvers]
    texts = [as_markdown(part) if isinstance(part, Table) else part for part in parts]
    PAGE.write_text("\n\n".join(text.strip() for text in texts) + "\n", encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(counts)} radii of AutoAttack on held-out models")


if __name__ == "__main__":
    main()
