"""Measure the models whose weights lie in the package, and write what was found into cards.toml.

The part of the file above the line `# Measured` is left as it is; what follows is replaced. With a
second word, the training times are taken from that `minutes.toml`, which zoo_train.py writes;
without, they stay what they were.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import torch

from advfrontier import zoo
from advfrontier.zoo.cards import FILE, PGD_STEPS

FOLDER = Path(zoo.__file__).parent
MARK = (
    "\n# Measured on the 1000 embedded images by scripts/zoo_measure.py; PGD takes "
    f"{PGD_STEPS} "
    "steps.\n"
)


def main(times: str | None) -> None:
    """Measure all models, and replace the measured part of the cards."""
    torch.set_num_threads(1)
    images, labels = zoo.images_and_labels()
    minutes = tomllib.loads(Path(times).read_text(encoding="utf-8")) if times else {}
    plain, _ = zoo.read_model(zoo.MODELS["F1"])
    known: dict[tuple[str, float], int] = {}
    parts = []
    for name, card in zoo.MODELS.items():
        model, digest = zoo.read_model(card)
        with torch.no_grad():
            clean = int((model(images).argmax(1) == labels).sum())
        robust = {
            n: int(zoo.survivors(model, images, labels, n, r, steps=PGD_STEPS).sum())
            for n, r in card.radii.items()
        }
        for n, r in card.radii.items():
            if (n, r) not in known:
                known[n, r] = int(zoo.survivors(plain, images, labels, n, r, steps=PGD_STEPS).sum())
        beside = {n: known[n, r] for n, r in card.radii.items()}
        print(
            f"{name:4} {card.title:45} clean {clean / 10:.1f} % PGD {robust} plain {beside}",
            flush=True,
        )
        parts.append(
            f"\n[{name}.measured]\n"
            f"clean_accuracy = {clean / 1000}\n"
            f"pgd_accuracy = {shares(robust)}\n"
            f"plain_accuracy = {shares(beside)}\n"
            f"parameters = {sum(p.numel() for p in model.parameters())}\n"
            f"minutes = {minutes.get(name, card.minutes):.1f}\n"
            f'sha256 = "{digest}"\n'
        )
    path = FOLDER / FILE
    written = path.read_text(encoding="utf-8").split(MARK)[0].rstrip("\n") + "\n"
    path.write_text(written + MARK + "".join(parts), encoding="utf-8")


def shares(counts: dict[str, int]) -> str:
    """Return counts of 1000 as an inline table."""
    inner = ", ".join(f"{norm} = {count / 1000}" for norm, count in counts.items())
    return f"{{ {inner} }}" if inner else "{}"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
