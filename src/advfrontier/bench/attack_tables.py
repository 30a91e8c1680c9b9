"""The tables about attacks: the pool, ensembles and races, what they reach, and how else queries could be given out.

| paper | here |
|---|---|
| the attack pool | `pool` |
| deployable ensembles | `ensembles`, `tiers` |
| AOI against Q, training and held-out models | `growth`, `gains` |

The paper has none of the others. How far the tiers are from the frontier of the pool, in distances, is `above`; what
each part of the pool is good for is in `contributions` and `without`. All but the race are read off the traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from advfrontier.bench.published import PUBLISHED
from advfrontier.bench.rivals import BEST_ATTACK, BEST_RUN, RANDOM, UNIFORM
from advfrontier.bench.subject import (
    GREEDY,
    PAPER,
    RACE,
    Subject,
    by_split,
    common_tiers,
    grouped,
    shown_tiers,
    spread,
    tier_columns,
)
from advfrontier.frontier.optimality import aoi, excess
from advfrontier.frontier.optimality import contributions as contributions_of
from advfrontier.pool import Ensemble, Race, Run, facts_of, tier_label
from advfrontier.table import Column, Share, Spread, Table
from advfrontier.threat.names import SYMBOLS

_VARIANTS = {"base": "base", "restart": "restarts", "target": "targets"}
_COMPARED = (GREEDY, RACE, PAPER, UNIFORM, BEST_ATTACK, BEST_RUN)


def pool(subjects: Mapping[str, Sequence[Subject]]) -> Table:
    """The solvers that were traced, in how many runs per norm, and which of them the paper has."""
    names = {
        norm: dict.fromkeys(run for s in group for run in s.ends)
        for norm, group in subjects.items()
    }
    parsed = {norm: list(map(Run.parse, own)) for norm, own in names.items()}
    rows = []
    for solver in dict.fromkeys(run.solver for own in parsed.values() for run in own):
        facts = facts_of(solver)
        own = [run for group in parsed.values() for run in group if run.solver == solver]
        most = [
            max((r.index for r in own if r.variant == kind), default=None)
            for kind in ("restart", "target")
        ]
        uses = "no gradient" if _black_box(solver) else "gradient"
        counts = [sum(run.solver == solver for run in group) or None for group in parsed.values()]
        rows.append(
            (solver, uses, "yes" if facts and "paper" in facts.pools else "no", *most, *counts)
        )
    if rows:
        rows.append(("all", None, None, None, None, *(len(group) for group in parsed.values())))
    columns = (
        Column("solver"), Column("uses"), Column("in the paper"), Column("restarts", "integer"),
        Column("targets", "integer"),
        *(Column(f"runs in {SYMBOLS[norm]}", "integer", key=f"runs in {norm}") for norm in subjects),
    )  # fmt: skip
    return Table("The attack pool", columns, tuple(rows))


def _black_box(solver: str) -> bool:
    facts = facts_of(solver)
    return facts is not None and facts.step_queries == 1


def ensembles(
    own: Mapping[int, Ensemble],
    papers: Mapping[int, Ensemble],
    subjects: Sequence[Subject],
    *,
    norm: str,
) -> Table:
    """Queries of each attack's base run, and of all its restarts or targets together, at every tier.

    The paper's ensembles are shown where all of their runs were traced on every model.
    """
    paper = {tier: papers[tier] for tier in common_tiers(subjects, PAPER) if tier in papers}
    tables: list[Counter[tuple[str, str]]] = []
    for ensemble in (*own.values(), *paper.values()):
        tables.append(Counter())
        for name, queries in ensemble.queries.items():
            run = Run.parse(name)
            tables[-1][run.attack, _VARIANTS[run.variant]] += queries
    attacks = dict.fromkeys(attack for table in tables for attack, _ in table)
    keys = [(attack, variant) for attack in attacks for variant in _VARIANTS.values()]
    columns = (*tier_columns(own, "count"), *tier_columns(paper, "count", "paper {}"))
    rows = tuple(
        (*key, *(table.get(key) for table in tables))
        for key in keys
        if any(key in table for table in tables)
    )
    return Table(
        f"Ensembles in {SYMBOLS[norm]}",
        (Column(SYMBOLS[norm], key="attack"), Column("runs"), *columns),
        rows,
    )


def tiers(
    own: Mapping[int, Ensemble], race: Race | None, subjects: Sequence[Subject], *, norm: str
) -> Table:
    """What each ensemble, and the race, reaches on the models it was made from and on the others.

    Of an ensemble also its AOI against the traced runs alone, without what the race found, on the models it was made
    from: that is what its bound is about. For the race no bound is known: a sample may spend its queries as it needs.
    """
    splits = by_split(subjects)
    raced = common_tiers(subjects, RACE) if subjects else []
    told: list[tuple[str, int, int, int | None, float | None, float | None]] = [
        (GREEDY, tier, made.total, len(made.runs), made.aoi, made.bound)
        for tier, made in own.items()
    ]
    told += [
        (RACE, tier, min(tier, race.total) if race else tier, None, None, None) for tier in raced
    ]
    rows = []
    for family, tier, queries, runs, reached, bound in told:
        means = (mean_aoi(group, family, tier) for group in splits.values())
        rows.append((f"{family}-{tier_label(tier)}", queries, runs, *means, reached, bound))
    columns = (
        Column(SYMBOLS[norm], key="tier"), Column("queries", "count"), Column("runs", "integer"),
        *(Column(f"AOI of {split} models (%)", "fine", key=f"aoi of {split} models") for split in splits),
        Column("AOI against traced runs alone (%)" if splits else "AOI (%)", "fine", key="aoi"),
        Column("no allocation passes (%)", "fine", key="bound"),
    )  # fmt: skip
    return Table(f"What each tier reaches in {SYMBOLS[norm]}", columns, tuple(rows))


def mean_aoi(subjects: Sequence[Subject], family: str, tier: int) -> float:
    """Mean AOI over models."""
    return float(np.mean([s.aoi((family, tier)) for s in subjects]))


def mean_above(subjects: Sequence[Subject], family: str, tier: int) -> float:
    """By how much distances exceed the frontier, on average over models."""
    return float(np.mean([s.above((family, tier)) for s in subjects]))


def above(subjects: Sequence[Subject], *, norm: str) -> Table:
    """By how much distances exceed the frontier on average: every model, and the mean of each split."""
    shown = shown_tiers(subjects)
    found = {s.model: [s.above(tier) for tier in shown.values()] for s in subjects}
    rows = [(s.model, s.split, *found[s.model]) for s in subjects]
    for split, group in grouped(subjects).items():
        rows.append(("mean", split, *np.mean([found[s.model] for s in group], axis=0).tolist()))
    columns = (
        Column(SYMBOLS[norm], key="model"),
        Column("split"),
        *(Column(name, "fine") for name in shown),
    )
    return Table(f"Mean distance above the frontier in {SYMBOLS[norm]}", columns, tuple(rows))


def gains(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Points of mean AOI that a tier adds to a smaller one; beside it the paper's."""
    shown = shown_tiers(subjects).values()
    families = [*dict.fromkeys(family for family, _ in shown), "published"]
    rows = []
    for split, group in by_split(subjects).items():
        means = {(family, tier): mean_aoi(group, family, tier) for family, tier in shown}
        means |= {
            ("published", tier): figure.mean for tier, figure in PUBLISHED[norm][split].aois.items()
        }
        for low, high in combinations(subjects[0].tiers, 2):
            pairs = [(means.get((family, high)), means.get((family, low))) for family in families]
            added = (b - a if a is not None and b is not None else None for b, a in pairs)
            rows.append((f"{tier_label(low)} to {tier_label(high)}", split, *added))
    columns = (Column("tiers"), Column("split"), *(Column(family, "gain") for family in families))
    return Table(f"What a larger tier adds in {SYMBOLS[norm]}", columns, tuple(rows))


