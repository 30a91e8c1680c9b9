"""Cards of the models: architecture, training and measured accuracies; without torch."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict, dataclass, field
from importlib.resources import files

from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name

METHODS = ("plain", "noise", "pgd", "union", "trades", "fast")


@dataclass(frozen=True)
class Recipe:
    """Everything that training depends on besides the data."""

    architecture: str
    method: str  # one of METHODS
    seed: int
    epochs: int
    radii: dict[str, float] = field(
        default_factory=dict
    )  # norm → radius; none if not adversarially trained
    steps: int = 0  # of PGD
    rate: float = 2e-3  # AdamW's highest learning rate
    decay: float = 1e-4  # AdamW's weight decay
    batch: int = 100
    sigma: float = 0.0  # of Gaussian noise
    beta: float = 0.0  # weight of the TRADES term

    def __post_init__(self) -> None:
        wanted = {"plain": (0,), "noise": (0,), "union": (2, 3, 4)}.get(self.method, (1,))
        if self.method not in METHODS or len(self.radii) not in wanted:
            raise FrontierError(
                f"a recipe of method {self.method!r} with {len(self.radii)} radii: expected one "
                f"of {', '.join(METHODS)}, with several radii for union, one for the other "
                "adversarial ones, else none"
            )
        object.__setattr__(
            self, "radii", {norm_name(norm): float(r) for norm, r in self.radii.items()}
        )

    def words(self) -> str:
        """Describe the recipe in one or two sentences."""
        balls = ", ".join(f"{norm} radius {radius:g}" for norm, radius in self.radii.items())
        how = {
            "plain": "Cross-entropy on clean images",
            "noise": f"Cross-entropy on images with Gaussian noise of spread {self.sigma:g}, "
            "clipped to the box",
            "pgd": f"Cross-entropy on adversarial images of {self.steps}-step PGD ({balls})",
            "union": f"Cross-entropy on adversarial images of {self.steps}-step PGD, the norm "
            "changing from batch to "
            f"batch ({balls})",
            "trades": f"TRADES: cross-entropy on clean images plus {self.beta:g} times the "
            "Kullback-Leibler divergence "
            f"to {self.steps}-step PGD images ({balls})",
            "fast": "Cross-entropy on images one signed step of 1.25 radii from a random start "
            f"({balls})",
        }[self.method]
        ramp = "; the radius grows over the first quarter" if self.radii else ""
        return (
            f"{how}{ramp}. {self.epochs} epochs of 60 000 images in batches of {self.batch}, "
            f"AdamW, learning rate up to {self.rate:g} over the first quarter and down to 0, "
            f"weight decay {self.decay:g}, seed {self.seed}."
        )

    def text(self) -> str:
        """Return the recipe as text, the same for the same recipe."""
        return json.dumps(asdict(self), sort_keys=True)


FILE = "cards.toml"
PGD_STEPS = 50


@dataclass(frozen=True)
class Card:
    """Card of one model; accuracies are shares of the 1000 images, under attack at `radii`."""

    name: str
    title: str
    # "train" or "held-out": whether ensembles may be fitted to the model; "exact" for neither.
    split: str
    recipe: Recipe
    # From here on measured on the stored weights by scripts/zoo_measure.py; the defaults are those
    # of a new recipe.
    clean_accuracy: float = math.nan
    pgd_accuracy: dict[str, float] = field(
        default_factory=dict
    )  # under PGD of 50 steps; empty if not adversarial
    plain_accuracy: dict[str, float] = field(
        default_factory=dict
    )  # of the plain model F1 under the same attacks
    parameters: int = 0
    minutes: float = math.nan  # of one core, to train it
    sha256: str = ""  # of the file of weights

    @property
    def architecture(self) -> str:
        """Return the key of `architectures.ARCHITECTURES`."""
        return self.recipe.architecture

    @property
    def radii(self) -> dict[str, float]:
        """Norm → radius of the training; none if it was not adversarial."""
        return self.recipe.radii

    @property
    def norm(self) -> str | None:
        """Return the norm of the training, `union` for several, None for none."""
        return "union" if len(self.radii) > 1 else next(iter(self.radii), None)

    @property
    def radius(self) -> float | None:
        """Return the radius of the training in its one norm; None for several and for none."""
        return next(iter(self.radii.values())) if len(self.radii) == 1 else None

    @property
    def weights(self) -> str:
        """Name of the file of weights."""
        return f"{self.name}.safetensors"


def read_cards() -> dict[str, Card]:
    """All cards, in order."""
    table = tomllib.loads(files("advfrontier.zoo").joinpath(FILE).read_text(encoding="utf-8"))
    return {
        name: Card(
            name,
            entry["title"],
            entry["split"],
            Recipe(**entry["recipe"]),
            **entry.get("measured", {}),
        )
        for name, entry in table.items()
    }
