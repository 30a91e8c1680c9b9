"""Make the shipped reference distances: every embedded model, four norms, the largest tier, 200 samples.

    python scripts/zoo_reference.py build/reference            # all, resumable
    python scripts/zoo_reference.py build/reference F3 F7      # these models only

The records go to the folder; when all models of a norm are there, the packed file goes into the package.
"""

import sys
from importlib.resources import files
from pathlib import Path

from advfrontier import Evaluation, FrontierError, Machine, evaluate
from advfrontier.evaluation.reference import pack_reference
from advfrontier.sources import load_data
from advfrontier.threat.names import NORMS
from advfrontier.zoo import MODELS

SAMPLES = 200
WORKERS = 2


def main() -> None:
    """Evaluate what is missing, then pack what is complete."""
    folder, chosen = Path(sys.argv[1]), sys.argv[2:] or list(MODELS)
    samples = load_data("fashion-mnist", samples=SAMPLES)
    for name in chosen:
        for norm in NORMS:
            done = evaluate(
                f"zoo:{name}", samples, norm=norm, ensemble="12k", out=folder / name / norm, name=name,
                machine=Machine(workers=WORKERS, threads=1), progress=True,
            )  # fmt: skip
            print(f"{name} {norm}: AUREC {done.aurec().value:.4g}, flags {list(done.flags)}", flush=True)
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


if __name__ == "__main__":
    main()
