"""The solvers as their papers have them: where each of ours departs, and the switch that takes it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError
from advfrontier.pool.runs import Run
from advfrontier.solvers.alma import Alma
from advfrontier.solvers.apgd_min import ApgdMin
from advfrontier.solvers.ddn import Ddn
from advfrontier.solvers.fab_min import FabMin
from advfrontier.solvers.fmn import Fmn
from advfrontier.solvers.pdgd import Pdgd
from advfrontier.solvers.pdpgd import Pdpgd
from advfrontier.solvers.sigma_zero import SigmaZero
from advfrontier.solvers.sparse_min import SparseMin
from advfrontier.solvers.square_min import SquareMin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advfrontier.solvers.protocol import Solver


@dataclass(frozen=True)
class Departure:
    """One place where an attack's own solver is not the published one."""

    attack: str
    here: str  # what is done here
    published: str  # what the paper does
    parameter: str  # of the solver, and the value that takes it back
    value: Any
    norms: tuple[str, ...]  # where ten classes tell the difference

    @property
    def switch(self) -> str:
        """What to type in Python."""
        return f"{type(OWN[self.attack]).__name__}({self.parameter}={self.value!r})"

    def taken_back(self) -> Solver:
        """The attack's own solver without this one departure."""
        solver: Solver = replace(OWN[self.attack], **{self.parameter: self.value})
        return solver


OWN: dict[str, Any] = {
    f"apgd_min-{loss}": ApgdMin(loss_name=loss) for loss in ApgdMin.facts.losses
} | {
    solver.facts.name: solver
    for solver in (
        Alma(),
        Ddn(),
        FabMin(),
        Fmn(),
        Pdgd(),
        Pdpgd(),
        SigmaZero(),
        SparseMin(),
        SquareMin(),
    )
}  # every attack of this package, with its default hyper-parameters
_STRETCHED = "margins are stretched so that the input's is {} at least"
_CE = (
    "log-odds of logits stretched so that the input's margin is 3 at least",
    "cross-entropy of the logits",
)

DEPARTURES: tuple[Departure, ...] = (
    Departure("alma", "momentum against the box is dropped", "it is kept", "keep_momentum", True, ("L1",)),  # noqa: FBT003
    Departure("alma", "the rate falls to 0.003 of the first", "to 0.01", "rate_decrease", 0.01, ("L1",)),
    Departure(
        "alma", "tolerance added to the ratio; few classes: measured by the input's margin",
        "added to the margin; few classes: bare margin", "loss_name", "plain_dlr_plus", ("L1", "L2"),
    ),
    Departure("apgd_min-ce", *_CE, "loss_name", "plain_ce", ("L1", "L2", "Linf")),
    Departure(
        "apgd_min-dlr", "few classes: measured by the input's margin", "bare difference of logits",
        "loss_name", "plain_dlr", (),
    ),
    Departure("ddn", *_CE, "loss_name", "plain_ce", ("L2",)),
    Departure("ddn", "points are not rounded", "rounded to 8 bits", "levels", 256, ("L2",)),
    Departure("fmn", "step length 10 in ℓ∞", "1", "alpha", 1.0, ("Linf",)),
    Departure(
        "fmn", "the radius grows by 1 + γ at least before the first success", "it is the estimate alone",
        "strict", True, ("L1", "L2", "Linf"),  # noqa: FBT003
    ),
    Departure(
        "fmn", "what the box leaves of the step is taken at full length", "the step is cut by the box",
        "plain_step", True, ("L0", "L1", "L2", "Linf"),  # noqa: FBT003
    ),
    Departure("pdgd", _STRETCHED.format(2), "they are not", "least_margin", 0.0, ("L2",)),
    Departure("pdpgd", _STRETCHED.format(1), "they are not", "least_margin", 0.0, ("L0", "L1", "L2", "Linf")),
    Departure("pdpgd", "dual rate 0.07 in ℓ∞", "0.1", "dual_rate", 0.1, ("Linf",)),
    Departure(
        "pdpgd", "ℓ0: the proximal step is the least of both minima", "the one that is not 0, wherever it exists",
        "local_minimum", True, ("L0",),  # noqa: FBT003
    ),
    Departure("sigma_zero", "σ = 5e-4", "1e-3", "sigma", 1e-3, ("L0",)),
)  # fmt: skip


PUBLISHED: Mapping[str, Solver] = {
    attack: replace(
        OWN[attack], **{each.parameter: each.value for each in DEPARTURES if each.attack == attack}
    )
    for attack in sorted(OWN)
    if "paper" in OWN[attack].facts.pools
}


def check_published(runs: Iterable[str]) -> None:
    """Refuse runs of solvers that no paper has: they would stand among published ones unnoticed."""
    if others := sorted({Run.parse(run).attack for run in runs} - set(PUBLISHED)):
        raise FrontierError(
            f"{', '.join(others)}: searches of this package, which no paper has; expected runs of "
            f"{', '.join(PUBLISHED)} only. Type --ensemble paper-4k or --pool paper beside --published, or leave it out"
        )
