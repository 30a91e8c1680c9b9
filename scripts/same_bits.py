"""Did a change of the code change a result? Digests of every run's trajectory and points, to compare bit for bit.

    python scripts/same_bits.py --out before.json
    … change the code …
    python scripts/same_bits.py --against before.json

Every solver in every norm, its base run, a restart and a target, on the zoo's F3 and on a CIFAR-10 net if there is one,
or on the nets named; and a race in every norm. Bits depend on the machine and on torch: both files must come from the
same one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench_nets import Net, attacked, nets, one_thread
from torch import Tensor

from advfrontier.engine import advance, advance_race
from advfrontier.pool import pool
from advfrontier.threat.names import NORMS

VARIANTS = ("base", "restart1", "target1")
RACE_QUERIES = 1000


def digest(*tensors: Tensor) -> str:
    """SHA-256 of the tensors' bytes, shortened."""
    return hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()[
        :16
    ]


def digests(net: Net, queries: int) -> Iterator[tuple[str, str]]:
    """Name and digest of every run, and of a race, on one net."""
    for norm in NORMS:
        with attacked(net, norm) as subject:
            for run in pool(norm, name="extended"):
                if run.variant != "base" and f"{run.variant}{run.index}" not in VARIANTS:
                    continue
                unit = subject.unit(str(run))
                advance(subject.oracle, [unit], [queries])
                yield (
                    f"{net.name} {norm} {run}",
                    digest(unit.trajectory, unit.best_point, unit.state.point),
                )
            if (race := subject.race(RACE_QUERIES)) is not None:
                advance_race(subject.oracle, race, RACE_QUERIES)
                yield f"{net.name} {norm} race", digest(race.trajectory, race.best_point)


def main() -> int:
    """Write the digests, or compare; exit with 1 if one differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the digests")
    parser.add_argument("--against", type=Path, help="digests to compare with")
    parser.add_argument("--queries", type=int, default=300, help="of each run")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--nets", nargs="+", default=["zoo:F3", "cifar_resnet2b"])
    options = parser.parse_args()
    one_thread()
    named = [(name, options.images) for name in options.nets]
    found = dict(pair for net in nets(named) for pair in digests(net, options.queries))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if not options.against:
        return 0
    before = json.loads(options.against.read_text(encoding="utf-8"))
    differ = [name for name in found if before.get(name) != found[name]]
    print(f"{len(found)} runs, {len(differ)} with other bits", *differ, sep="\n  ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
