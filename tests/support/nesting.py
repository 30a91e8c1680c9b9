"""What it means that one ensemble is part of another, and the rules of the paper's allocations."""

from advfrontier.pool import Run


def contains(larger, smaller):
    """Tell whether the larger ensemble gives every run at least the queries of the smaller one."""
    if larger.norm != smaller.norm:
        return False
    return all(larger.queries.get(run, 0) >= queries for run, queries in smaller.queries.items())


def obeys_rules(queries):
    """Tell whether runs (names or Run) and their queries obey the rules C of the paper.

    A target gets no more queries than the likelier target before it, and a restart gets queries
    only if its base run does.
    """
    levels = {Run.parse(str(run)): level for run, level in queries.items()}
    for run, level in levels.items():
        if run.variant == "target" and run.index > 1:
            before = Run(run.solver, run.loss, "target", run.index - 1)
            if level > levels.get(before, 0):
                return False
        if run.variant == "restart" and level > 0 and levels.get(run.base, 0) == 0:
            return False
    return True
