"""Ensembles by what a user calls them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from advfrontier.errors import FrontierError
from advfrontier.pool.ensemble import Ensemble, tier_label, tier_queries
from advfrontier.pool.paper import paper_ensemble

_WHOLE = "paper-12k"  # the largest tier: every smaller budget is a prefix of it


def find_ensemble(ensemble: Ensemble | str | int, norm: str, classes: int) -> Ensemble:
    """A tier by name (`4k`, `paper-8k`), a number of queries, the path of an ensemble file, or the ensemble itself."""
    if isinstance(ensemble, Ensemble):
        found = ensemble
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(f"no ensemble file {ensemble}: `advfrontier allocate` writes such files")
        found = Ensemble.load(ensemble)
    elif str(ensemble).startswith("paper-"):
        found = paper_ensemble(str(ensemble), norm)
    else:
        budget = tier_queries(ensemble)
        whole = paper_ensemble(_WHOLE, norm)
        if budget > whole.total:
            raise FrontierError(f"{budget} queries are more than the largest tier: expected at most {whole.total}")
        found = replace(whole.at(budget), name=tier_label(budget))
        if not found.moves:
            raise FrontierError(f"{ensemble} queries are too few to run anything: expected at least 10")
    if found.norm != norm:
        raise FrontierError(f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the same")
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found
