"""What can be run: solver × loss × variant, the rules between runs, and ensembles of them. No torch."""

from advfrontier.pool.catalogue import CATALOGUE, MAX_QUERIES, RESTARTS, TARGETS, SolverFacts, pool
from advfrontier.pool.constraints import closure, violations
from advfrontier.pool.ensemble import Ensemble, Move, tier_queries
from advfrontier.pool.paper import PAPER_TIERS, paper_ensemble
from advfrontier.pool.runs import Run

__all__ = [
    "CATALOGUE",
    "MAX_QUERIES",
    "PAPER_TIERS",
    "RESTARTS",
    "TARGETS",
    "Ensemble",
    "Move",
    "Run",
    "SolverFacts",
    "closure",
    "paper_ensemble",
    "pool",
    "tier_queries",
    "violations",
]
