"""Runs (solver × loss × variant), the rules between them, and ensembles; without torch."""

from advfrontier.pool.catalogue import (
    ANY,
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
from advfrontier.pool.ensemble import (
    GAIN,
    TIERS,
    Ensemble,
    Fork,
    Raise,
    Refine,
    Span,
    attack_of,
    make_ensemble,
    tier_label,
    tier_queries,
)
from advfrontier.pool.finding import FAMILIES, find_ensemble, find_larger
from advfrontier.pool.paper import PAPER_TIERS, paper_ensemble
from advfrontier.pool.runs import Run, closure

__all__ = [
    "ANY",
    "CATALOGUE",
    "CHECKPOINT",
    "FAMILIES",
    "GAIN",
    "MAX_QUERIES",
    "PAPER_TIERS",
    "POOLS",
    "RESTARTS",
    "TARGETS",
    "TIERS",
    "Ensemble",
    "Fork",
    "Raise",
    "Refine",
    "Run",
    "SolverFacts",
    "Span",
    "attack_of",
    "check_run",
    "closure",
    "facts_of",
    "find_ensemble",
    "find_larger",
    "make_ensemble",
    "paper_ensemble",
    "pool",
    "tier_label",
    "tier_queries",
]
