"""What can be run: solver × loss × variant, the rules between runs, and ensembles of them. No torch."""

from advfrontier.pool.catalogue import CATALOGUE, MAX_QUERIES, RESTARTS, TARGETS, SolverFacts, check_run, facts_of, pool
from advfrontier.pool.constraints import closure, violations
from advfrontier.pool.ensemble import TIERS, Ensemble, Move, tier_name, tier_queries
from advfrontier.pool.finding import find_ensemble
from advfrontier.pool.paper import PAPER_TIERS, paper_ensemble
from advfrontier.pool.runs import Run

__all__ = [
    "CATALOGUE",
    "MAX_QUERIES",
    "PAPER_TIERS",
    "RESTARTS",
    "TARGETS",
    "TIERS",
    "Ensemble",
    "Move",
    "Run",
    "SolverFacts",
    "check_run",
    "closure",
    "facts_of",
    "find_ensemble",
    "paper_ensemble",
    "pool",
    "tier_name",
    "tier_queries",
    "violations",
]
