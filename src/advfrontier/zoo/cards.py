"""Cards of the models: architecture, training and measured accuracies; without torch."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict, dataclass, field
from importlib.resources import files

from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name

METHODS = ("plain", "noise", "pgd", "union", "trades", "fast", "calibrated")


@dataclass(frozen=True)
class Recipe:
    """Everything that training depends on besides the data.

    Args:
        architecture: Key of `architectures.ARCHITECTURES`.
        method: One of `METHODS`.
        seed: Random seed of parameters, batches and noise.
        epochs: Passes over the training images.
        radii: Norm to radius; empty without adversarial training.
        steps: Steps of PGD.
        rate: Highest learning rate of AdamW.
        decay: Weight decay of AdamW.
        batch: Images per batch.
        sigma: Standard deviation of Gaussian noise.
        beta: Weight of the TRADES term.
        rho: Power by which calibrated training lowers the confidence.
    """

    architecture: str
    method: str
    seed: int
    epochs: int
    radii: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    rate: float = 2e-3
    decay: float = 1e-4
    batch: int = 100
    sigma: float = 0.0
    beta: float = 0.0
    rho: float = 0.0

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
            "calibrated": "Confidence-calibrated: half of each batch is clean, the other half "
            f"moves by {self.steps}-step PGD to where another class is most confident ({balls}, "
            "times a random share), and its target from the label towards equal probabilities, "
            f"by the power {self.rho:g} of the share of the radius that is left",
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
    """Card of one model; accuracies are shares of the 1000 images, under attack at `radii`.

    Args:
        name: Name, F1 to F18.
        title: One line for tables.
        split: `train` if ensembles may be learned on the model, `held-out` if not; `exact` or
            `detector` for models outside the benchmark.
        recipe: Recipe that trained it.
        clean_accuracy: Accuracy on the 1000 embedded images.
        pgd_accuracy: Norm to accuracy under 50 steps of PGD at the recipe's radius; empty without
            adversarial training.
        plain_accuracy: The same accuracies of the plain model F1.
        parameters: Number of parameters.
        minutes: Minutes of training on one core.
        sha256: SHA-256 of the file of weights.
    """

    name: str
    title: str
    split: str
    recipe: Recipe
    clean_accuracy: float = math.nan
    pgd_accuracy: dict[str, float] = field(default_factory=dict)
    plain_accuracy: dict[str, float] = field(default_factory=dict)
    parameters: int = 0
    minutes: float = math.nan
    sha256: str = ""

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
