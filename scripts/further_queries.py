"""Make the table of what further queries change: the default ensembles on the embedded models.

python scripts/further_queries.py build/reference            # evaluate what is missing; resumable
python scripts/further_queries.py build/reference --check    # also try the table on other models
python scripts/further_queries.py build/reference --write    # put the table into the package
"""

from __future__ import annotations

import argparse
from pathlib import Path

from advfrontier import Machine, evaluate, zoo
from advfrontier.pool import TIERS, tier_label
from advfrontier.sources import load_data
from advfrontier.threat.names import NORMS

LARGEST = TIERS[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--norms", nargs="*", default=list(NORMS))
    o = parser.parse_args()
    data = load_data("fashion-mnist", samples=o.samples)
    for norm in o.norms:
        for name in o.models:
            done = evaluate(
                f"zoo:{name}",
                data,
                norm=norm,
                ensemble=tier_label(LARGEST),
                out=o.folder / name / norm,
                name=name,
                batch_size=o.samples,
                machine=Machine(threads=1, progress=False),
            )
            print(name, norm, f"{done.seconds:.0f} s", done.aurec().value, flush=True)


main()
