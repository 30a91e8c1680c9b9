"""Solvers of other packages and of users, registered as the built-in ones are.

A package that declares

    [project.entry-points."advfrontier.solvers"]
    my_solver = "my_package:FACTS"

adds the solver that FACTS, a `SolverFacts`, describes. `register(FACTS)` does the same for a script
or a notebook.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import ANY, BUILT_IN, CATALOGUE, SolverFacts
from advfrontier.pool.runs import Run
from advfrontier.threat.names import norm_name

GROUP = "advfrontier.solvers"


def register(facts: SolverFacts) -> SolverFacts:
    """Add a solver to the catalogue of this process and of the workers it starts.

    A plug-in registered again replaces itself. The paper's pool stays the paper's: the solver
    joins the extended one.

    Args:
        facts: Name, class, norms and losses of the solver.
    """
    checked = _checked(facts)
    CATALOGUE[checked.name] = checked
    return checked


@cache
def discover() -> None:
    """Register the solvers of installed packages, once."""
    added: list[str] = []
    try:
        for entry in entry_points(group=GROUP):
            added.append(_load(entry).name)
    except FrontierError:
        for name in added:  # or a second try would find them registered
            CATALOGUE.pop(name, None)
        raise


def _load(entry: EntryPoint) -> SolverFacts:
    origin = entry.dist.name if entry.dist is not None else "an unknown package"
    try:
        facts = _checked(entry.load())
        if facts.name != entry.name:
            raise FrontierError(f"its facts name {facts.name}: expected {entry.name}")
        if facts.name in CATALOGUE:
            raise FrontierError(f"there is a solver {facts.name} already: expected another name")
    except Exception as error:
        raise FrontierError(
            f"plug-in {entry.name} ({entry.value} of {origin}) cannot be used: "
            f"{type(error).__name__}: {error}; repair it, or type pip uninstall {origin}"
        ) from error
    CATALOGUE[facts.name] = facts
    return facts


def _checked(facts: Any) -> SolverFacts:
    """Return the facts of a plug-in; raise if they are not those of a solver."""
    if not isinstance(facts, SolverFacts):
        raise FrontierError(
            f"{facts!r} does not describe a solver: expected "
            'SolverFacts("my_solver", "my_package:MySolver", norms=("L2",))'
        )
    if facts.name in BUILT_IN:
        raise FrontierError(f"there is a solver {facts.name} already: expected another name")
    if facts.step_queries not in {1, 2}:
        raise FrontierError(
            f"{facts.name} spends {facts.step_queries} queries per step: expected 1 or 2"
        )
    if not facts.norms:
        raise FrontierError(f"{facts.name} runs in no norm: expected some, such as ('L2',)")
    if facts.norms != ANY:
        for norm in facts.norms:
            if norm_name(norm) != norm:
                raise FrontierError(f"{facts.name} names {norm}: expected {norm_name(norm)}")
    for loss in facts.losses:
        Run.parse(str(Run(facts.name, loss)))
    return replace(facts, pools=tuple(pool for pool in facts.pools if pool != "paper"))
