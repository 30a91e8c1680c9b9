"""Names of runs: `fmn`, `apgd_min-dlr`, `sigma_zero:restart3`, `alma:target2`.

And the rules C between the runs of an ensemble: (i) a target gets no more queries than the likelier
target before it; (ii) a restart gets queries only if its base run does. Both are closed under the
component-wise maximum, so raising runs never breaks an ensemble that was feasible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from advfrontier.errors import FrontierError

Variant = Literal["base", "restart", "target"]

_NAME = re.compile(
    r"(?P<solver>[a-z0-9_]+)(-(?P<loss>[a-z0-9]+))?"
    r"(:(?P<variant>restart|target)(?P<index>[1-9][0-9]{0,3}))?"
)


@dataclass(frozen=True)
class Run:
    """Solver with a loss (where it has a choice) and a variant: base run, restart or target."""

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
        variant = cast("Variant", match["variant"] or "base")
        return cls(match["solver"], match["loss"] or "", variant, int(match["index"] or 0))

    @property
    def attack(self) -> str:
        """Return the solver with its loss, which all variants of a run share."""
        return f"{self.solver}-{self.loss}" if self.loss else self.solver

    @property
    def base(self) -> Run:
        """Return the base run of the same attack."""
        return Run(self.solver, self.loss)

    def __str__(self) -> str:
        return (
            self.attack
            if self.variant == "base"
            else f"{self.attack}:{self.variant}{self.index or ''}"
        )


def closure(run: Run, level: int, *, smallest: int) -> dict[Run, int]:
    """Return the least queries that other runs must have before `run` may have `level`."""
    if run.variant == "target":
        return {Run(run.solver, run.loss, "target", k): level for k in range(1, run.index)}
    return {run.base: smallest} if run.variant == "restart" else {}
