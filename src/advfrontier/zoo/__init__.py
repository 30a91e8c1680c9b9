"""Embedded benchmark: 1000 Fashion-MNIST test images and small models from plain to robust.

Beside them F17, which is so small that its true distances are known, and F18, which is to reject
images of low confidence.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.progress import progress_bar
from advfrontier.zoo import fashion
from advfrontier.zoo.architectures import build
from advfrontier.zoo.cards import Card, read_cards
from advfrontier.zoo.fashion import CLASS_NAMES, images_and_labels
from advfrontier.zoo.training import fit, pgd, survivors, total_steps

__all__ = [
    "CLASS_NAMES",
    "MODELS",
    "REFERENCE_RADII",
    "Card",
    "images_and_labels",
    "load",
    "pgd",
    "survivors",
    "train",
]

MODELS: dict[str, Card] = read_cards()

# Where tables report robust accuracy on Fashion-MNIST; the middle or last ones are the radii of the
# training.
REFERENCE_RADII: dict[str, tuple[float, ...]] = {
    "L0": (5.0, 10.0, 20.0),
    "L1": (5.0, 10.0, 15.0),
    "L2": (0.5, 1.1, 1.5),
    "Linf": (0.03, 0.06, 0.1),
}


def find_card(name: str) -> Card:
    """Return the card of a model, or raise; `f3` is F3.

    Args:
        name: Name of a model, F1 to F18.
    """
    key = name.strip().upper()
    if key not in MODELS:
        first, *_, last = MODELS
        raise FrontierError(f"the zoo has no model {name!r}: expected one of {first} to {last}")
    return MODELS[key]


def load(name: str) -> nn.Module:
    """Load a model of the zoo, frozen: images (n, 1, 28, 28) in [0, 1] to logits (n, 10).

    Args:
        name: Name of a model, F1 to F18.
    """
    card = find_card(name)
    model, digest = read_model(card)
    if digest != card.sha256:
        raise FrontierError(
            f"{card.weights} is not the file of this release: expected SHA-256 {card.sha256}; "
            "reinstall advfrontier"
        )
    return model


def read_model(card: Card) -> tuple[nn.Module, str]:
    """Load the model of the stored weights, and return it with the hash of their file.

    Args:
        card: Card of the model, with the digest of its weights.
    """
    content = files("advfrontier.zoo").joinpath("weights", card.weights).read_bytes()
    model = build(card.architecture)
    model.load_state_dict(load_tensors(content))
    return model.eval().requires_grad_(requires_grad=False), hashlib.sha256(content).hexdigest()


def train(
    name: str,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    *,
    progress: bool = True,
) -> Path:
    """Train a model of the zoo again by its recipe, and return the file of weights.

    `out` is that file, if it ends in `.safetensors`, or the folder for it; by default the present
    one. `data_dir` holds the four files of Fashion-MNIST; by default it is where the Debian package
    puts them. A training that was interrupted resumes from its checkpoint, which lies beside the
    weights until they are complete.

    Args:
        name: Name of a model, F1 to F18.
        data_dir: Folder of the four files of Fashion-MNIST; by default the Debian package's.
        out: File or folder of the weights; by default the current folder.
        progress: Whether progress is shown.
    """
    card = find_card(name)
    path = Path() if out is None else Path(out)
    if path.suffix != ".safetensors":
        path = path / card.weights
    images, labels = fashion.read_set("train", data_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = path.with_suffix(".checkpoint")
    total = total_steps(card.recipe, len(images))
    with progress_bar(progress, total, unit="batches", label=f"training {card.name}") as shown:
        model = fit(card.recipe, images, labels, checkpoint, shown)
    save_file(model.state_dict(), path, metadata={"recipe": card.recipe.text()})
    checkpoint.unlink(missing_ok=True)
    return path
