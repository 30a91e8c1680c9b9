"""What can be run: solver × loss × variant, the rules between runs, and ensembles of them. No torch."""

from advfrontier.pool.catalogue import CATALOGUE, MAX_QUERIES, RESTARTS, TARGETS, SolverFacts, pool
from advfrontier.pool.constraints import closure, violations
from advfrontier.pool.runs import Run

__all__ = ["CATALOGUE", "MAX_QUERIES", "RESTARTS", "TARGETS", "Run", "SolverFacts", "closure", "pool", "violations"]
