"""What can be run: solver × loss × variant, the rules between runs, and ensembles of them. No torch."""

from advfrontier.pool.catalogue import (
    CATALOGUE,
    CHECKPOINT,
    MAX_QUERIES,
    POOLS,
    RESTARTS,
    TARGETS,
    SolverFacts,
    check_run,
    facts_of,
    pool,
)
from advfrontier.pool.ensemble import TIERS, Ensemble, Move, tier_label, tier_queries
from advfrontier.pool.finding import FAMILIES, find_ensemble, find_larger
from advfrontier.pool.paper import PAPER_TIERS, paper_ensemble
from advfrontier.pool.polish import SLICE, Polish, Turn
from advfrontier.pool.race import RACE, Race, RaceFile
from advfrontier.pool.runs import Run, closure, violations

__all__ = [
    "CATALOGUE",
    "CHECKPOINT",
    "FAMILIES",
    "MAX_QUERIES",
    "PAPER_TIERS",
    "POOLS",
    "RACE",
    "RESTARTS",
    "SLICE",
    "TARGETS",
    "TIERS",
    "Ensemble",
    "Move",
    "Polish",
    "Race",
    "RaceFile",
    "Run",
    "SolverFacts",
    "Turn",
    "check_run",
    "closure",
    "facts_of",
    "find_ensemble",
    "find_larger",
    "paper_ensemble",
    "pool",
    "tier_label",
    "tier_queries",
    "violations",
]
