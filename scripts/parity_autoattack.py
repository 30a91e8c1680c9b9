"""Compare fab_min with FAB-T at equal iterations, and square_min with Square.

    python scripts/parity_autoattack.py --images 24 --steps 100

On the nets of ../shared/nets that ../shared/reference has figures of; the radii of the square
searches are recorded there. FAB-T takes all nine targets and starts at the input, and so does
fab_min.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from bench_nets import SHARED, one_thread, references, report, shared_net
from numpy.typing import NDArray
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor

from advfrontier import trace
from advfrontier.table import Column, Table

BAR = 1.02  # of mean distances
ORDERS = {"L1": 1.0, "L2": 2.0, "Linf": torch.inf}

Row = tuple[Any, ...]  # net, norm, pair, radius, ours, theirs, what is above the bar


def fab_t(model: Any, images: Tensor, labels: Tensor, norm: str, steps: int) -> float:
    """Return the mean distance that FAB-T reaches."""
    attack = FABAttack_PT(
        model,
        norm=norm,
        n_iter=steps,
        eps=1e6,
        targeted=True,
        n_target_classes=9,
        verbose=False,
        device="cpu",
        seed=0,
    )
    best = torch.full((len(images),), torch.inf, dtype=torch.float64)
    for target in range(2, 11):
        attack.target_class = target
        points = attack.attack_single_run(images, labels, is_targeted=True)
        with torch.no_grad():
            wrong = model(points).argmax(1) != labels
        distance = (points.double() - images.double()).flatten(1).norm(ORDERS[norm], dim=1)
        best = torch.where(wrong, torch.minimum(best, distance), best)
    return float(best.mean())


def rows(net: str, recorded: Mapping[str, NDArray[Any]], count: int, steps: int) -> Iterator[Row]:
    """Compare FAB in three norms, and the square search in two on the MNIST nets."""
    model, images, labels = shared_net(net, count)
    correct = recorded["clean"][:count]
    targets = [f"fab_min:target{k}" for k in range(1, 10)]
    for norm in ORDERS:
        found = trace(
            model, images, labels, norm=norm, runs=targets, queries=2 * steps, batch_size=count
        )
        ours = float(found.frontier()[correct].mean())
        theirs = fab_t(model, images[correct], labels[correct], norm, steps)
        yield (
            net,
            norm,
            "fab_min, FAB-T",
            None,
            ours,
            theirs,
            "above" if ours > BAR * theirs else "",
        )
        if not net.startswith("mnist") or norm == "Linf":
            continue
        distances = trace(
            model, images, labels, norm=norm, runs=["square_min"], batch_size=count
        ).frontier()
        for quantile in ("0.35", "0.7"):
            radius = float(recorded[f"AA/{norm}/{quantile}/eps"])
            attack = SquareAttack(
                model, norm=norm, n_queries=1000, eps=radius, seed=0, verbose=False, device="cpu"
            )
            with torch.no_grad():
                robust = int((model(attack.perturb(images, labels)).argmax(1) == labels).sum())
            left = int((distances > radius).sum())
            yield (
                net,
                norm,
                "square_min, Square",
                radius,
                left,
                robust,
                "above" if left > robust else "",
            )


def main() -> None:
    """Print the table; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    recorded = references()
    if not recorded:
        sys.exit(
            f"{SHARED.parent} has no recorded figures; SHARED=FOLDER names another folder than "
            "../shared"
        )
    one_thread()
    found: list[Row] = []
    for net, figures in recorded.items():
        for row in rows(net, figures, options.images, options.steps):
            print(" ", *(value for value in row if value is not None), flush=True)
            found.append(row)
    columns = (
        Column("net"),
        Column("norm", "norm"),
        Column("attacks"),
        Column("radius", "number"),
        Column("ours", "number"),
        Column("theirs", "number"),
        Column(""),
    )
    notes = (
        (
            f"{options.images} images; FAB: mean distances after {options.steps} iterations "
            "towards "
            "each of nine targets"
        ),
        "Square: samples that stay robust at the radius after 1000 queries",
    )
    report("parity_autoattack", Table("Beside parts of AutoAttack", columns, tuple(found), notes))
    sys.exit(any(row[-1] for row in found))


if __name__ == "__main__":
    main()
