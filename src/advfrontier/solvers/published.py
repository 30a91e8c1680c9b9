"""The solvers as their papers have them, to see what the departures are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.solvers.alma import Alma
from advfrontier.solvers.apgd_min import ApgdMin
from advfrontier.solvers.ddn import Ddn
from advfrontier.solvers.fmn import Fmn
from advfrontier.solvers.pdgd import Pdgd
from advfrontier.solvers.pdpgd import Pdpgd
from advfrontier.solvers.sigma_zero import SigmaZero

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advfrontier.solvers.protocol import Solver

PUBLISHED: Mapping[str, Solver] = {
    "alma": Alma(rate_decrease=0.01, keep_momentum=True),
    "apgd_min-ce": ApgdMin(loss_name="plain_ce"),
    "ddn": Ddn(loss_name="plain_ce"),
    "fmn": Fmn(alpha=1.0, strict=True),
    "pdgd": Pdgd(least_margin=0.0),
    "pdpgd": Pdpgd(least_margin=0.0, dual_rate=0.1),
    "sigma_zero": SigmaZero(sigma=1e-3),
}
