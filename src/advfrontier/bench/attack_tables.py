"""The tables about attacks: the pool, what the ensembles consist of, what they and the race reach, and how it grows.

| paper | here |
|---|---|
| the attack pool | `pool` |
| deployable ensembles | `ensembles`, `tiers` |
| AOI against Q, training and held-out models | `growth`, `gains` |

How far the tiers are from the frontier of the pool, in distances, is `above`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from advfrontier.bench.published import PUBLISHED
from advfrontier.bench.subject import GREEDY, PAPER, RACE, Subject, by_split, grouped, shown_tiers, tier_columns
from advfrontier.frontier.optimality import excess
from advfrontier.pool import Ensemble, Run, facts_of, tier_label
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS

_VARIANTS = {"base": "base", "restart": "restarts", "target": "targets"}


def pool(subjects: Mapping[str, Sequence[Subject]]) -> Table:
    """The solvers that were traced, in how many runs per norm, and which of them the paper has."""
    runs = {norm: list(dict.fromkeys(run for s in group for run in s.ends)) for norm, group in subjects.items()}
    parsed = {norm: [Run.parse(name) for name in names] for norm, names in runs.items()}
    rows = []
    for solver in dict.fromkeys(run.solver for own in parsed.values() for run in own):
        facts = facts_of(solver)
        own = [run for group in parsed.values() for run in group if run.solver == solver]
        most = [max((r.index for r in own if r.variant == kind), default=None) for kind in ("restart", "target")]
        uses = "no gradient" if facts and facts.step_queries == 1 else "gradient"
        counts = [sum(run.solver == solver for run in group) or None for group in parsed.values()]
        rows.append((solver, uses, "yes" if facts and "paper" in facts.pools else "no", *most, *counts))
    if rows:
        rows.append(("all", None, None, None, None, *(len(group) for group in parsed.values())))
    columns = (
        Column("solver"), Column("uses"), Column("in the paper"), Column("restarts", "integer"),
        Column("targets", "integer"),
        *(Column(f"runs in {SYMBOLS[norm]}", "integer", key=f"runs in {norm}") for norm in subjects),
    )  # fmt: skip
    return Table("The attack pool", columns, tuple(rows))


def ensembles(
    own: Mapping[int, Ensemble], papers: Mapping[int, Ensemble], subjects: Sequence[Subject], *, norm: str
) -> Table:
    """Queries of each attack's base run, and of all its restarts or targets together, at every tier.

    The paper's ensembles are shown where all of their runs were traced on every model.
    """
    shown = shown_tiers(subjects).values()
    paper = {tier: papers[tier] for family, tier in shown if family == PAPER and tier in papers}
    tables = [_by_variant(ensemble) for ensemble in (*own.values(), *paper.values())]
    seen = list(dict.fromkeys(key for table in tables for key in table))
    attacks, variants = [attack for attack, _ in seen], list(_VARIANTS.values())
    order = sorted(seen, key=lambda key: (attacks.index(key[0]), variants.index(key[1])))
    columns = (*tier_columns(own, "count"), *tier_columns(paper, "count", "paper {}"))
    rows = tuple((*key, *(table.get(key) for table in tables)) for key in order)
    return Table(f"Ensembles in {SYMBOLS[norm]}", (Column(SYMBOLS[norm], key="attack"), Column("runs"), *columns), rows)


def _by_variant(ensemble: Ensemble) -> Counter[tuple[str, str]]:
    queries_of: Counter[tuple[str, str]] = Counter()
    for run, queries in ((Run.parse(name), queries) for name, queries in ensemble.queries.items()):
        queries_of[run.attack, _VARIANTS[run.variant]] += queries
    return queries_of


def tiers(own: Mapping[int, Ensemble], subjects: Sequence[Subject], *, norm: str) -> Table:
    """What each ensemble reaches on the models it was made from and on the others, and what no allocation can pass.

    The same of the race, whose choices no bound is known for: a sample may spend its queries on the runs it needs.
    """
    apart = by_split(subjects).get("held-out")
    rows: list[tuple[Any, ...]] = [
        (f"{GREEDY}-{tier_label(tier)}", ensemble.total, len(ensemble.runs), ensemble.aoi, ensemble.bound)
        + ((mean_aoi(apart, GREEDY, tier),) if apart else ())
        for tier, ensemble in own.items()
    ]
    for name, (family, tier) in shown_tiers(subjects).items() if subjects else ():
        if family == RACE:
            reached = mean_aoi(by_split(subjects).get("train", []), RACE, tier)
            rows.append((name, tier, None, reached, None, *((mean_aoi(apart, RACE, tier),) if apart else ())))
    columns = [
        Column(SYMBOLS[norm], key="tier"), Column("queries", "count"), Column("runs", "integer"),
        Column("AOI (%)", "fine", key="aoi"), Column("no allocation passes (%)", "fine", key="bound"),
    ]  # fmt: skip
    columns += [Column("AOI of held-out models (%)", "fine", key="aoi of held-out models")] if apart else []
    return Table(f"What each tier reaches in {SYMBOLS[norm]}", tuple(columns), tuple(rows))


def mean_aoi(subjects: Sequence[Subject], family: str, tier: int) -> float | None:
    """Mean AOI over models; None if there are none."""
    return float(np.mean([s.aoi((family, tier)) for s in subjects])) if subjects else None


def mean_above(subjects: Sequence[Subject], family: str, tier: int) -> float:
    """By how much distances exceed the frontier, on average over models."""
    return float(np.mean([excess(s.families[family][tier], s.frontier) for s in subjects]))


def above(subjects: Sequence[Subject], *, norm: str) -> Table:
    """By how much distances exceed the frontier on average: every model, and the mean of each split."""
    shown = shown_tiers(subjects)
    found = {s.model: [excess(s.families[f][tier], s.frontier) for f, tier in shown.values()] for s in subjects}
    rows = [(s.model, s.split, *found[s.model]) for s in subjects]
    for split, group in grouped(subjects).items():
        rows.append(("mean", split, *np.mean([found[s.model] for s in group], axis=0).tolist()))
    columns = (Column(SYMBOLS[norm], key="model"), Column("split"), *(Column(name, "fine") for name in shown))
    return Table(f"Mean distance above the frontier in {SYMBOLS[norm]}", columns, tuple(rows))


def gains(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Points of mean AOI that a tier adds to a smaller one; beside it the paper's."""
    shown = shown_tiers(subjects)
    families = list(dict.fromkeys(family for family, _ in shown.values()))
    rows = []
    for split, group in by_split(subjects).items():
        printed = PUBLISHED[norm][split].aois
        for low, high in combinations(subjects[0].tiers, 2):
            ours = [
                mean_aoi(group, f, high) - mean_aoi(group, f, low)  # type: ignore[operator]  # the group has models
                if {(f, low), (f, high)} <= set(shown.values())
                else None
                for f in families
            ]
            theirs = printed[high].mean - printed[low].mean if {low, high} <= set(printed) else None
            rows.append((f"{tier_label(low)} to {tier_label(high)}", split, *ours, theirs))
    columns = (Column("tiers"), Column("split"), *(Column(family, "gain") for family in families))
    title = f"What a larger tier adds in {SYMBOLS[norm]}"
    return Table(title, (*columns, Column("published", "gain")), tuple(rows))


def mean_growth(subjects: Sequence[Subject]) -> dict[str, dict[int, float]]:
    """Split → queries → mean AOI of its models."""
    return {
        split: {queries: float(np.mean([subject.growth[queries] for subject in group])) for queries in group[0].growth}
        for split, group in by_split(subjects).items()
    }


def growth(subjects: Sequence[Subject], *, norm: str) -> Table:
    """Mean AOI against queries, over the models the ensembles were made from and over the others."""
    growth_of = mean_growth(subjects)
    rows = [(queries, *(series[queries] for series in growth_of.values())) for queries in subjects[0].growth]
    columns = (Column("queries", "integer"), *(Column(split, "fine") for split in growth_of))
    return Table(f"Mean AOI against queries in {SYMBOLS[norm]}", columns, tuple(rows))
