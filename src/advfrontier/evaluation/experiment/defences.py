"""The tables about models: DOI at every tier, ranks against ε, crossings, and what the smallest tier decides."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from advfrontier.evaluation.evaluated import flags_of
from advfrontier.frontier.baseline import baseline_radii, known_up_to, straight_accuracies
from advfrontier.frontier.comparison import lies_below
from advfrontier.frontier.confidence import curve_band
from advfrontier.frontier.curve import aurec, epsilon_min
from advfrontier.frontier.defence import ReferencePool, defence_frontier
from advfrontier.frontier.measure import check_same_samples
from advfrontier.frontier.ranking import rank_table
from advfrontier.frontier.stability import Reversal, rank_accuracies, rank_stability, reversals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from advfrontier.evaluation.experiment.subject import Subject
    from advfrontier.frontier.stability import RankStability


@dataclass(frozen=True)
class DoiRow:
    """DOI and rank of one model at every tier that has a frontier."""

    model: str
    dois: dict[int, float]
    positions: dict[int, str]  # as printed; in brackets where the distances of that tier cannot be trusted
    flags: dict[int, tuple[str, ...]]  # why, at the tiers where it is so

    def bracketed(self, tier: int) -> bool:
        """Whether its distances at this tier cannot be trusted: it is then no part of that tier's frontier."""
        return tier in self.flags


@dataclass(frozen=True)
class DoiTable:
    """Models by DOI at the largest tier, best first.

    A model that only a small tier leaves unbroken is missing from that tier's frontier, which moves everybody's DOI.
    What compares tiers is therefore found in the pool of those models alone that are trusted at all of them.
    """

    rows: tuple[DoiRow, ...]
    steady: tuple[str, ...]  # trusted at every tier
    same_order: bool | None  # whether every tier puts those in the same strict order; None if there are not two
    moved: float | None  # the most that one of their DOIs, among themselves, differs between tiers


@dataclass(frozen=True)
class Instability:
    """Ranks by robust accuracy at ten radii."""

    epsilons: tuple[float, ...]
    reference: float | None
    ranks: dict[str, tuple[int, ...]]
    moved: dict[str, int]  # positions between a model's best and worst rank
    by_two: int  # models that move by at least two ranks
    by_five: int

    @classmethod
    def of(cls, found: RankStability, reference: float | None) -> Instability:
        """How far the models move."""
        return cls(
            epsilons=tuple(found.epsilons.tolist()),
            reference=reference,
            ranks={model: tuple(row.tolist()) for model, row in zip(found.models, found.ranks, strict=True)},
            moved=found.moved,
            by_two=sum(moved >= 2 for moved in found.moved.values()),
            by_five=sum(moved >= 5 for moved in found.moved.values()),
        )


@dataclass(frozen=True)
class BaselineInstability:
    """The same as the baseline orders the models, which the paper shows, and as the largest tier does there."""

    baseline: Instability
    tier: Instability  # at the same radii, of the same models: what differs is due to the attack alone


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
    instability: Instability | None  # by the largest tier
    baseline_instability: BaselineInstability | None
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
        notes.append("no DOI: every model has samples that were never broken, or is in doubt")
    elif absent := [tier for tier in pools if tier not in ranked.rows[0].dois]:
        named = ", ".join(str(tier) for tier in absent)
        notes.append(f"no DOI with {named} queries: they leave samples of every model unbroken")
    if len(trusted) < len(subjects):
        left_out = ", ".join(model for model in flagged)
        notes.append(f"left out of ranks by radius, crossings and rejections, because it is in doubt: {left_out}")
    if reference is None:
        notes.append("no reference radius is given: no robust accuracy and no crossings")
    tables = DefenceTables(
        doi=ranked,
        instability=instability(distances, frontier, reference),
        baseline_instability=baseline_instability(trusted, reference),
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
        flags={subject.model: flags_of(subject.doubts) for subject in subjects if subject.doubts},
    )


def doi_table(pools: Mapping[int, ReferencePool]) -> DoiTable | None:
    """DOI at every tier where some model can be trusted; None if there is none, so that there is no frontier."""
    usable = {tier: pool for tier, pool in pools.items() if len(pool.flagged) < len(pool.distances)}
    if not usable:
        return None
    ranked = {tier: {row.model: row for row in rank_table(pool).rows} for tier, pool in usable.items()}
    flagged = {tier: pool.flagged for tier, pool in pools.items()}
    last = ranked[max(ranked)]
    steady = tuple(model for model in last if not any(model in found for found in flagged.values()))
    same_order, moved = between_tiers(pools, steady)
    return DoiTable(
        rows=tuple(
            DoiRow(
                model,
                {tier: table[model].doi.estimate for tier, table in ranked.items()},
                {tier: table[model].position for tier, table in ranked.items()},
                {tier: tuple(map(str, found[model])) for tier, found in flagged.items() if model in found},
            )
            for model in last
        ),
        steady=steady,
        same_order=same_order,
        moved=moved,
    )


def between_tiers(pools: Mapping[int, ReferencePool], models: Sequence[str]) -> tuple[bool | None, float | None]:
    """Whether all tiers order these models alike, and the most that a DOI differs, in a pool of these models alone."""
    if len(models) < 2:
        return None, None
    tables = [{row.model: row.doi.estimate for row in rank_table(pool.only(models)).rows} for pool in pools.values()]
    dois = [[table[model] for table in tables] for model in models]
    return len({tuple(table) for table in tables}) == 1, max(max(values) - min(values) for values in dois)


def instability(
    distances: Mapping[str, NDArray[np.float64]], frontier: NDArray[np.float64], reference: float | None
) -> Instability | None:
    """Ranks at nine percentiles of the defence frontier and the reference ε; None if nothing was ever broken."""
    if not ((frontier > 0) & np.isfinite(frontier)).any():
        return None
    found = rank_stability(distances, epsilons=baseline_radii(frontier, reference=reference))
    return Instability.of(found, reference)


def baseline_instability(subjects: Sequence[Subject], reference: float | None) -> BaselineInstability | None:
    """Ranks at nine percentiles of all radii the baseline was run at, as far as it goes on every model, and at ε_ref.

    Every model has radii of its own: its accuracy at the others is read off the straight lines of its AOI.
    """
    known = {subject.model: (subject, subject.known) for subject in subjects if subject.known is not None}
    if len(known) < 2:
        return None
    reach = min(known_up_to(points.radii, points.accuracies) for _, points in known.values())
    inside = [radius for _, points in known.values() for radius in points.radii if radius <= reach]
    common = reference if reference is not None and reference <= reach else None
    grid = baseline_radii(inside, reference=common)
    lines = {
        model: straight_accuracies(points.radii, points.accuracies, grid, clean=subject.clean)
        for model, (subject, points) in known.items()
    }
    distances = {model: subject.tiers[max(subject.tiers)] for model, (subject, _) in known.items()}
    return BaselineInstability(
        Instability.of(rank_accuracies(lines, epsilons=grid), common),
        Instability.of(rank_stability(distances, epsilons=grid), common),
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
