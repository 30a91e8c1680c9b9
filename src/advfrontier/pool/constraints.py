"""The rules C between the runs of an ensemble.

(i) a target gets no more queries than the likelier target before it; (ii) a restart gets queries only if its base run
does. Both are closed under the component-wise maximum, so raising runs never breaks an ensemble that was feasible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.pool.runs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping


def violations(queries: Mapping[Run, int]) -> list[str]:
    """Say, one line each, which rules an allocation breaks; an empty list means it is feasible."""
    found = []
    for run, level in queries.items():
        if level <= 0:
            continue
        for needed, least in closure(run, level, smallest=1).items():
            if queries.get(needed, 0) < least:
                found.append(
                    f"{run} has {level} queries, so {needed} needs at least {least}, not {queries.get(needed, 0)}"
                )
    return found


def closure(run: Run, level: int, *, smallest: int) -> dict[Run, int]:
    """The least queries every other run must have before `run` may have `level`; `smallest` makes a base run active."""
    if run.variant == "target":
        return {Run(run.solver, run.loss, "target", k): level for k in range(1, run.index)}
    return {run.base: smallest} if run.variant == "restart" else {}
