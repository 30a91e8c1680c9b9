"""Ensembles and races by what a user calls them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from numbers import Real
from pathlib import Path

from advfrontier.errors import FrontierError, whole_number
from advfrontier.pool.catalogue import CHECKPOINT, MAX_QUERIES, POOLS, check_run, facts_of, pool
from advfrontier.pool.ensemble import TIERS, Ensemble, Move, tier_label, tier_name, tier_queries
from advfrontier.pool.paper import paper_ensemble
from advfrontier.pool.race import Race
from advfrontier.pool.runs import Run
from advfrontier.toml import has_key

Asked = Ensemble | Race | str | int | Path | Sequence[str]  # what a user may hand over
FAMILIES = ("race", "greedy", "paper")  # each has tiers of its own: race-4k, greedy-12k, …
_TIERS = tuple(map(tier_label, TIERS))
_DEFAULT = "race"  # what `4k` or a number of queries means
_NAMED = "runs"  # what an ensemble of runs that were named is called
_TURN = 100  # queries that a run spends before the next one has its turn


def find_ensemble(ensemble: Asked, norm: str, classes: int) -> Ensemble | Race:
    """An ensemble or a race by what a user calls it, or the thing itself.

    That is a tier (`4k`, or of one family: `race-4k`, `greedy-8k`, `paper-12k`), a number of queries, the path of a
    file, a pool (`black-box`), or runs (`fmn,fmn:target1`, or a list of them); and behind `@` where to stop, as in
    `black-box@2000`.
    """
    if isinstance(ensemble, int | Real):
        ensemble = str(whole_number(ensemble, "ensemble"))
    ensemble = str(ensemble) if isinstance(ensemble, Path) else ensemble
    if isinstance(ensemble, Ensemble | Race):
        found: Ensemble | Race = ensemble
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(f"no ensemble file {ensemble}: `advfrontier allocate` writes such files")
        found = Race.load(ensemble) if has_key(ensemble, "order") else Ensemble.load(ensemble)
    elif isinstance(ensemble, str) and "@" in ensemble:
        name, _, stop = ensemble.rpartition("@")
        found = _stopped(name, stop, norm, classes)
    elif isinstance(ensemble, str) and _is_tier(ensemble):
        found = _tier(ensemble, norm, classes)
    else:
        found = _in_turns(ensemble, norm, classes)
    if not found.total:
        raise FrontierError(f"ensemble {found.name} has no runs: expected at least one, such as fmn")
    if found.norm != norm:
        raise FrontierError(f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the same")
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found


def find_larger(ensemble: Asked, before: Ensemble | Race | None, classes: int) -> Asked:
    """What a bare budget means where an evaluation goes on: more of the kind it began with, be it a tier or runs."""
    if isinstance(ensemble, int | Real):
        ensemble = whole_number(ensemble, "ensemble")
    if before is None or not isinstance(ensemble, str | int):
        return ensemble
    if not (str(ensemble).isalnum() and str(ensemble)[:1].isdecimal()):  # a tier of one family, a pool, or runs
        return ensemble
    budget = tier_queries(ensemble)
    if isinstance(before, Race):
        return ensemble if _is_shipped(before, classes) else before.upto(budget)
    kinds = (*(f"{family}-{_TIERS[-1]}" for family in FAMILIES[1:]), *POOLS, before.runs)
    for kind in kinds:
        whole = find_ensemble(kind, before.norm, classes)
        # A tier may hold fewer queries than its name says, where a model has few classes.
        prefixes = [whole.at(queries) for queries in (before.total, *whole.tiers)]
        kin = tier_name(whole.name, budget) == tier_name(before.name, budget)  # the same but for their budgets
        if not kin or not any(part.queries == before.queries for part in prefixes):
            continue
        if budget > max(whole.total, whole.tiers[-1]):
            room = f"type --queries {whole.total}, or evaluate" if whole.total > before.total else "evaluate"
            raise FrontierError(
                f"{budget} queries per sample are more than the {whole.total} that the runs of this record can spend "
                f"({', '.join(whole.runs[:3])}{', …' if len(whole.runs) > 3 else ''}): {room} with more runs in "
                "another folder"
            )
        return whole.at(budget)
    return ensemble


def _is_shipped(race: Race, classes: int) -> bool:
    """Whether it is the race that a bare budget means anyway, with gradients (also surrogate ones) or without."""
    shipped = find_ensemble(_TIERS[-1], race.norm, classes)
    ways = (shipped, shipped.without_gradients()) if isinstance(shipped, Race) else ()
    return any(way is not None and way.order == race.order for way in ways)


def _is_tier(name: str) -> bool:
    family, _, tier = name.strip().lower().rpartition("-")
    return family in ("", *FAMILIES) and tier[:1].isdecimal()


def _stopped(name: str, stop: str, norm: str, classes: int) -> Ensemble | Race:
    """What a name stands for, stopped at a budget that it can spend."""
    whole, budget = find_ensemble(name, norm, classes), _budget(stop)
    if budget > max(whole.total, whole.tiers[-1]):
        raise FrontierError(
            f"{budget} queries per sample are more than the {whole.total} that {name} can spend: expected at most so "
            "many, or more runs"
        )
    found = whole.at(budget)
    if whole.name == _NAMED and len(found.runs) < len(whole.runs):  # `extend` could not know the others
        raise FrontierError(
            f"{budget} queries per sample do not reach all of {name}, which take turns: expected at least "
            f"{_TURN * (len(whole.runs) - 1) + CHECKPOINT}, or fewer runs"
        )
    return found


def _tier(name: str, norm: str, classes: int) -> Ensemble | Race:
    family, _, tier = name.strip().lower().rpartition("-")
    whole, budget = _whole(family or _DEFAULT, norm), _budget(tier if family else name)  # not 5 for -5
    if budget > max(whole.total, whole.tiers[-1]):  # an allocation may have had no use for all of its tier
        raise FrontierError(
            f"{budget} queries are more than the largest tier: expected at most {whole.tiers[-1]}, "
            f"as in --tier {tier_label(whole.tiers[-1])}"
        )
    return whole.for_classes(classes).at(budget)


def _budget(text: str) -> int:
    budget = tier_queries(text)
    if budget < CHECKPOINT:
        raise FrontierError(f"{budget} queries are too few to run anything: expected at least {CHECKPOINT}")
    return budget


@cache
def _whole(family: str, norm: str) -> Ensemble | Race:
    """The largest tier of a family, of which every smaller budget is a prefix."""
    if family == "paper":
        return paper_ensemble("paper-12k", norm)
    text = files("advfrontier.pool").joinpath(f"learned/{family}-{norm}.toml").read_text(encoding="utf-8")
    return Race.from_toml(text) if family == "race" else Ensemble.from_toml(text)


def _nearest(name: str, norm: str) -> str:
    """A question, if the name looks like one that is known."""
    tiers = (f"{family}-{tier}" for family in FAMILIES for tier in dict.fromkeys((name.rpartition("-")[2], *_TIERS)))
    known = (*filter(_is_tier, tiers), *POOLS, *(str(run) for run in pool(norm, name="extended")))
    found = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def _in_turns(asked: str | Sequence[str], norm: str, classes: int) -> Ensemble:
    """Runs, or those of a pool, that take turns until each has spent all its queries: all share a smaller budget."""
    if isinstance(asked, str) and asked in POOLS:
        name = f"{asked}-pool" if asked in FAMILIES else asked  # the paper's pool is not its ensemble
        runs = pool(norm, classes=classes, name=asked)
    else:
        if not isinstance(asked, Sequence):  # of a dict only the names would be read
            raise FrontierError(
                f"{asked!r} is no ensemble: expected a budget such as 4k, runs such as ['fmn', 'fmn:target1'], or an "
                'Ensemble, as in Ensemble.of("mine", "L2", {"fmn": 200, "ddn": 100})'
            )
        names = asked.split(",") if isinstance(asked, str) else asked
        name, runs = _NAMED, tuple(dict.fromkeys(Run.parse(str(run).strip()) for run in names))
        if unknown := [str(run) for run in runs if facts_of(run.solver) is None]:
            raise FrontierError(
                f"{', '.join(unknown)}: no such ensemble or run{_nearest(unknown[0], norm)}: expected a budget such as "
                f"4k or 6500, a kind ({', '.join(FAMILIES)}) with a tier ({', '.join(_TIERS)}) as in {_DEFAULT}-4k, a "
                f"pool ({', '.join(POOLS)}), runs such as fmn,fmn:target1, or a file that ends in .toml"
            )
    for run in runs:
        check_run(run, norm, classes)
    order = [str(run) for run in sorted(runs, key=lambda run: run.index)]
    tier, turns = MAX_QUERIES * len(order), range(_TURN, MAX_QUERIES + 1, _TURN)
    return Ensemble(name, norm, tuple(Move(((run, queries),), tier) for queries in turns for run in order))
