"""Ensembles by what a user calls them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.pool.catalogue import MAX_QUERIES, POOLS, check_run, facts_of, pool
from advfrontier.pool.ensemble import Ensemble, Move, tier_queries
from advfrontier.pool.paper import paper_ensemble
from advfrontier.pool.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHOLE = "paper-12k"  # the largest tier: every smaller budget is a prefix of it
_TURN = 100  # queries that a run spends before the next one has its turn


def find_ensemble(ensemble: Ensemble | str | int | Sequence[str], norm: str, classes: int) -> Ensemble:
    """An ensemble by what a user calls it, or the ensemble itself.

    That is a tier (`4k`, `paper-8k`), a number of queries, the path of an ensemble file, a pool (`black-box`), or runs
    (`fmn,alma:target1`, or a list of them); and behind `@` where to stop, as in `black-box@2000`.
    """
    if isinstance(ensemble, Ensemble):
        found = ensemble
    elif isinstance(ensemble, str) and "@" in ensemble:
        name, _, stop = ensemble.partition("@")
        found = find_ensemble(name, norm, classes).at(tier_queries(stop))
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(f"no ensemble file {ensemble}: `advfrontier allocate` writes such files")
        found = Ensemble.load(ensemble)
    elif isinstance(ensemble, str) and ensemble.startswith("paper-"):
        found = paper_ensemble(ensemble, norm)
    elif isinstance(ensemble, int) or (isinstance(ensemble, str) and ensemble[:1].isdecimal()):
        budget, whole = tier_queries(ensemble), paper_ensemble(_WHOLE, norm)
        if budget > whole.total:
            raise FrontierError(f"{budget} queries are more than the largest tier: expected at most {whole.total}")
        found = whole.at(budget)
    else:
        found = _in_turns(ensemble, norm, classes)
    if not found.moves:
        raise FrontierError(f"{ensemble} queries are too few to run anything: expected at least 10")
    if found.norm != norm:
        raise FrontierError(f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the same")
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found


def _in_turns(asked: str | Sequence[str], norm: str, classes: int) -> Ensemble:
    """Runs, or those of a pool, that take turns until each has spent all its queries: all share a smaller budget."""
    if isinstance(asked, str) and asked in POOLS:
        name, runs = asked, pool(norm, classes=classes, name=asked)
    else:
        names = asked.split(",") if isinstance(asked, str) else asked
        name, runs = "runs", tuple(dict.fromkeys(Run.parse(run.strip()) for run in names))
        if unknown := [str(run) for run in runs if facts_of(run.solver) is None]:
            raise FrontierError(
                f"{', '.join(unknown)}: no such ensemble or run: expected a budget such as 4k or 6500, a pool "
                f"({', '.join(POOLS)}), runs such as fmn,alma:target1, or a file that ends in .toml"
            )
    for run in runs:
        check_run(run, norm, classes)
    order = [str(run) for run in sorted(runs, key=lambda run: run.index)]
    tier, turns = MAX_QUERIES * len(order), range(_TURN, MAX_QUERIES + 1, _TURN)
    return Ensemble(name, norm, tuple(Move(((run, queries),), tier) for queries in turns for run in order))
