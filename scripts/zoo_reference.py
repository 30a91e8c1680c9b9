"""Make the shipped reference distances: every embedded model, four norms, 100 samples.

    python scripts/zoo_reference.py build/reference            # all, resumable
    python scripts/zoo_reference.py build/reference F3 F7      # these models only

The records go to the folder; when all models of a norm are there, the packed file goes into the
package.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from advfrontier import Evaluation, FrontierError, Machine, evaluate, zoo
from advfrontier.flags import doubts
from advfrontier.jsonable import jsonable
from advfrontier.pool import TIERS
from advfrontier.record.tensors import pack
from advfrontier.sources import load_data
from advfrontier.threat.names import NORMS

MODELS = [name for name, card in zoo.MODELS.items() if card.split in {"train", "held-out"}]
SAMPLES = 100
ENSEMBLE = "12k"  # `_ATTACKED_WITH` in evaluation/compare.py names its family


def main() -> None:
    """Evaluate what is missing, then pack what is complete."""
    folder, chosen = Path(sys.argv[1]), sys.argv[2:] or MODELS
    samples = load_data("fashion-mnist", samples=SAMPLES)
    for name in chosen:
        for norm in NORMS:
            done = evaluate(
                f"zoo:{name}",
                samples,
                norm=norm,
                ensemble=ENSEMBLE,
                out=folder / name / norm,
                name=name,
                batch_size=SAMPLES,
                machine=Machine(threads=1, progress=True),
            )
            print(
                f"{name} {norm}: AUREC {done.aurec().value:.4g}, flags {list(done.flags)}",
                flush=True,
            )
    for norm in NORMS:
        try:
            evaluations = [Evaluation.load(folder / name / norm) for name in MODELS]
        except FrontierError as error:
            print(f"{norm} is not packed yet: {error}")
            continue
        target = Path(str(files("advfrontier.zoo"))) / "reference" / f"{norm}.safetensors"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(pack_reference(evaluations))
        print(f"{target}: {target.stat().st_size} bytes")


def pack_reference(evaluations: list[Evaluation]) -> bytes:
    """Write the file of one norm, as `evaluation/compare.py` reads it."""
    tables = {
        e.model: torch.from_numpy(np.stack([e.distances_at(tier) for tier in TIERS]))
        for e in evaluations
    }
    flags = {e.model: told for e in evaluations if (told := doubts(e.flags))}
    return pack(
        tables,
        {"samples": json.dumps(evaluations[0].samples), "flags": json.dumps(jsonable(flags))},
    )


if __name__ == "__main__":
    main()
