"""What it means that one ensemble is part of another."""


def contains(larger, smaller):
    """Whether extending the smaller ensemble to the larger one repeats and drops no query."""
    return larger.norm == smaller.norm and all(
        larger.queries.get(run, 0) >= q for run, q in smaller.queries.items()
    )
