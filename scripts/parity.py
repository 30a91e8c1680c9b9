"""Our solvers against the recorded figures of other implementations, on real nets.

The reference folder holds, for the first 64 test images of four nets, the distances that adv-lib's solvers reach with
1000 queries and the samples that AutoAttack leaves robust at two radii. Without options this prints the ratio of mean
distances for every solver that adv-lib has, and how APGD_min compares with the best of them. With --published the
solvers are those of their papers: what the departures are worth is the ratio of the two tables. With --autoattack
fab_min is compared with FAB-T at equal iterations, and square_min with Square at 1000 queries. What whole tiers leave
beside AutoAttack is told by other_nets.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from bench_nets import SHARED, one_thread, references, shared_net
from numpy.typing import NDArray

from advfrontier import Machine, trace
from advfrontier.pool import pool
from advfrontier.solvers import PUBLISHED
from advfrontier.threat.names import NORMS

IMAGES = 64
NOISY = {("alma", "L1"), ("alma", "L2"), ("pdpgd", "L0")}  # adv-lib's own figure moves by as much between batch sizes

References = Mapping[str, Mapping[str, NDArray[Any]]]  # by net


def distances(net: str, norm: str, runs: list[str], *, published: bool) -> dict[str, NDArray[np.float64]]:
    """Distance per image after 1000 queries, by run."""
    traces = trace(
        *shared_net(net, IMAGES), norm=norm, runs=runs, batch_size=IMAGES, machine=Machine(progress=True),
        solvers=PUBLISHED if published else None,
    )  # fmt: skip
    for flag in traces.flags:
        print(f"  flag on {net} {norm}: {flag}", file=sys.stderr)
    return dict(zip(traces.runs, traces.distances[:, -1], strict=True))


def mean(distance: NDArray[np.float64], correct: NDArray[np.bool_], worst: float) -> float:
    """Mean over correctly classified images; a failure counts as the largest distance that any solver found."""
    return float(np.where(np.isinf(distance), worst, distance)[correct].mean())


def base_table(reference: References, only: list[str] | None, *, published: bool) -> bool:
    """Print ratios of mean distances for the base runs (or for these only); return whether every bar holds."""
    ratios, held = [], True
    apgd: dict[str, list[float]] = {"L1": [], "L2": [], "Linf": []}
    print(
        f"{'net':22s} {'norm':5s} {'run':13s} {'ours':>9s} {'failed':>6s} {'adv-lib':>9s} {'failed':>6s} {'ratio':>7s}"
    )
    for net, recorded in reference.items():
        correct = recorded["clean"]
        for norm in NORMS:
            peers = {key.split("/")[1]: recorded[key] for key in recorded if key.startswith(norm + "/")}
            runs = [str(run) for run in pool(norm, name="extended") if run.variant == "base"]
            runs = [run for run in runs if only is None or run in only]
            if not runs:
                continue
            ours = distances(net, norm, runs, published=published)
            worst = max(d[np.isfinite(d)].max() for d in (*peers.values(), *ours.values()))
            for run, distance in ours.items():
                value = mean(distance, correct, worst)
                line = f"{net:22s} {norm:5s} {run:13s} {value:9.4f} {np.isinf(distance).sum():6d}"
                if run in peers:
                    theirs = mean(peers[run], correct, worst)
                    ratios.append(value / theirs)
                    bar = 1.03 if (run, norm) in NOISY else 1.01
                    mark = "" if ratios[-1] <= bar else f"  above {bar}"
                    held &= ratios[-1] <= bar
                    line += f" {theirs:9.4f} {np.isinf(peers[run]).sum():6d} {ratios[-1]:7.4f}{mark}"
                print(line, flush=True)
            if norm in apgd and net.startswith("cifar") and "apgd_min-dlr" in ours:
                best = min(mean(d, correct, worst) for d in peers.values())
                apgd[norm].append(mean(ours["apgd_min-dlr"], correct, worst) / best)
    if ratios:
        held &= float(np.mean(ratios)) <= 1.0
        print(f"\nmean ratio over the table: {np.mean(ratios):.4f} (bar: at most 1.0000)")
    for norm, found in apgd.items():
        if not found:
            continue
        bar = " (bar: at most 1.0000)" if norm != "L2" else ""
        print(f"APGD_min-DLR over the best single adv-lib solver, CIFAR-10 nets, {norm}: {np.mean(found):.4f}{bar}")
        held &= norm == "L2" or float(np.mean(found)) <= 1.0
    return held


def fab_t(model: Any, images: torch.Tensor, labels: torch.Tensor, norm: str, steps: int) -> NDArray[np.float64]:
    """The distances that AutoAttack's FAB-T reaches with all nine targets, from the input."""
    from pyautoattack.fab_pt import FABAttack_PT  # noqa: PLC0415  # an extra

    attack = FABAttack_PT(
        model, norm=norm, n_iter=steps, eps=1e6, targeted=True, n_target_classes=9, verbose=False, device="cpu", seed=0
    )
    order = {"L1": 1, "L2": 2, "Linf": torch.inf}[norm]
    best = torch.full((len(images),), torch.inf, dtype=torch.float64)
    for target in range(2, 11):
        attack.target_class = target
        points = attack.attack_single_run(images, labels, is_targeted=True)
        with torch.no_grad():
            wrong = model(points).argmax(1) != labels
        distance = (points.double() - images.double()).flatten(1).norm(order, dim=1)
        best = torch.where(wrong, torch.minimum(best, distance), best)
    return best.numpy()


