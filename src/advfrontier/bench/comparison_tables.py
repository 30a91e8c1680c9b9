"""The tables about choices: how else the queries could be given out, and what each part of the pool is good for.

The paper has none of these. All but the race are read off the traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from advfrontier.bench.attack_tables import mean_above, mean_aoi
from advfrontier.bench.rivals import BEST_ATTACK, BEST_RUN, RANDOM, UNIFORM
from advfrontier.bench.subject import GREEDY, PAPER, RACE, Subject, by_split, grouped, spread, tier_columns
from advfrontier.frontier.contribution import contributions as contributions_of
from advfrontier.frontier.optimality import aoi, excess
from advfrontier.pool import Run, facts_of
from advfrontier.table import Column, Share, Spread, Table
from advfrontier.threat.names import SYMBOLS

_COMPARED = (GREEDY, RACE, PAPER, UNIFORM, BEST_ATTACK, BEST_RUN)


def allocations(subjects: Sequence[Subject], given: Mapping[str, str], *, norm: str) -> Table:
    """Mean AOI, and mean distance above the frontier, of every way to give out the same queries.

    `given` says in words what some of them are.
    """
    budgets = list(subjects[0].tiers)
    rows: list[tuple[Any, ...]] = []
    for split, group in by_split(subjects).items():
        known = [name for name in group[0].families if all(name in subject.families for subject in group)]
        drawn = [name for name in known if name.startswith(RANDOM)]
        rows += [(name, split, *_means(group, name, budgets)) for name in _COMPARED if name in known]
        if drawn:
            found = np.array([_means(group, name, budgets) for name in drawn])
            spreads = zip(found.mean(axis=0).tolist(), found.std(axis=0).tolist(), strict=True)
            rows.append((f"{RANDOM}, {len(drawn)} draws", split, *(Spread(*pair) for pair in spreads)))
    columns = [Column(SYMBOLS[norm], key="queries given out by"), Column("split")]
    columns += [*tier_columns(budgets, "fine", "AOI at {}"), *tier_columns(budgets, "fine", "above at {}")]
    notes = tuple(f"{name}: {text}" for name, text in given.items())
    return Table(f"Ways to give out queries in {SYMBOLS[norm]}", tuple(columns), tuple(rows), notes)


def _means(group: Sequence[Subject], family: str, budgets: Sequence[int]) -> list[float | None]:
    """Mean AOI at every budget, then mean distance above the frontier; None where nothing was given out."""
    known = group[0].families[family]
    above = {b: mean_above(group, family, b) for b in known}
    return [*(mean_aoi(group, family, b) if b in known else None for b in budgets), *map(above.get, budgets)]


def race_against_greedy(subjects: Sequence[Subject], *, norm: str) -> Table:
    """On how many models a race is at least as near as the greedy ensemble of its budget, and what it gains."""
    budgets = [tier for tier in subjects[0].tiers if all(tier in s.families.get(RACE, {}) for s in subjects)]
    rows: list[tuple[Any, ...]] = []
    for split, group in grouped(subjects).items() if budgets else ():
        nearer: list[list[float]] = [
            [excess(s.families[GREEDY][b], s.frontier) - excess(s.families[RACE][b], s.frontier) for s in group]
            for b in budgets
        ]
        gains = [[s.aoi((RACE, b)) - s.aoi((GREEDY, b)) for s in group] for b in budgets]
        rows.append(("at least as near", split, *(Share.of_all(gain >= 0 for gain in each) for each in nearer)))
        rows.append(("points of distance nearer", split, *map(spread, nearer)))
        rows.append(("points of AOI", split, *map(spread, gains)))
    columns = (Column("what"), Column("split"), *tier_columns(budgets, "gain"))
    return Table(f"Race against greedy in {SYMBOLS[norm]}", columns, tuple(rows))


def contributions(subjects: Sequence[Subject], *, norm: str) -> Table:
    """What each run adds to the frontier: samples on which it is nearest, and alone, and the AOI lost without it."""
    every = [{each.run: each for each in contributions_of(subject.ends)} for subject in subjects if subject.ends]
    runs = [run for run in (every[0] if every else {}) if all(run in found for found in every)]
    samples = sum(int(((s.frontier > 0) & (s.frontier < np.inf)).sum()) for s in subjects)
    rows = [
        (
            run,
            Share(sum(found[run].wins for found in every), samples),
            Share(sum(found[run].alone for found in every), samples),
            float(np.mean([found[run].loss for found in every])),
        )
        for run in runs
    ]
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
    parts: dict[str, Callable[[Run], bool]] = {
        "restarts": lambda run: run.variant == "restart",
        "targets": lambda run: run.variant == "target",
        "restarts and targets": lambda run: run.variant != "base",
        "black-box runs": lambda run: (facts := facts_of(run.solver)) is not None and facts.step_queries == 1,
    }
    for solver in dict.fromkeys(run.solver for run in runs.values()):
        parts[solver] = lambda run, solver=solver: run.solver == solver  # type: ignore[misc]
    rows: list[tuple[Any, ...]] = []
    for what, left_out in parts.items():
        dropped = [name for name, run in runs.items() if left_out(run)]
        if dropped and len(dropped) < len(runs):
            kept = [np.min([d for run, d in s.ends.items() if run not in dropped], axis=0) for s in traced]
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
