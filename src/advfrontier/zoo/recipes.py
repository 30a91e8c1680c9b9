"""What a model of the zoo is made of: architecture, method, radii and numbers, and the same in words."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from advfrontier.errors import FrontierError
from advfrontier.threat.names import norm_name

Method = Literal["plain", "noise", "pgd", "union", "trades", "fast"]
METHODS: tuple[Method, ...] = ("plain", "noise", "pgd", "union", "trades", "fast")


@dataclass(frozen=True)
class Recipe:
    """Everything that training depends on besides the data."""

    architecture: str
    method: Method
    seed: int
    epochs: int
    radii: dict[str, float] = field(default_factory=dict)  # norm → radius; none if not adversarially trained
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
                f"a recipe of method {self.method!r} with {len(self.radii)} radii: expected one of "
                f"{', '.join(METHODS)}, with several radii for union, one for the other adversarial ones, else none"
            )
        object.__setattr__(self, "radii", {norm_name(norm): float(r) for norm, r in self.radii.items()})

    def words(self) -> str:
        """The recipe in one or two sentences."""
        balls = ", ".join(f"{norm} radius {radius:g}" for norm, radius in self.radii.items())
        how = {
            "plain": "Cross-entropy on clean images",
            "noise": f"Cross-entropy on images with Gaussian noise of spread {self.sigma:g}, clipped to the box",
            "pgd": f"Cross-entropy on adversarial images of {self.steps}-step PGD ({balls})",
            "union": f"Cross-entropy on adversarial images of {self.steps}-step PGD, the norm changing from batch to "
            f"batch ({balls})",
            "trades": f"TRADES: cross-entropy on clean images plus {self.beta:g} times the Kullback-Leibler divergence "
            f"to {self.steps}-step PGD images ({balls})",
            "fast": f"Cross-entropy on images one signed step of 1.25 radii from a random start ({balls})",
        }[self.method]
        ramp = "; the radius grows over the first quarter" if self.radii else ""
        return (
            f"{how}{ramp}. {self.epochs} epochs of 60 000 images in batches of {self.batch}, AdamW, learning rate up "
            f"to {self.rate:g} over the first quarter and down to 0, weight decay {self.decay:g}, seed {self.seed}."
        )

    def text(self) -> str:
        """The recipe as text, the same for the same recipe."""
        return json.dumps(asdict(self), sort_keys=True)
