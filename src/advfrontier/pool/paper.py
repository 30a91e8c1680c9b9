"""Paper's ensembles, from its published totals per group of runs.

The split of a total among the runs of a group is not published. The rule here: keep the previous
tier's queries; raise the runs of the group in order, each up to the base run's queries, until the
total is spent; give what remains in order, each up to 1000. The published totals are mostly whole
runs at the base run's level (3500 = 5 · 700), and the rule nests.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import MAX_QUERIES, RESTARTS, TARGETS
from advfrontier.pool.ensemble import Ensemble, Raise, make_ensemble, tier_queries
from advfrontier.pool.runs import Run, Variant
from advfrontier.threat.names import norm_name

PAPER_TIERS = ("paper-4k", "paper-8k", "paper-12k")


def published_totals() -> dict[str, Any]:
    """Read the paper's table of ensembles: norm → attack → group → queries per tier."""
    return tomllib.loads(
        files("advfrontier.pool").joinpath("paper.toml").read_text(encoding="utf-8")
    )


def paper_ensemble(name: str, norm: str, *, classes: int = 10) -> Ensemble:
    """Return `paper-4k`, `-8k` or `-12k` in one norm; few classes have fewer targets.

    Args:
        name: `paper-4k`, `paper-8k` or `paper-12k`.
        norm: Name of the norm.
        classes: Number of classes of the model.
    """
    if name not in PAPER_TIERS:
        raise FrontierError(f"unknown ensemble {name!r}: expected one of {', '.join(PAPER_TIERS)}")
    norm = norm_name(norm)
    table = published_totals()
    reached: dict[Run, int] = {}
    steps: list[Raise] = []
    for place, tier in enumerate(table["tiers"]):
        wanted: dict[Run, int] = {}
        for attack, groups in table[norm].items():
            wanted |= _split(Run.parse(attack), groups, place, reached)
        # Base runs first, then the groups by number: every prefix obeys the rules C and spreads
        # over the attacks.
        order = sorted(
            (run for run in wanted if wanted[run] > reached.get(run, 0)), key=lambda run: run.index
        )
        steps += [Raise(run=str(run), queries=wanted[run]) for run in order]
        reached = wanted
        if tier == tier_queries(name.removeprefix("paper-")):
            break
    return make_ensemble(name=name, norm=norm, steps=steps).for_classes(classes)


def _split(
    base: Run, groups: dict[str, list[int]], place: int, reached: dict[Run, int]
) -> dict[Run, int]:
    """Return the queries of every run of an attack at one tier."""
    level = groups["base"][place]
    queries = {base: level}
    sizes: tuple[tuple[str, Variant, int], ...] = (
        ("restarts", "restart", RESTARTS),
        ("targets", "target", TARGETS),
    )
    for group, variant, size in sizes:
        members = [Run(base.solver, base.loss, variant, k) for k in range(1, size + 1)]
        held = {run: reached.get(run, 0) for run in members}
        left = groups.get(group, [0] * (place + 1))[place] - sum(held.values())
        for ceiling in (level, MAX_QUERIES):
            for run in members:
                given = max(0, min(left, ceiling - held[run]))
                held[run] += given
                left -= given
        if left:
            raise FrontierError(
                f"paper.toml gives the {group} of {base} {left} queries more or less than {size} "
                "runs can hold"
            )
        queries |= held
    return {run: q for run, q in queries.items() if q}
