"""Solvers and their facts, and the pools they make: the paper's table of attacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from advfrontier.errors import FrontierError
from advfrontier.pool.runs import Run, parse_external
from advfrontier.threat.names import norm_name

RESTARTS = 5  # per attack that takes them: seeds 43 to 47 beside the base run's 42
TARGETS = 9  # at most: the likeliest wrong classes, or of many the nearest
CHECKPOINT = 10  # distances are recorded every 10 queries, so a run is never cut finer
MAX_QUERIES = 1000  # what one run may spend: the horizon that shapes every schedule

BLACK_BOX = "black-box"  # the pool of all runs that use no gradient
POOLS = ("paper", "extended", BLACK_BOX)

# Attacks of other libraries that use no gradient, by how their names begin.
_WITHOUT_GRADIENTS = {
    "foolbox": (
        "BinarySearchContrast",
        "Boundary",
        "Gen",
        "GaussianBlur",
        "HopSkipJump",
        "InversionAttack",
        "L2AdditiveGaussian",
        "L2AdditiveUniform",
        "L2ClippingAware",
        "L2ContrastReduction",
        "L2Repeated",
        "LinearSearch",
        "LInfAdditive",
        "LinfAdditive",
        "LinfRepeated",
        "Pointwise",
        "SaltAndPepper",
        "SpatialAttack",
    ),
    "torchattacks": ("GN", "OnePixel", "Pixle", "SPSA", "Square"),
    "art": ("BoundaryAttack", "GeoDA", "HopSkipJump", "PixelAttack", "SignOPT", "Square", "Zoo"),
    "secmlt": ("Additive", "Boundary", "Contrast", "HopSkip", "SaltAndPepper"),
}


@dataclass(frozen=True)
class SolverFacts:
    """Catalogue's entry of a solver: all that pools and ensembles need without running it.

    Args:
        name: Name of the solver, as in the run `NAME-LOSS:restart1`.
        solver: Its class as `module:Class`; a solver of a notebook may be the class itself.
        norms: Norms it runs in; `ANY` for every norm that is registered.
        losses: Losses that the class takes as `loss_name=…`; a single empty name if the solver has
            its own loss.
        restarts: Whether it takes random starting points.
        targets: Whether it can be run towards a class.
        step_queries: 2 for a forward and a backward pass per step, 1 for a black-box solver.
        pools: Pools that the attack is a member of; plug-ins join `extended`.
    """

    name: str
    solver: str | type
    norms: tuple[str, ...]
    losses: tuple[str, ...] = ("",)
    restarts: bool = True
    targets: bool = True
    step_queries: int = 2
    pools: tuple[str, ...] = ("extended",)

    def runs_in(self, norm: str) -> bool:
        """Tell whether the solver runs in a norm.

        Args:
            norm: Name of the norm.
        """
        return self.norms == ANY or norm in self.norms


ANY = ("*",)
_PAPER = ("paper", "extended")
_L0 = ("L0", "L0pixel")
_L12 = ("L1", "L2")
_L12INF = ("L1", "L2", "Linf")
_BUILT_IN = (
    SolverFacts("sigma_zero", "advfrontier.solvers.sigma_zero:SigmaZero", _L0, pools=_PAPER),
    SolverFacts("pdpgd", "advfrontier.solvers.pdpgd:PDPGD", ANY, pools=_PAPER),
    SolverFacts("pdgd", "advfrontier.solvers.pdgd:PDGD", ("L2",), pools=_PAPER),
    SolverFacts("fmn", "advfrontier.solvers.fmn:FMN", ANY, pools=_PAPER),
    SolverFacts(
        "apgd_min",
        "advfrontier.solvers.apgd_min:APGDMin",
        _L12INF,
        losses=("ce", "dlr"),
        pools=_PAPER,
    ),
    SolverFacts("alma", "advfrontier.solvers.alma:ALMA", _L12, restarts=False, pools=_PAPER),
    SolverFacts("ddn", "advfrontier.solvers.ddn:DDN", ("L2",), restarts=False, pools=_PAPER),
    SolverFacts("fab_min", "advfrontier.solvers.fab_min:FABMin", _L12INF),
    SolverFacts(
        "square_min",
        "advfrontier.solvers.square_min:SquareMin",
        _L12INF,
        targets=False,
        step_queries=1,
    ),
    SolverFacts(
        "sparse_min",
        "advfrontier.solvers.sparse_min:SparseMin",
        _L0,
        targets=False,
        step_queries=1,
    ),
    SolverFacts("prune", "advfrontier.solvers.prune:Prune", _L0, restarts=False),
)
CATALOGUE: dict[str, SolverFacts] = {facts.name: facts for facts in _BUILT_IN}
BUILT_IN = frozenset(CATALOGUE)


def facts_of(solver: str) -> SolverFacts | None:
    """Return the facts of a solver, also of a plug-in or an external run; None if unknown.

    Args:
        solver: Name of the solver.
    """
    if (external := parse_external(solver)) is not None:
        return _external_facts(str(external), external.origin, external.attack)
    if solver not in CATALOGUE:
        _discover()
    return CATALOGUE.get(solver)


@cache
def _external_facts(name: str, origin: str, attack: str) -> SolverFacts:
    """Return the facts of an external run: it has no variants, and its attack judges the norm."""
    black_box = attack.startswith(_WITHOUT_GRADIENTS.get(origin, ()))
    return SolverFacts(
        name=name,
        solver="advfrontier.attacks.external:ExternalAttack",
        norms=ANY,
        restarts=False,
        targets=False,
        step_queries=1 if black_box else 2,
        pools=(),
    )


def _discover() -> None:
    from advfrontier.pool.plugins import discover  # noqa: PLC0415  # which enters what it finds into the catalogue

    discover()


def variants(facts: SolverFacts, loss: str, classes: int) -> tuple[Run, ...]:
    """Return the base run, restarts and targets of one attack, in that order.

    Args:
        facts: Facts of the solver.
        loss: Name of the loss.
        classes: Number of classes.
    """
    restarts = range(1, RESTARTS + 1) if facts.restarts else ()
    targets = range(1, min(TARGETS, classes - 1) + 1) if facts.targets else ()
    return (
        Run(facts.name, loss),
        *(Run(facts.name, loss, "restart", k) for k in restarts),
        *(Run(facts.name, loss, "target", k) for k in targets),
    )


def pool(norm: str, *, classes: int = 10, name: str = "paper") -> tuple[Run, ...]:
    """Every run of a pool in one norm; with few classes there are fewer targets.

    Args:
        norm: Name of the norm; attacks that do not run in it are left out.
        classes: Number of classes.
        name: `paper`, `extended` or `black-box`.
    """
    if name not in POOLS:
        raise FrontierError(f"unknown pool {name!r}: expected one of {', '.join(POOLS)}")
    norm = norm_name(norm)
    if name != "paper":
        _discover()
    members = [
        facts
        for facts in CATALOGUE.values()
        if facts.runs_in(norm)
        and (facts.step_queries == 1 if name == BLACK_BOX else name in facts.pools)
    ]
    runs: list[Run] = []
    for facts in members:
        for loss in facts.losses:
            runs.extend(variants(facts, loss, classes))
    return tuple(runs)


def check_run(run: Run, norm: str, classes: int = TARGETS + 1) -> SolverFacts:
    """Return the facts of the run's solver, or say why there is no such run.

    Args:
        run: Parsed name of the run.
        norm: Name of the norm that the run must exist in.
        classes: Number of classes.
    """
    facts = facts_of(run.solver)
    if facts is None:
        raise FrontierError(f"unknown solver in run {run}: expected one of {', '.join(CATALOGUE)}")
    if not facts.runs_in(norm):
        raise FrontierError(
            f"{run} does not run in {norm}: {facts.name} takes {', '.join(facts.norms)}"
        )
    if run.loss not in facts.losses:
        options = ", ".join(f"{facts.name}-{loss}" if loss else facts.name for loss in facts.losses)
        raise FrontierError(f"{run} does not name a loss of {facts.name}: expected {options}")
    possible = variants(facts, run.loss, classes)
    if run not in possible:
        known = ", ".join(str(option) for option in possible)
        raise FrontierError(
            f"there is no run {run} with {classes} classes: expected one of {known}"
        )
    return facts
