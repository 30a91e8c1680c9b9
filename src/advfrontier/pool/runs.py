"""The names of runs: `fmn`, `apgd_min-dlr`, `sigma_zero:restart3`, `alma:target2`; and `fmn:polish` in a race."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from advfrontier.errors import FrontierError

Variant = Literal["base", "restart", "target", "polish"]

_NAME = re.compile(
    r"(?P<solver>[a-z0-9_]+)(-(?P<loss>[a-z0-9]+))?"
    r"(:((?P<variant>restart|target)(?P<index>[1-9][0-9]{0,3})|(?P<polish>polish)))?"
)


@dataclass(frozen=True)
class Run:
    """A solver with a loss (where it has a choice) and a variant: the base run, a restart, a target, or polishing."""

    solver: str
    loss: str = ""
    variant: Variant = "base"
    index: int = 0

    @classmethod
    def parse(cls, name: str) -> Run:
        """Read a run's name."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise FrontierError(
                f"{name!r} does not name a run: "
                "expected SOLVER[-LOSS][:restartN|:targetN], such as apgd_min-dlr:restart3"
            )
        variant: Variant = "base"
        if match["variant"] == "restart":
            variant = "restart"
        elif match["variant"] == "target":
            variant = "target"
        elif match["polish"]:
            variant = "polish"
        return cls(match["solver"], match["loss"] or "", variant, int(match["index"] or 0))

    @property
    def attack(self) -> str:
        """The solver with its loss: what all variants of a run share."""
        return f"{self.solver}-{self.loss}" if self.loss else self.solver

    @property
    def base(self) -> Run:
        """The base run of the same attack."""
        return Run(self.solver, self.loss)

    def __str__(self) -> str:
        return self.attack if self.variant == "base" else f"{self.attack}:{self.variant}{self.index or ''}"
