"""Compare our solvers with adv-lib, foolbox and torchattacks: time and mean distance.

The same solver on the same net and images, 500 steps of a forward and a backward pass each; where a
peer's step makes more passes (FAB) or its search is another one (APGD inside a bisection), it gets
as many steps as cost 1000 queries. Both sides run by turns in one process, on one thread; the
median of the ratios of time counts. What a peer returns is classified again; a point that is not
misclassified counts as the largest distance that either side found.

`make bench` installs the peers into build/peers, apart from the environment; without them there is
only a line that says so.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from bench_nets import HERE, NOISE, Net, attacked, nets, one_thread, report
from numpy.typing import NDArray
from torch import Tensor, nn

from advfrontier.attacks.autoattack import Ledger
from advfrontier.engine.loop import advance_search
from advfrontier.sources.reading import fit_torchvision
from advfrontier.table import Column, Table
from advfrontier.threat.norms import make_norm

NETS = (("zoo:F3", 64), ("cifar_cnn_a_adv", 64))
ORDER = {"L0": 0, "L1": 1, "L2": 2, "Linf": math.inf}
# Of a step with ten classes: two forward passes, and a backward pass for each other class.
FAB_QUERIES = 11
BISECTIONS = 10

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]
Peers = dict[tuple[str, str, str], Attack]  # by run, norm and library


def adv_lib_attacks(steps: int) -> Peers:
    """Return the solvers of adv-lib; its logger imports visdom, which is not used here."""
    sys.modules.setdefault("visdom", types.ModuleType("visdom")).Visdom = object  # type: ignore[attr-defined]
    from adv_lib import attacks  # noqa: PLC0415
    from adv_lib.attacks.auto_pgd import minimal_apgd  # noqa: PLC0415

    found: dict[tuple[str, str], Attack] = {
        ("pdgd", "L2"): partial(attacks.pdgd, num_steps=steps),
        ("ddn", "L2"): partial(attacks.ddn, steps=steps, levels=None),
        ("sigma_zero", "L0"): partial(attacks.sigma_zero, num_steps=steps),
        ("alma", "L1"): partial(attacks.alma, num_steps=steps, distance="l1", init_lr_distance=0.5),
        ("alma", "L2"): partial(attacks.alma, num_steps=steps, distance="l2", init_lr_distance=0.1),
    }
    for norm, p in ORDER.items():
        found["fmn", norm] = partial(
            attacks.fmn, norm=p, steps=steps, α_init=10.0 if norm == "Linf" else 1.0
        )
        found["pdpgd", norm] = partial(attacks.pdpgd, norm=p, num_steps=steps)
        if norm == "L0":
            found["pdpgd", norm] = partial(
                attacks.pdpgd, norm=p, num_steps=steps, proximal_operator=23
            )
            continue
        found["fab_min", norm] = partial(attacks.fab, norm=p, n_iter=2 * steps // FAB_QUERIES)
        largest = {"L1": 40.0, "L2": 4.0, "Linf": 0.4}[norm]
        for loss in ("ce", "dlr"):
            found[f"apgd_min-{loss}", norm] = partial(
                minimal_apgd,
                norm=p,
                max_eps=largest,
                n_iter=steps // BISECTIONS,
                binary_search_steps=BISECTIONS,
                loss_function=loss,
                use_large_reps=norm == "L1",
            )
    return {(run, norm, "adv-lib"): attack for (run, norm), attack in found.items()}


def foolbox_attacks(steps: int) -> Peers:
    """Return the minimum-norm solvers of foolbox that are ours as well."""
    import foolbox  # noqa: PLC0415
    from foolbox.models.pytorch import PyTorchModel  # noqa: PLC0415

    def attacked(attack: Any, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        wrapped = PyTorchModel(model, bounds=(0, 1), device="cpu")
        points: Tensor = attack.run(wrapped, images, foolbox.criteria.Misclassification(labels))
        return points

    own: Any = foolbox.attacks
    found: dict[tuple[str, str], Any] = {("ddn", "L2"): own.DDNAttack(steps=steps)}
    for norm, kind in (("L0", own.L0FMNAttack), ("L1", own.L1FMNAttack), ("L2", own.L2FMNAttack)):
        found["fmn", norm] = kind(steps=steps)
    found["fmn", "Linf"] = own.LInfFMNAttack(steps=steps, max_stepsize=10.0)
    return {
        (run, norm, "foolbox"): partial(attacked, attack) for (run, norm), attack in found.items()
    }


def torchattacks_attacks(steps: int) -> Peers:
    """Return FAB, the only solver of torchattacks that is ours as well; in ℓ1 it fails."""
    import torchattacks  # noqa: PLC0415

    def attacked(norm: str, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        attack = torchattacks.FAB(model, norm=norm, eps=1e6, steps=2 * steps // (FAB_QUERIES + 1))
        points: Tensor = attack(images, labels)
        return points

    return {("fab_min", norm, "torchattacks"): partial(attacked, norm) for norm in ("L2", "Linf")}


def find_peers(steps: int) -> Peers:
    """Return the peers that can be imported, and print a line for each that cannot."""
    sys.path.append(str(HERE / "build" / "peers"))  # last: what the environment has comes first
    fit_torchvision()
    peers: Peers = {}
    for library in (adv_lib_attacks, foolbox_attacks, torchattacks_attacks):
        try:
            peers |= library(steps)
        except ImportError as error:
            print(
                f"left out: {library.__name__} ({error}); `make peers` installs it", file=sys.stderr
            )
    return peers


def ours(net: Net, run: str, norm: str, steps: int) -> NDArray[np.float64]:
    """Return the distances of our solver, clean pass included."""
    with attacked(net, norm) as subject:
        search = subject.search(run, horizon=2 * steps)
        checkpoints = advance_search(subject.oracle, search, 2 * steps)
    distances: NDArray[np.float64] = checkpoints[-1].numpy()
    return distances


def theirs(net: Net, attack: Attack, norm: str) -> tuple[NDArray[np.float64], float, float]:
    """Return the distances of a peer, its queries per sample and its seconds."""
    counted = Ledger(net.model).eval()
    started = time.process_time()
    points = attack(counted, net.images.clone(), net.labels).detach()
    seconds = time.process_time() - started
    with torch.no_grad():
        wrong = net.model(points).argmax(1) != net.labels
    inside = (points >= -1e-6).flatten(1).all(1) & (points <= 1 + 1e-6).flatten(1).all(1)
    shape = tuple(net.images.shape[1:])
    distance = make_norm(norm, shape).distance(
        points.flatten(1).double(), net.images.flatten(1).double()
    )
    return (
        torch.where(wrong & inside, distance, torch.inf).numpy(),
        counted.counts.total() / len(points),
        seconds,
    )


def compare(net: Net, peers: Peers, options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Yield a row for every solver that a peer has."""
    for (run, norm, library), attack in sorted(
        peers.items(), key=lambda item: (item[0][1], item[0][0])
    ):
        if norm not in options.norms or (options.only and run not in options.only):
            continue
        times = []
        for _ in range(options.repeats):
            found, queries, seconds = theirs(net, attack, norm)
            started = time.process_time()
            own = ours(net, run, norm, options.steps)
            times.append((time.process_time() - started) / seconds)
        worst = max(d[np.isfinite(d)].max(initial=0) for d in (own, found))
        near, far = (float(np.where(np.isinf(d), worst, d).mean()) for d in (own, found))
        faster, nearer = statistics.median(times), near / far
        print(
            f"  {net.name} {norm} {run} {library}: {faster:.2f} {nearer:.3f}",
            file=sys.stderr,
            flush=True,
        )
        yield (
            net.name,
            norm,
            run,
            library,
            round(faster, 2),
            round(nearer, 3),
            int(np.isinf(own).sum()),
            int(np.isinf(found).sum()),
            round(queries),
            "; ".join(
                text
                for text, missed in (("slower", faster > 1), ("farther", nearer > 1.0005))
                if missed
            ),
        )


def main() -> int:
    """Print the table; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of both sides, by turns")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", nargs="*", help="solvers")
    parser.add_argument("--norms", nargs="*", default=list(ORDER))
    parser.add_argument("--nets", nargs="*", help="of " + ", ".join(name for name, _ in NETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what the peers warn of is theirs
    one_thread()
    if not (peers := find_peers(options.steps)):
        return 0
    rows = [row for net in nets(NETS, options.nets) for row in compare(net, peers, options)]
    columns = (
        Column("net"),
        Column("norm", "norm"),
        Column("run", "code"),
        Column("peer"),
        Column("time", "number"),
        Column("distance", "number"),
        Column("unbroken by us", "integer"),
        Column("by them", "integer"),
        Column("their queries", "integer"),
        Column("", key="missed"),
    )
    notes = (
        (
            f"time and mean distance are ours over theirs, bars 1.0; {2 * options.steps} queries "
            "of "
            "ours"
        ),
        NOISE,
    )
    report("peers", Table("Beside other libraries", columns, tuple(rows), notes))
    return 1 if any(row[-1] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
