"""Solvers of other packages, found by entry points.

A package that declares

    [project.entry-points."advfrontier.solvers"]
    my_solver = "my_package:MySolver"

adds a solver under that name: a class with `facts` that keeps the contract of `solvers.protocol`, made without
arguments, or with `loss_name=…` where its facts offer several losses.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import CATALOGUE, SolverFacts
from advfrontier.pool.runs import Run
from advfrontier.threat.names import norm_name

GROUP = "advfrontier.solvers"
REGISTERED: dict[str, Any] = {}  # by attack name: the solvers that were registered in this process


@cache
def discover() -> dict[str, Any]:
    """Load what is installed, once, and register it; return the solvers by attack name."""
    found: dict[str, Any] = {}
    try:
        for entry in entry_points(group=GROUP):
            found |= _load(entry)
    except FrontierError:
        for attack in found:  # or a second try would find them there already, and blame them
            CATALOGUE.pop(Run.parse(attack).solver, None)
        raise
    return found


def register(solver: Any) -> dict[str, Any]:
    """Make a solver known by its name to `trace` and `evaluate` in this process, and in the workers they start.

    The paper's pool stays the paper's: it joins the extended one. Registered once more, it takes its own place.

    Args:
        solver: A class with `facts`, made without arguments, or with `loss_name=…` where its facts offer several
            losses; or a solver, with parameters of your choice, which is copied with each `loss_name` likewise.
    """
    made = _enter(solver)
    REGISTERED.update(made)
    return made


def _enter(solver: Any, name: str | None = None) -> dict[str, Any]:
    """Enter a solver into the catalogue; return it by attack name, made anew for every loss where it offers several."""
    facts = _checked(getattr(solver, "facts", None), name)
    made = {}
    for loss in facts.losses:
        options = {"loss_name": loss} if len(facts.losses) > 1 else {}
        made[Run(facts.name, loss).attack] = solver(**options) if isinstance(solver, type) else _with(solver, options)
    CATALOGUE[facts.name] = replace(facts, pools=tuple(pool for pool in facts.pools if pool != "paper"))
    return made


def _load(entry: EntryPoint) -> dict[str, Any]:
    origin = entry.dist.name if entry.dist is not None else "an unknown package"
    try:
        return _enter(entry.load(), entry.name)
    except Exception as error:
        raise FrontierError(
            f"plug-in {entry.name} ({entry.value} of {origin}) cannot be used: {type(error).__name__}: {error}; "
            f"repair it, or type pip uninstall {origin}"
        ) from error


def _with(solver: Any, options: dict[str, str]) -> Any:
    return replace(solver, **options) if options else solver


def _checked(facts: Any, name: str | None) -> SolverFacts:
    if not isinstance(facts, SolverFacts) or (name or facts.name) != facts.name:
        raise FrontierError(f"the solver's facts are {facts}: expected SolverFacts({name or 'NAME'!r}, …)")
    own = name is None and any(Run.parse(attack).solver == facts.name for attack in REGISTERED)
    if facts.name in CATALOGUE and not own:
        raise FrontierError(f"there is a solver {facts.name} already: expected another name")
    if facts.step_queries not in {1, 2} or not facts.norms or any(norm_name(norm) != norm for norm in facts.norms):
        raise FrontierError(f"the solver's facts are {facts}: expected 1 or 2 queries per step, and norms such as 'L2'")
    for loss in facts.losses:
        Run.parse(str(Run(facts.name, loss)))
    return facts
