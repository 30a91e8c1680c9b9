"""Find an ensemble by what a user calls it: a tier, a pool, a list of runs or a file."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from numbers import Real
from pathlib import Path

from advfrontier.errors import FrontierError, whole_number
from advfrontier.pool.catalogue import (
    CHECKPOINT,
    MAX_QUERIES,
    POOLS,
    TARGETS,
    check_run,
    facts_of,
    pool,
)
from advfrontier.pool.ensemble import (
    TIERS,
    Ensemble,
    Raise,
    make_ensemble,
    tier_label,
    tier_queries,
)
from advfrontier.pool.paper import paper_ensemble, published_totals
from advfrontier.pool.runs import Run

Asked = Ensemble | str | int | Path | Sequence[str]  # what a user may pass
FAMILIES = ("greedy", "paper")  # beside the default; each has tiers: greedy-4k, paper-12k, …
NAMED_RUNS = "runs"  # name of an ensemble of runs that the user listed

_DEFAULT = "default"
_TIER_LABELS = tuple(tier_label(tier) for tier in TIERS)
_PART = 100  # queries a run spends before the next run of a list continues


def find_ensemble(ensemble: Asked, norm: str, classes: int) -> Ensemble:
    """Return the ensemble that a user asks for, for a model with `classes` classes.

    Args:
        ensemble: A tier (`4k`, `greedy-8k`, `paper-12k`), a number of queries, the path of a file,
            a pool (`black-box`), runs (`fmn,fmn:target1`, or a list), or an ensemble; followed by
            `@2000` to stop there.
        norm: Name of the norm.
        classes: Classes of the model.
    """
    if isinstance(ensemble, int | Real):
        ensemble = str(whole_number(ensemble, "ensemble"))
    if isinstance(ensemble, Path):
        ensemble = str(ensemble)
    if isinstance(ensemble, Ensemble):
        found = ensemble
    elif isinstance(ensemble, str) and ensemble.endswith(".toml"):
        if not Path(ensemble).is_file():
            raise FrontierError(
                f"no ensemble file {ensemble}: `advfrontier allocate` writes such files"
            )
        found = Ensemble.load(ensemble)
    elif isinstance(ensemble, str) and "@" in ensemble:
        name, _, stop = ensemble.rpartition("@")
        found = _stopped(name, stop, norm, classes)
    elif isinstance(ensemble, str) and _is_tier(ensemble):
        found = _tier(ensemble, norm, classes)
    else:
        found = _alternating(ensemble, norm, classes)
    if not found.total:
        raise FrontierError(
            f"ensemble {found.name} has no runs: expected at least one, such as fmn"
        )
    if found.norm != norm:
        raise FrontierError(
            f"ensemble {found.name} is for {found.norm}, the evaluation in {norm}: expected the "
            "same"
        )
    found = found.for_classes(classes)
    found.check(classes=classes)
    return found


def find_larger(ensemble: Asked, before: Ensemble | None, classes: int) -> Asked:
    """Return what a bare budget means when an evaluation is extended: more of the same kind.

    Args:
        ensemble: Larger ensemble that the user asked for: a budget, a name or runs.
        before: Ensemble that was evaluated so far; None for a trace.
        classes: Number of classes of the model.
    """
    if isinstance(ensemble, int | Real):
        ensemble = whole_number(ensemble, "ensemble")
    if before is None or not isinstance(ensemble, str | int):
        return ensemble
    if not (str(ensemble).isalnum() and str(ensemble)[:1].isdecimal()):
        return ensemble  # a tier of a named family, a pool, or runs
    budget = tier_queries(ensemble)
    if budget <= before.longest:
        return before.with_total(budget // CHECKPOINT * CHECKPOINT)
    larger = [_TIER_LABELS[-1], *(f"{family}-{_TIER_LABELS[-1]}" for family in FAMILIES), *POOLS]
    for kind in (*larger, before.runs):
        whole = find_ensemble(kind, before.norm, classes)
        if whole.total > before.total and whole.holds(before):
            if budget <= whole.longest:
                return whole.with_total(budget // CHECKPOINT * CHECKPOINT)
            before = whole
    raise FrontierError(
        f"{before.name} can use at most {before.longest} queries per sample (asked: {budget}); "
        f"type --queries {before.longest}, or evaluate with more runs in another folder"
    )


def _is_tier(name: str) -> bool:
    family, _, tier = name.strip().lower().rpartition("-")
    return family in ("", *FAMILIES) and tier[:1].isdecimal()


def _stopped(name: str, stop: str, norm: str, classes: int) -> Ensemble:
    """Return the ensemble of a name, cut at a budget that it can spend."""
    budget = _budget(stop)
    if _is_tier(name) or name.endswith(".toml"):
        whole = find_ensemble(name, norm, classes)
    else:
        whole = _alternating(name, norm, classes, budget=budget)
    if budget > max(whole.total, whole.tiers[-1]):
        raise FrontierError(
            f"{name} can use at most {whole.total} queries per sample (asked: {budget}); lower the "
            "budget or add runs"
        )
    found = whole.at(budget)
    if whole.name == NAMED_RUNS and len(found.runs) < len(whole.runs):
        least = _PART * (len(whole.runs) - 1) + CHECKPOINT
        raise FrontierError(
            f"{budget} queries per sample do not reach every run of {name}: expected at least "
            f"{least}, or fewer runs"
        )
    return found


def _tier(name: str, norm: str, classes: int) -> Ensemble:
    family, _, tier = name.strip().lower().rpartition("-")
    whole = _whole(family or _DEFAULT, norm)
    budget = _budget(tier if family else name)  # the whole name, so that -5 is not read as 5
    if budget > max(whole.total, TIERS[-1]):
        raise FrontierError(
            f"{budget} queries are more than the largest tier: expected at most {whole.total}, "
            f"as in --tier {tier_label(whole.total)}"
        )
    return whole.for_classes(classes).at(budget)


def _budget(text: str) -> int:
    budget = tier_queries(text)
    if budget < CHECKPOINT:
        raise FrontierError(
            f"{budget} queries are too few to run anything: expected at least {CHECKPOINT}"
        )
    return budget


@cache
def _whole(family: str, norm: str) -> Ensemble:
    """Return the largest tier of a family, or even shares where none was learned in this norm."""
    label = _TIER_LABELS[-1] if family == _DEFAULT else f"{family}-{_TIER_LABELS[-1]}"
    if family == "paper":
        known = norm in published_totals()
        return paper_ensemble(label, norm) if known else _even(label, norm)
    file = files("advfrontier.pool").joinpath(f"learned/{family}-{norm}.toml")
    if not file.is_file():
        return _even(label, norm)
    return Ensemble.from_toml(file.read_text(encoding="utf-8"))


def _even(name: str, norm: str) -> Ensemble:
    """Return an ensemble in which all runs of the extended pool get equal shares of queries."""
    runs = pool(norm, name="extended")
    if not runs:
        raise FrontierError(f"no solver runs in {norm}: register one that does")
    whole = _alternating([str(run) for run in runs], norm, TARGETS + 1)
    note = f"no ensemble was learned in {norm}: its runs share the queries evenly"
    named = make_ensemble(name=name, norm=norm, steps=whole.steps, flags=(note,))
    return named.at(TIERS[-1])


def _nearest(name: str, norm: str) -> str:
    """Return a question if the name looks like one that is known."""
    known: list[str] = []
    for family in ("", *FAMILIES):
        for tier in dict.fromkeys((name.rpartition("-")[2], *_TIER_LABELS)):
            label = f"{family}-{tier}" if family else tier
            if _is_tier(label):
                known.append(label)
    known.extend(POOLS)
    known.extend(str(run) for run in pool(norm, name="extended"))
    matches = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def _alternating(
    asked: str | Sequence[str], norm: str, classes: int, *, budget: int | None = None
) -> Ensemble:
    """Return an ensemble of listed runs, or of a pool, that advance alternately to their ends.

    External runs come first, each in one piece: `queries=` of their names, else an even share of
    the budget.
    """
    if isinstance(asked, str) and asked in POOLS:
        name = f"{asked}-pool" if asked in FAMILIES else asked  # not the ensemble paper-12k
        runs = pool(norm, classes=classes, name=asked)
    else:
        name, runs = NAMED_RUNS, _listed(asked, norm)
    for run in runs:
        check_run(run, norm, classes)
    share = MAX_QUERIES
    if budget is not None:
        share = max(CHECKPOINT, min(share, budget // len(runs) // CHECKPOINT * CHECKPOINT))
    order: list[str] = []
    steps: list[Raise] = []
    for run in sorted(runs, key=lambda run: run.index):
        external = run.external
        if external is None:
            order.append(str(run))
        else:
            steps.append(Raise(run=str(run), queries=external.queries or share))
    for queries in range(_PART, MAX_QUERIES + 1, _PART):
        steps.extend(Raise(run=run, queries=queries) for run in order)
    return make_ensemble(name=name, norm=norm, steps=steps)


def _listed(asked: str | Sequence[str], norm: str) -> tuple[Run, ...]:
    """Return the runs of a list or of a text with commas."""
    if not isinstance(asked, Sequence):  # of a dict only the names would be read
        raise FrontierError(
            f"{asked!r} is no ensemble: expected a budget such as 4k, runs such as "
            "['fmn', 'fmn:target1'], or an Ensemble, as in "
            'Ensemble.of("mine", "L2", {"fmn": 200, "ddn": 100})'
        )
    names = asked.split(",") if isinstance(asked, str) else asked
    runs = tuple(dict.fromkeys(Run.parse(str(name).strip()) for name in names))
    unknown = [str(run) for run in runs if facts_of(run.solver) is None]
    if unknown:
        raise FrontierError(
            f"{', '.join(unknown)}: no such ensemble or run{_nearest(unknown[0], norm)}: expected "
            f"a budget such as 4k or 6500, a family ({', '.join(FAMILIES)}) with a tier "
            f"({', '.join(_TIER_LABELS)}) as in greedy-4k, a pool ({', '.join(POOLS)}), runs such "
            "as fmn,fmn:target1 or foolbox:DDNAttack?steps=100, or a file that ends in .toml"
        )
    return runs
