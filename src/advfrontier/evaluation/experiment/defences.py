"""The tables about models: DOI at every tier, ranks against ε, crossings, and what the smallest tier decides."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.frontier.baseline import baseline_radii
from advfrontier.frontier.comparison import lies_below
from advfrontier.frontier.confidence import curve_band
from advfrontier.frontier.curve import aurec, epsilon_min
from advfrontier.frontier.defence import ReferencePool, defence_frontier
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.stability import Reversal, rank_stability, reversals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.experiment.subject import Subject


@dataclass(frozen=True)
class DoiRow:
    """DOI and rank of one model at every tier."""

    model: str
    dois: dict[int, float]
    positions: dict[int, str]  # as printed; in brackets where the distances cannot be trusted
    flags: tuple[str, ...]


@dataclass(frozen=True)
class DoiTable:
    """Models by DOI at the largest tier, best first."""

    rows: tuple[DoiRow, ...]
    same_order: bool  # whether every tier gives the same strict order
    moved: float  # the most that a DOI differs between tiers


@dataclass(frozen=True)
class Instability:
    """Ranks by robust accuracy at ten radii, by the largest tier."""

    epsilons: tuple[float, ...]
    reference: float | None
    ranks: dict[str, tuple[int, ...]]
    moved: dict[str, int]  # positions between a model's best and worst rank
    by_two: int  # models that move by at least two ranks
    by_five: int


@dataclass(frozen=True)
class Crossings:
    """Pairs of models whose order at the reference ε is reversed beyond it, by the largest tier."""

    reference: float
    pairs: int
    reversals: tuple[Reversal, ...]  # the widest first
    margin: float  # what chance alone may shift a curve by: smaller leads prove little
    beyond_margin: int


@dataclass(frozen=True)
class EarlyRejection:
    """A model whose curve at the smallest tier lies below another's at the largest already."""

    tier: int
    largest: int
    reference: str  # the best model, evaluated with the largest tier
    candidate: str  # the strongest that the smallest tier rejects against it
    rejected: tuple[str, ...]  # all that it rejects
    pairs: int  # ordered pairs of models where one lies below the other by the largest tier
    decided: int  # of these, the ones that the smallest tier of the lower model decides
    aurec: tuple[float, float]  # of the reference and of the candidate, up to one E


@dataclass(frozen=True)
class DefenceTables:
    """All tables about the models of one data set in one norm."""

    doi: DoiTable | None
    instability: Instability | None
    crossings: Crossings | None
    early_rejection: EarlyRejection | None
    notes: tuple[str, ...]  # what is missing, and why


@dataclass(frozen=True, eq=False)
class Defences:
    """The models of one data set: their distances, the defence frontier of the largest tier, and the tables."""

    data: str
    reference: float | None  # the reference ε
    subjects: tuple[Subject, ...]
    frontier: NDArray[np.float64]
    tables: DefenceTables


def defences(subjects: Sequence[Subject], *, norm: str, data: str, reference: float | None) -> Defences:
    """The models of one data set, all evaluated on the same samples, against each other."""
    for subject in subjects[1:]:
        check_same_samples(subjects[0].samples, subject.samples, names=(subjects[0].model, subject.model))
    pools = {tier: pool_at(subjects, tier, norm=norm, dataset=data) for tier in subjects[0].tiers}
    last = pools[max(pools)]
    flagged = last.flagged
    trusted = [subject for subject in subjects if subject.model not in flagged] or list(subjects)
    distances = {subject.model: subject.tiers[last.queries] for subject in trusted}
    frontier = defence_frontier(distances)
    ranked = doi_table(pools)
    notes = []
    if ranked is None:
        notes.append("no DOI: at some tier every model has samples that were never broken, or is in doubt")
    if len(trusted) < len(subjects):
        left_out = ", ".join(model for model in flagged)
        notes.append(f"left out of ranks by radius, crossings and rejections, because it is in doubt: {left_out}")
    if reference is None:
        notes.append("no reference radius is given: no robust accuracy and no crossings")
    tables = DefenceTables(
        doi=ranked,
        instability=instability(distances, frontier, reference),
        crossings=find_crossings(distances, reference) if reference is not None else None,
        early_rejection=early_rejection(trusted, [row.model for row in ranked.rows]) if ranked else None,
        notes=tuple(notes),
    )
    return Defences(data, reference, tuple(subjects), frontier, tables)


