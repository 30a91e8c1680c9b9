"""Solvers, one file each, and the contract between a solver and the engine."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import CATALOGUE, facts_of
from advfrontier.solvers.alma import ALMA
from advfrontier.solvers.apgd_min import APGDMin
from advfrontier.solvers.ddn import DDN
from advfrontier.solvers.fab_min import FABMin
from advfrontier.solvers.fmn import FMN
from advfrontier.solvers.pdgd import PDGD
from advfrontier.solvers.pdpgd import PDPGD
from advfrontier.solvers.protocol import Answer, Problem, Solver
from advfrontier.solvers.prune import Prune
from advfrontier.solvers.published import DEPARTURES, PUBLISHED, Departure, check_published
from advfrontier.solvers.sigma_zero import SigmaZero
from advfrontier.solvers.sparse_min import SparseMin
from advfrontier.solvers.square_min import SquareMin

if TYPE_CHECKING:
    from advfrontier.pool import Run, SolverFacts

__all__ = [
    "ALMA",
    "DDN",
    "DEPARTURES",
    "FMN",
    "PDGD",
    "PDPGD",
    "PUBLISHED",
    "APGDMin",
    "Answer",
    "Departure",
    "FABMin",
    "Problem",
    "Prune",
    "SigmaZero",
    "Solver",
    "SparseMin",
    "SquareMin",
    "check_published",
    "solver_of",
]


def solver_of(run: Run) -> Solver:
    """Return the solver of a run with its default hyper-parameters; also a plug-in's.

    Args:
        run: The run. Its variant does not matter: restarts and targets use the same solver.
    """
    facts = facts_of(run.solver)
    if facts is None:
        raise FrontierError(f"unknown solver in run {run}: expected one of {', '.join(CATALOGUE)}")
    return _make(facts, run.loss)


@cache
def _make(facts: SolverFacts, loss: str) -> Solver:
    """Return an instance of the class that the catalogue names, for one of its losses."""
    solver = _load(facts.solver, facts.name) if isinstance(facts.solver, str) else facts.solver
    return cast("Solver", solver(loss_name=loss) if loss else solver())


def _load(place: str, name: str) -> type:
    """Return the class that `module:Class` names."""
    module, _, attribute = place.partition(":")
    try:
        return cast("type", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise FrontierError(
            f"the solver {name} is registered as {place}, which cannot be imported ({error}): "
            "expected module:Class of an installed package"
        ) from error
