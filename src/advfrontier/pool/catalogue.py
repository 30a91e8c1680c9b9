"""The solvers and their facts, and the pools they make: the paper's table of attacks."""

from __future__ import annotations

from dataclasses import dataclass

from advfrontier.errors import FrontierError
from advfrontier.pool.runs import Run
from advfrontier.threat.names import norm_name

RESTARTS = 5  # per attack that takes them: seeds 43 to 47 beside the base run's 42
TARGETS = 9  # at most: the likeliest wrong classes
CHECKPOINT = 10  # distances are recorded every so many queries, so a run is never cut finer
MAX_QUERIES = 1000  # what one run may spend: the horizon that shapes every schedule

BLACK_BOX = "black-box"  # the pool of all runs that use no gradient
POOLS = ("paper", "extended", BLACK_BOX)


@dataclass(frozen=True)
class SolverFacts:
    """What a solver declares about itself, so that pools can be drawn up without running it."""

    name: str
    norms: tuple[str, ...]
    losses: tuple[str, ...] = ("",)  # the choices offered; "" where the solver has its own
    restarts: bool = True
    targets: bool = True
    step_queries: int = 2  # a forward and a backward; 1 for a black-box solver
    pools: tuple[str, ...] = ("paper", "extended")


CATALOGUE: dict[str, SolverFacts] = {
    facts.name: facts
    for facts in (
        SolverFacts("sigma_zero", ("L0",)),
        SolverFacts("pdpgd", ("L0", "L1", "L2", "Linf")),
        SolverFacts("pdgd", ("L2",)),
        SolverFacts("fmn", ("L0", "L1", "L2", "Linf")),
        SolverFacts("apgd_min", ("L1", "L2", "Linf"), losses=("ce", "dlr")),
        SolverFacts("alma", ("L1", "L2"), restarts=False),
        SolverFacts("ddn", ("L2",), restarts=False),
        SolverFacts("fab_min", ("L1", "L2", "Linf"), pools=("extended",)),
        SolverFacts("square_min", ("L1", "L2", "Linf"), targets=False, step_queries=1, pools=("extended",)),
        SolverFacts("sparse_min", ("L0",), targets=False, step_queries=1, pools=("extended",)),
    )
}


def facts_of(solver: str) -> SolverFacts | None:
    """The facts of a solver, also of one that another package brings."""
    if solver not in CATALOGUE:
        _discover()
    return CATALOGUE.get(solver)


def _discover() -> None:
    from advfrontier.pool.plugins import discover  # noqa: PLC0415  # which enters what it finds into the catalogue

    discover()


def variants(facts: SolverFacts, loss: str, classes: int) -> tuple[Run, ...]:
    """Base run, restarts and targets of one attack, in that order."""
    restarts = range(1, RESTARTS + 1) if facts.restarts else ()
    targets = range(1, min(TARGETS, classes - 1) + 1) if facts.targets else ()
    return (
        Run(facts.name, loss),
        *(Run(facts.name, loss, "restart", k) for k in restarts),
        *(Run(facts.name, loss, "target", k) for k in targets),
    )


def pool(norm: str, *, classes: int = 10, name: str = "paper") -> tuple[Run, ...]:
    """Every run of a pool in one norm; with few classes there are fewer targets."""
    if name not in POOLS:
        raise FrontierError(f"unknown pool {name!r}: expected one of {', '.join(POOLS)}")
    norm = norm_name(norm)
    if name != "paper":
        _discover()
    members = [
        facts
        for facts in CATALOGUE.values()
        if norm in facts.norms and (facts.step_queries == 1 if name == BLACK_BOX else name in facts.pools)
    ]
    return tuple(run for facts in members for loss in facts.losses for run in variants(facts, loss, classes))


def check_run(run: Run, norm: str, classes: int = TARGETS + 1) -> SolverFacts:
    """Return the facts of the run's solver, or say why there is no such run."""
    facts = facts_of(run.solver)
    if facts is None:
        raise FrontierError(f"unknown solver in run {run}: expected one of {', '.join(CATALOGUE)}")
    if norm not in facts.norms:
        raise FrontierError(f"{run} does not run in {norm}: {facts.name} takes {', '.join(facts.norms)}")
    if run.loss not in facts.losses:
        options = ", ".join(f"{facts.name}-{loss}" if loss else facts.name for loss in facts.losses)
        raise FrontierError(f"{run} does not name a loss of {facts.name}: expected {options}")
    possible = variants(facts, run.loss, classes)
    if run not in possible:
        known = ", ".join(str(option) for option in possible)
        raise FrontierError(f"there is no run {run} with {classes} classes: expected one of {known}")
    return facts
