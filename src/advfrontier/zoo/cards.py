"""The cards of the models: what they are, how they were trained, what was measured on them. Needs no torch."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files

from advfrontier.zoo.recipes import Recipe

FILE = "cards.toml"
PGD_STEPS = 50
UNION = "union"


@dataclass(frozen=True)
class Card:
    """One model. Accuracies are shares of the 1000 embedded images; those under attack are by norm, at `radii`."""

    name: str
    title: str
    split: str  # "train" or "held-out": whether ensembles may be fitted to the model; "exact" for neither
    recipe: Recipe
    # From here on measured on the stored weights by scripts/zoo_measure.py; the defaults are those of a new recipe.
    clean_accuracy: float = math.nan
    pgd_accuracy: dict[str, float] = field(default_factory=dict)  # under PGD of 50 steps; empty if not adversarial
    plain_accuracy: dict[str, float] = field(default_factory=dict)  # of the plain model F1 under the same attacks
    parameters: int = 0
    minutes: float = math.nan  # of one core, to train it
    sha256: str = ""  # of the file of weights

    @property
    def architecture(self) -> str:
        """The key of `architectures.ARCHITECTURES`."""
        return self.recipe.architecture

    @property
    def radii(self) -> dict[str, float]:
        """Norm → radius of the training; none if it was not adversarial."""
        return self.recipe.radii

    @property
    def norm(self) -> str | None:
        """The norm of the training, `union` for several, None for none."""
        return UNION if len(self.radii) > 1 else next(iter(self.radii), None)

    @property
    def radius(self) -> float | None:
        """The radius of the training in its one norm; None for several and for none."""
        return next(iter(self.radii.values())) if len(self.radii) == 1 else None

    @property
    def weights(self) -> str:
        """Name of the file of weights."""
        return f"{self.name}.safetensors"


def read_cards() -> dict[str, Card]:
    """All cards, in order."""
    table = tomllib.loads(files("advfrontier.zoo").joinpath(FILE).read_text(encoding="utf-8"))
    return {
        name: Card(name, entry["title"], entry["split"], Recipe(**entry["recipe"]), **entry.get("measured", {}))
        for name, entry in table.items()
    }
