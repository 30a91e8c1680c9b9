"""The solvers: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from advfrontier.pool.plugins import REGISTERED, discover
from advfrontier.solvers.alma import Alma
from advfrontier.solvers.apgd_min import ApgdMin
from advfrontier.solvers.ddn import Ddn
from advfrontier.solvers.fab_min import FabMin
from advfrontier.solvers.fmn import Fmn
from advfrontier.solvers.pdgd import Pdgd
from advfrontier.solvers.pdpgd import Pdpgd
from advfrontier.solvers.protocol import Answer, Problem, Solver
from advfrontier.solvers.published import DEPARTURES, OWN, PUBLISHED, Departure, check_published
from advfrontier.solvers.sigma_zero import SigmaZero
from advfrontier.solvers.sparse_min import SparseMin
from advfrontier.solvers.square_min import SquareMin

if TYPE_CHECKING:
    from advfrontier.pool import Run

__all__ = [
    "DEPARTURES",
    "PUBLISHED",
    "Alma",
    "Answer",
    "ApgdMin",
    "Ddn",
    "Departure",
    "FabMin",
    "Fmn",
    "Pdgd",
    "Pdpgd",
    "Problem",
    "SigmaZero",
    "Solver",
    "SparseMin",
    "SquareMin",
    "check_published",
    "solver_of",
]


def solver_of(run: Run) -> Solver:
    """The solver of a run, with its default hyper-parameters; also one that was registered."""
    solver = OWN.get(run.attack) or REGISTERED.get(run.attack) or discover()[run.attack]
    return cast("Solver", solver)