def mean_growth(subjects: Sequence[Subject]) -> dict[str, dict[int, float]]:
    """Split → queries → mean AOI of its models."""
    return {
        split: {
            queries: float(np.mean([subject.growth[queries] for subject in group]))
            for queries in group[0].growth
        }
        for split, group in by_split(subjects).items()
    }


def growth(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Mean AOI against queries, over the models the ensembles were made from and over the others."""
    growth_of = mean_growth(subjects)
    rows = [
        (queries, *(series[queries] for series in growth_of.values()))
        for queries in subjects[0].growth
    ]
    columns = (Column("queries", "integer"), *(Column(split, "fine") for split in growth_of))
    return Table(f"Mean AOI against queries in {SYMBOLS[norm]}", columns, tuple(rows))


def allocations(subjects: Sequence[Subject], given: Mapping[str, str], *, norm: str) -> Table:
    """Mean AOI, and mean distance above the frontier, of every way to give out the same queries.

    `given` says in words what some of them are.
    """
    budgets = list(subjects[0].tiers)
    rows: list[tuple[Any, ...]] = []
    for split, group in by_split(subjects).items():
        known = {name: own for name in group[0].families if (own := common_tiers(group, name))}
        means = {
            name: [
                mean(group, name, b) if b in own else None
                for mean in (mean_aoi, mean_above)
                for b in budgets
            ]
            for name, own in known.items()
        }
        rows += [(name, split, *means[name]) for name in _COMPARED if name in known]
        if drawn := [
            own for name, own in means.items() if name.startswith(RANDOM) and None not in own
        ]:
            found = np.array(drawn, dtype=np.float64)
            spreads = map(Spread, found.mean(axis=0).tolist(), found.std(axis=0).tolist())
            rows.append((f"{RANDOM}, {len(drawn)} draws", split, *spreads))
    columns = [Column(SYMBOLS[norm], key="queries given out by"), Column("split")]
    columns += [
        *tier_columns(budgets, "fine", "AOI at {}"),
        *tier_columns(budgets, "fine", "above at {}"),
    ]
    notes = tuple(f"{name}: {text}" for name, text in given.items())
    return Table(f"Ways to give out queries in {SYMBOLS[norm]}", tuple(columns), tuple(rows), notes)


def race_against_greedy(subjects: Sequence[Subject], *, norm: str) -> Table:
    """On how many models a race is at least as near as the greedy ensemble of its budget, and what it gains."""
    budgets = common_tiers(subjects, RACE)
    rows: list[tuple[Any, ...]] = []
    for split, group in grouped(subjects).items() if budgets else ():
        nearer = [[s.above((GREEDY, b)) - s.above((RACE, b)) for s in group] for b in budgets]
        gains = [[s.aoi((RACE, b)) - s.aoi((GREEDY, b)) for s in group] for b in budgets]
        rows.append(
            (
                "at least as near",
                split,
                *(Share.of_all(gain >= 0 for gain in each) for each in nearer),
            )
        )
        rows.append(("points of distance nearer", split, *map(spread, nearer)))
        rows.append(("points of AOI", split, *map(spread, gains)))
    columns = (Column("what"), Column("split"), *tier_columns(budgets, "gain"))
    return Table(f"Race against greedy in {SYMBOLS[norm]}", columns, tuple(rows))


def contributions(subjects: Sequence[Subject], *, norm: str) -> Table:
    """What each run adds to the frontier: samples on which it is nearest, and alone, and the AOI lost without it."""
    every = [
        {each.run: each for each in contributions_of(subject.ends)}
        for subject in subjects
        if subject.ends
    ]
    runs = [run for run in (every[0] if every else {}) if all(run in found for found in every)]
    samples = sum(int(((s.frontier > 0) & (s.frontier < np.inf)).sum()) for s in subjects)
    rows = []
    for run in runs:
        own = [found[run] for found in every]
        wins, alone = (
            Share(sum(counts), samples)
            for counts in zip(*((c.wins, c.alone) for c in own), strict=True)
        )
        rows.append((run, wins, alone, float(np.mean([c.loss for c in own]))))
    rows.sort(key=lambda row: (-row[2].count, -row[1].count))
    columns = (
        Column(SYMBOLS[norm], "code", key="run"), Column("nearest", "integer"), Column("alone", "integer"),
        Column("AOI lost without it (points)", "fine", key="loss"),
    )  # fmt: skip
    return Table(f"What each run adds in {SYMBOLS[norm]}", columns, tuple(rows))


def without(subjects: Sequence[Subject], *, norm: str) -> Table:
    """By how much the frontier's mean distance rises, and its AOI falls, without parts of the pool."""
    traced = [subject for subject in subjects if subject.ends]
    runs = {name: Run.parse(name) for subject in traced for name in subject.ends}
    restarts, targets = (
        {n for n, run in runs.items() if run.variant == kind} for kind in ("restart", "target")
    )
    parts = {
        "restarts": restarts,
        "targets": targets,
        "restarts and targets": restarts | targets,
        "black-box runs": {name for name, run in runs.items() if _black_box(run.solver)},
    }
    for name, run in runs.items():
        parts.setdefault(run.solver, set()).add(name)
    rows: list[tuple[Any, ...]] = []
    for what, dropped in parts.items():
        if dropped and len(dropped) < len(runs):
            kept = [
                np.min([d for run, d in s.ends.items() if run not in dropped], axis=0)
                for s in traced
            ]
            rises = [excess(found, s.traced) for s, found in zip(traced, kept, strict=True)]
            falls = [1 - aoi(found, s.traced).value for s, found in zip(traced, kept, strict=True)]
            worst = int(np.argmax(rises))
            means = float(np.mean(rises)), float(np.mean(falls))
            rows.append((what, len(dropped), *means, traced[worst].model, rises[worst]))
    columns = (
        Column(f"{SYMBOLS[norm]}, without", key="without"), Column("runs", "integer"),
        Column("distance rises by (%)", "fine", key="rise"), Column("AOI lost (points)", "fine", key="loss"),
        Column("most on", key="model"), Column("there by (%)", "fine", key="rise there"),
    )  # fmt: skip
    return Table(f"The pool without parts of it in {SYMBOLS[norm]}", columns, tuple(rows))
