"""Ensembles and races by what a user calls them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from advfrontier.errors import FrontierError
from advfrontier.pool.ensemble import Ensemble, tier_queries
from advfrontier.pool.paper import paper_ensemble
from advfrontier.pool.race import Race
from advfrontier.toml import has_key

_FAMILIES = ("race", "greedy", "paper")  # each has tiers of its own: race-4k, greedy-12k, …
_DEFAULT = "paper"  # what `4k` or a number of queries means


def find_ensemble(ensemble: Ensemble | Race | str | int, norm: str, classes: int) -> Ensemble | Race:
    """A tier by name, a number of queries, the path of an ensemble's or a race's file, or the thing itself.

    Names are `4k` and the like, and those of one family: `race-4k`, `greedy-8k`, `paper-12k`.
    """
    if isinstance(ensemble, Ensemble | Race):
        found: Ensemble | Race = ensemble
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(f"no ensemble file {ensemble}: `advfrontier allocate` writes such files")
        found = load_ensemble(ensemble)
    else:
        found = _tier(ensemble, norm)
    if found.norm != norm:
        raise FrontierError(f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the same")
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found


def load_ensemble(path: str) -> Ensemble | Race:
    """Read an ensemble's or a race's file."""
    return Race.load(path) if has_key(path, "order") else Ensemble.load(path)


def _tier(name: str | int, norm: str) -> Ensemble | Race:
    family, _, tier = str(name).rpartition("-")
    if family and family not in _FAMILIES:
        raise FrontierError(f"{name} is no ensemble: expected a tier such as 4k, or one of {', '.join(_FAMILIES)}-4k")
    whole = _whole(family or _DEFAULT, norm)
    budget = tier_queries(tier)
    if budget > whole.total:
        raise FrontierError(f"{budget} queries are more than the largest tier: expected at most {whole.total}")
    found = whole.at(budget)
    if found.total == 0:
        raise FrontierError(f"{name} queries are too few to run anything: expected at least 10")
    return found


@cache
def _whole(family: str, norm: str) -> Ensemble | Race:
    """The largest tier of a family, of which every smaller budget is a prefix."""
    if family == "paper":
        return paper_ensemble("paper-12k", norm)
    text = files("advfrontier.pool").joinpath(f"learned/{family}-{norm}.toml").read_text(encoding="utf-8")
    return Race.from_toml(text) if family == "race" else Ensemble.from_toml(text)