def autoattack_table(reference: References, count: int, steps: int) -> bool:
    """Print fab_min over FAB-T, and what square_min and Square leave robust; return whether every bar holds."""
    from pyautoattack.square import SquareAttack  # noqa: PLC0415

    held = True
    targets = [f"fab_min:target{k}" for k in range(1, 10)]
    for net, recorded in reference.items():
        model, images, labels = shared_net(net, count)
        correct = recorded["clean"][:count]
        for norm in ("L1", "L2", "Linf"):
            ours = (
                trace(model, images, labels, norm=norm, runs=targets, queries=2 * steps, batch_size=count)
                .distances[:, -1]
                .min(0)[correct]
            )
            theirs = fab_t(model, images[correct], labels[correct], norm, steps)
            held &= float(ours.mean() / theirs.mean()) <= 1.02
            print(
                f"{net} {norm}: fab_min {ours.mean():.4f}, FAB-T {theirs.mean():.4f}: {ours.mean() / theirs.mean():.4f}"
            )
            if not net.startswith("mnist") or norm == "Linf":
                continue
            found = trace(model, images, labels, norm=norm, runs=["square_min"], batch_size=count).distances[0, -1]
            for quantile in ("0.35", "0.7"):
                radius = float(recorded[f"AA/{norm}/{quantile}/eps"])
                attack = SquareAttack(model, norm=norm, n_queries=1000, eps=radius, seed=0, verbose=False, device="cpu")
                with torch.no_grad():
                    robust = int((model(attack.perturb(images, labels)).argmax(1) == labels).sum())
                held &= int((found > radius).sum()) <= robust
                print(f"{net} {norm} at {radius:.4g}: square_min leaves {(found > radius).sum()}, Square {robust}")
    return held


def main() -> int:
    """Print the tables; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", action="store_true", help="the solvers of their papers")
    parser.add_argument("--autoattack", action="store_true", help="FAB and Square against AutoAttack's")
    parser.add_argument("--images", type=int, default=24, help="with --autoattack")
    parser.add_argument("--steps", type=int, default=100, help="of FAB, with --autoattack")
    parser.add_argument("--only", nargs="+", help="base runs to compare, such as fmn")
    parser.add_argument("--nets", nargs="+", help="nets to compare on, of those in the reference")
    options = parser.parse_args()
    one_thread()
    reference = {net: known for net, known in references().items() if options.nets is None or net in options.nets}
    if not reference:
        print(f"nothing to compare with in {SHARED.parent / 'reference'}; SHARED=FOLDER names another", file=sys.stderr)
        return 2
    if options.autoattack:
        return 0 if autoattack_table(reference, options.images, options.steps) else 1
    return 0 if base_table(reference, options.only, published=options.published) else 1


if __name__ == "__main__":
    sys.exit(main())