def pool_at(subjects: Sequence[Subject], tier: int, *, norm: str, dataset: str) -> ReferencePool:
    """The models as a pool to rank in, by one tier."""
    return ReferencePool(
        norm=norm,
        dataset=dataset,
        queries=tier,
        samples=subjects[0].samples,
        distances={subject.model: subject.tiers[tier] for subject in subjects},
        flags={subject.model: subject.doubts for subject in subjects if subject.doubts},
    )


def doi_table(pools: Mapping[int, ReferencePool]) -> DoiTable | None:
    """DOI at every tier; None where no model can be trusted, so that there is no frontier."""
    if any(len(pool.flagged) == len(pool.distances) for pool in pools.values()):
        return None
    ranked = {tier: {row.model: row for row in pool.rank()} for tier, pool in pools.items()}
    last = ranked[max(ranked)]
    orders = {tuple(table) for table in ranked.values()}
    dois = {model: {tier: table[model].doi.value for tier, table in ranked.items()} for model in last}
    return DoiTable(
        rows=tuple(
            DoiRow(
                model,
                dois[model],
                {tier: table[model].position for tier, table in ranked.items()},
                pools[max(pools)].flagged.get(model, ()),
            )
            for model in last
        ),
        same_order=len(orders) == 1,
        moved=max(max(values.values()) - min(values.values()) for values in dois.values()),
    )


def instability(
    distances: Mapping[str, NDArray[np.float64]], frontier: NDArray[np.float64], reference: float | None
) -> Instability | None:
    """Ranks at nine percentiles of the defence frontier and the reference ε; None if nothing was ever broken."""
    if not ((frontier > 0) & np.isfinite(frontier)).any():
        return None
    found = rank_stability(distances, epsilons=baseline_radii(frontier, reference=reference))
    return Instability(
        epsilons=tuple(found.epsilons.tolist()),
        reference=reference,
        ranks={model: tuple(row.tolist()) for model, row in zip(found.models, found.ranks, strict=True)},
        moved=found.moved,
        by_two=sum(moved >= 2 for moved in found.moved.values()),
        by_five=sum(moved >= 5 for moved in found.moved.values()),
    )


def find_crossings(distances: Mapping[str, NDArray[np.float64]], reference: float) -> Crossings:
    """The pairs that change places beyond the reference ε."""
    found = reversals(distances, reference=reference)
    margin = curve_band(next(iter(distances.values()))).margin
    count = len(distances)
    return Crossings(
        reference=reference,
        pairs=count * (count - 1) // 2,
        reversals=found,
        margin=margin,
        beyond_margin=sum(reversal.lead > margin for reversal in found),
    )


def early_rejection(subjects: Sequence[Subject], order: Sequence[str]) -> EarlyRejection | None:
    """What the smallest tier rejects against the best model of `order`; None if it rejects nothing."""
    first, last = min(subjects[0].tiers), max(subjects[0].tiers)
    early = {subject.model: subject.tiers[first] for subject in subjects}
    late = {subject.model: subject.tiers[last] for subject in subjects}
    below = [(a, b) for a, b in permutations(late, 2) if lies_below(late[a], late[b])]
    decided = [(a, b) for a, b in permutations(late, 2) if lies_below(early[a], late[b])]
    for reference in order:
        rejected = tuple(model for model in order if (model, reference) in decided)
        if rejected:
            limit = epsilon_min(np.concatenate((late[reference], early[rejected[0]]))).value
            areas = aurec(late[reference], E=limit).value, aurec(early[rejected[0]], E=limit).value
            return EarlyRejection(first, last, reference, rejected[0], rejected, len(below), len(decided), areas)
    return None
