"""The tables about models: who they are, DOI at every tier, ranks against ε, crossings, what the smallest tier decides.

| paper | here |
|---|---|
| the model pool | `models` |
| DOI at three tiers | `doi`, `doi_between_tiers` |
| rank instability, by AutoAttack and by the largest tier | `ranks_by_radius`, `rank_moves` |
| crossings past the reference ε | `crossings`, `crossing_pairs` |
| early rejection | `early_rejection` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.subject import ModelGroup, tier_columns
from advfrontier.frontier.comparison import (
    RankStability,
    lies_below,
    rank_accuracies,
    rank_stability,
)
from advfrontier.frontier.confidence import curve_margin
from advfrontier.frontier.curve import aurec, epsilon_min
from advfrontier.frontier.optimality import baseline_radii, known_up_to, straight_accuracies
from advfrontier.frontier.ranking import rank_table
from advfrontier.pool import tier_label
from advfrontier.table import Column, Table
from advfrontier.threat.names import SYMBOLS


def models(listed: Sequence[BenchmarkModel], groups: Mapping[str, ModelGroup]) -> Table:
    """The models of one data set in the order of the benchmark, with accuracy and their rank in every norm."""
    data = listed[0].data
    named, apart = (
        any(model.authors for model in listed),
        any(model.baseline_batch != model.batch for model in listed),
    )
    columns = (
        Column(data, key="model"), *([Column("authors")] if named else []), Column("source", "code"),
        Column("trained in"), Column("split"), Column("batch", "integer"),
        *([Column("AutoAttack's batch", "integer")] if apart else []), Column("accuracy", "percent"),
        *(Column(f"rank in {SYMBOLS[norm]}", "integer", key=f"rank in {norm}") for norm in groups),
    )  # fmt: skip
    rows = []
    for model in listed:
        clean = next(
            (s.clean for group in groups.values() for s in group.subjects if s.model == model.id),
            None,
        )
        row: list[Any] = [model.id, *([model.authors or None] if named else []), model.source]
        row += [
            ", ".join(SYMBOLS[norm] for norm in model.trained) or None,
            model.split,
            model.batch,
        ]
        row += [model.baseline_batch] if apart else []
        rows.append((*row, clean, *(group.rank(model.id) for group in groups.values())))
    told = {
        model.id: "; ".join(text for text in (model.origin, model.note) if text) for model in listed
    }
    notes = tuple(f"{model}: {text}" for model, text in told.items() if text)
    return Table(f"Models of {data}", columns, tuple(rows), notes)


def doi(group: ModelGroup, *, title: str) -> Table:
    """DOI of every model at every tier, by rank at the largest; models in doubt in brackets and last."""
    rows = [
        (group.rank(model), model, *(group.doi(model, tier) for tier in group.tiers))
        for model in group.order
    ]
    notes = []
    for model in group.order:
        flags = {
            tier: pool.flagged[model] for tier, pool in group.pools.items() if model in pool.flagged
        }
        told = []
        for flag in dict.fromkeys(flag for each in flags.values() for flag in each):
            at = [tier_label(tier) for tier, each in flags.items() if flag in each]
            told.append(
                flag.text if len(at) == len(group.tiers) else f"{flag.text} (at {', '.join(at)})"
            )
        notes += [f"{model}: {'; '.join(told)}"] if told else []
    columns = (
        Column(title, "integer", key="rank"),
        Column("model"),
        *tier_columns(group.tiers, "percent"),
    )
    return Table(f"DOI in {title}", columns, tuple(rows), tuple(notes))


def doi_between_tiers(group: ModelGroup) -> Table:
    """Whether all tiers order the models alike, and the most that a DOI differs between them.

    A model that only a small tier leaves unbroken is missing from that tier's frontier, which moves everybody's DOI.
    Tiers are therefore compared in the pool of those models alone that are trusted at all of them.
    """
    same_order: str | None = None
    moved: float | None = None
    if len(group.steady) > 1:
        tables = [
            {r.model: r.doi.estimate for r in rank_table(pool.only(group.steady), resamples=1).rows}
            for pool in group.pools.values()
        ]
        same_order = "yes" if len({tuple(table) for table in tables}) == 1 else "no"
        moved = max(np.ptp([table[model] for table in tables]).item() for model in group.steady)
    columns = (
        Column("models", "integer"), Column("trusted at every tier", "integer"), Column("same order at every tier"),
        Column("most that a DOI moves (points)", "percent", key="most that a DOI moves"),
    )  # fmt: skip
    row = (len(group.order), len(group.steady), same_order, moved)
    return Table("DOI between tiers", columns, (row,) if group.order else ())


def baseline_stability(group: ModelGroup) -> tuple[RankStability, RankStability] | None:
    """Ranks as the baseline orders the models, and as the largest tier does at the same radii; None below two models.

    The radii are nine percentiles of all that the baseline was run at, as far as it goes on every model, and the
    reference ε. Every model has radii of its own: its accuracy at the others is read off the straight lines of its AOI.
    """
    known = {
        subject.model: (subject, subject.known)
        for subject in group.trusted
        if subject.known is not None
    }
    if len(known) < 2:
        return None
    reach = min(known_up_to(points.radii, points.accuracies) for _, points in known.values())
    inside = [radius for _, points in known.values() for radius in points.radii if radius <= reach]
    common = group.reference if group.reference is not None and group.reference <= reach else None
    grid = baseline_radii(inside, reference=common)
    lines = {
        model: straight_accuracies(points.radii, points.accuracies, grid, clean=subject.clean)
        for model, (subject, points) in known.items()
    }
    distances = {model: subject.last for model, (subject, _) in known.items()}
    return rank_accuracies(lines, epsilons=grid), rank_stability(distances, epsilons=grid)


def rankings(group: ModelGroup) -> dict[str, RankStability]:
    """Ranks against ε by the largest tier, at nine percentiles of the defence frontier and the reference ε.

    Where there is a baseline by it too, and by the tier at the same radii; nothing by the tier if nothing was broken.
    """
    found, last = {}, tier_label(max(group.tiers))
    if ((group.frontier > 0) & np.isfinite(group.frontier)).any():
        grid = baseline_radii(group.frontier, reference=group.reference)
        found[last] = rank_stability(group.distances, epsilons=grid)
    if known := baseline_stability(group):
        found["AutoAttack"], found[f"{last} where AutoAttack was run"] = known
    return found


def ranks_by_radius(ranking: RankStability, *, by: str) -> Table:
    """Rank of every model at every radius, and how far it moves."""
    at = (
        Column(f"ε = {ε:.3g}", "integer", key=f"rank at {ε!r}") for ε in ranking.epsilons.tolist()
    )
    columns = (Column("model"), Column("ranks moved", "integer"), *at)
    rows = zip(ranking.models, ranking.moved.values(), ranking.ranks.tolist(), strict=True)
    return Table(
        f"Ranks by {by}", columns, tuple((model, moved, *ranks) for model, moved, ranks in rows)
    )


def rank_moves(group: ModelGroup) -> Table:
    """How many models move by several ranks from radius to radius, and which moves most."""
    rows = []
    for by, ranking in rankings(group).items():
        moved = list(ranking.moved.values())
        by_two, by_five = (sum(ranks >= least for ranks in moved) for least in (2, 5))
        most = ranking.models[moved.index(max(moved))] if max(moved) else None
        ends = float(ranking.epsilons[0]), float(ranking.epsilons[-1])
        rows.append((by, *ends, len(moved), by_two, by_five, most, max(moved)))
    columns = (
        Column("by"), Column("from ε", "size"), Column("to ε", "size"), Column("models", "integer"),
        Column("move by 2 or more", "integer"), Column("by 5 or more", "integer"), Column("most"),
        Column("ranks", "integer"),
    )  # fmt: skip
    return Table("Ranks against the radius", columns, tuple(rows))


def crossings(group: ModelGroup) -> Table:
    """How many pairs change places beyond the reference ε, and how many by more than chance may shift a curve."""
    columns = (
        Column("ε", "number", key="epsilon"), Column("pairs", "integer"), Column("change places", "integer"),
        Column("other samples may shift a curve by (points)", "percent", key="margin"),
        Column("change by more", "integer"),
    )  # fmt: skip
    margin = curve_margin(len(group.subjects[0].samples))
    pairs, wide = (
        math.comb(len(group.distances), 2),
        sum(pair.lead > margin for pair in group.reversals),
    )
    row = (group.reference, pairs, len(group.reversals), margin, wide)
    return Table("Crossings", columns, () if group.reference is None else (row,))


def crossing_pairs(group: ModelGroup) -> Table:
    """The pairs that change places beyond the reference ε, the widest first."""
    columns = (
        Column("ahead at the reference"), Column("overtaken by"), Column("from ε on", "size", key="epsilon"),
        Column("lead in points", "percent", key="lead"),
    )  # fmt: skip
    rows = tuple(
        (pair.leader, pair.overtaken_by, pair.epsilon, pair.lead) for pair in group.reversals
    )
    return Table("Pairs that change places", columns, rows)


def rejection(group: ModelGroup) -> tuple[str, tuple[str, ...]] | None:
    """The best model against which the smallest tier rejects others, and those it rejects; None if there is none.

    A model is rejected if its curve at the smallest tier lies below the other's at the largest already.
    """
    order = [model for model in group.order if model in group.early]
    for reference in order:
        others = (model for model in order if model != reference)
        if rejected := tuple(
            m for m in others if lies_below(group.early[m], group.distances[reference])
        ):
            return reference, rejected
    return None


def early_rejection(group: ModelGroup) -> Table:
    """What the smallest tier rejects: the strongest of them, areas up to one E, and how many pairs it decides."""
    columns = (
        Column("rejected"), Column("at", key="tier"), Column("AUREC", "size"), Column("against"),
        Column("at its", key="tier of the other"), Column("its AUREC", "size", key="AUREC of the other"),
        Column("pairs with one curve below", "integer"), Column("decided by the smallest tier", "integer"),
        Column("all it rejects", folds=True),
    )  # fmt: skip
    decision = rejection(group)
    if decision is None:
        return Table("Early rejection", columns, ())
    reference, rejected = decision
    pairs = list(permutations(group.distances, 2))
    below, decided = (
        sum(lies_below(found[a], group.distances[b]) for a, b in pairs)
        for found in (group.distances, group.early)
    )
    own, other = group.early[rejected[0]], group.distances[reference]
    limit = epsilon_min(np.concatenate((own, other))).value
    area, its_area = (aurec(distances, E=limit).value for distances in (own, other))
    first, last = tier_label(min(group.tiers)), tier_label(max(group.tiers))
    row = (rejected[0], first, area, reference, last, its_area, below, decided, ", ".join(rejected))
    return Table("Early rejection", columns, (row,))


def tables(group: ModelGroup, *, title: str) -> dict[str, Table]:
    """All of them by name; those that have nothing to show are left out."""
    ranks = {by: ranks_by_radius(ranking, by=by) for by, ranking in rankings(group).items()}
    every = {
        "doi": doi(group, title=title),
        "doi_between_tiers": doi_between_tiers(group),
        "crossings": crossings(group),
        "crossing_pairs": crossing_pairs(group),
        "rank_moves": rank_moves(group),
        **{f"ranks_by_{by.lower().replace(' ', '_')}": table for by, table in ranks.items()},
        "early_rejection": early_rejection(group),
    }
    return {name: table for name, table in every.items() if table.rows}
