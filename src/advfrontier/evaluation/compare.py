"""Set evaluations against each other: two of them (is one rejected already?), or many (who ranks where, by DOI?).

All models of a table stand on the same samples and the same number of queries. A record that went further is read back
there, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from advfrontier.errors import FrontierError
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import parse_radii
from advfrontier.frontier import comparison, ranking
from advfrontier.frontier.comparison import Comparison
from advfrontier.frontier.confidence import RESAMPLES
from advfrontier.frontier.defence import ReferencePool
from advfrontier.frontier.measure import Evaluated, check_same_settings
from advfrontier.frontier.ranking import Ranking
from advfrontier.pool import FAMILIES, TIERS, Race, tier_label
from advfrontier.record.identity import settings
from advfrontier.threat.names import NORMS


def compare(first: Evaluation, second: Evaluation, *, E: float | None = None) -> Comparison:
    """Compare the whole curves of two models on the same samples in one norm, each at the tier it stands at."""
    both = (first, second)
    if first.norm == second.norm:  # or it is refused below, in other words
        check_alike(both)
    names = [one.place if first.model == second.model else one.model for one in both]
    return comparison.compare(*(evaluated(one, name=name) for one, name in zip(both, names, strict=True)), E=E)


def evaluated(evaluation: Evaluation, *, queries: int | None = None, name: str | None = None) -> Evaluated:
    """One evaluation at the queries it stands at, or at fewer: they are a prefix."""
    found = reached(evaluation)
    tier = found if queries is None else queries
    if found < tier:
        raise FrontierError(
            f"{evaluation.model} was evaluated in {evaluation.norm} with {tier_label(found)} queries, the others with "
            f"{tier_label(tier)}: expected as many; type `advfrontier extend` with its folder and "
            + (f"--tier {tier_label(tier)}" if tier in TIERS else f"--queries {tier}")
        )
    return Evaluated(
        model=name or evaluation.model,
        norm=evaluation.norm,
        samples=tuple(evaluation.samples),
        distances=evaluation.distances if tier == found else evaluation.distances_at(tier),
        queries=tier,
        flags=evaluation.flags,
        data=evaluation.data,
    )


def family(evaluation: Evaluation) -> str | None:
    """Whose tier the ensemble is: `race` for race-4k, `paper` for paper-12k; None for anybody's own."""
    stem = evaluation.ensemble.name.rpartition("-")[0]
    return stem if stem in FAMILIES else None


def check_alike(evaluations: Sequence[Evaluation]) -> None:
    """Refuse to set models against each other that were attacked in different ways: one would look more robust."""
    first, *others = evaluations
    common = min(map(reached, evaluations))
    for other in others:
        if not _same_attacks(first, other, common):
            raise FrontierError(
                f"{first.model} was evaluated in {first.norm} with {first.ensemble.name}, {other.model} with "
                f"{other.ensemble.name}: expected the same attacks for all, because others do not find the same "
                "distances; evaluate one of them again in a new folder with --ensemble, --pool or --runs of the other"
            )
        check_same_settings(
            settings(first.solver_words), settings(other.solver_words), names=(first.model, other.model),
            attacks=first.solver_words.keys() & other.solver_words.keys(),
        )  # fmt: skip


def _same_attacks(one: Evaluation, other: Evaluation, queries: int) -> bool:
    """Whether the first so many queries of both go to the same runs, or to those that the same race chooses."""
    first, second = one.ensemble, other.ensemble
    if isinstance(first, Race) and isinstance(second, Race):
        # A model without gradients has a race of its own, which stands in for any.
        return first.order == second.order or not all(e.record.header.gradients for e in (one, other))
    if isinstance(first, Race) or isinstance(second, Race):
        return False
    return first.at(queries).queries == second.at(queries).queries


def reached(evaluation: Evaluation) -> int:
    """The tier an evaluation stands at: the budget its ensemble was made for."""
    return evaluation.ensemble.tiers[-1] if evaluation.ensemble.tiers else 0


def rank(
    evaluations: Iterable[Evaluation],
    *,
    reference: Mapping[str, ReferencePool] | None = None,
    radii: str | None = None,
    resamples: int = RESAMPLES,
) -> Ranking:
    """Rank models by DOI against each other and, where given, against the reference pool of the norm.

    Without any records the reference pools are ranked as they are. `radii`, such as `L2=0.5,Linf=8/255`, add robust
    accuracies to the tables.
    """
    by_norm: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_norm.setdefault(evaluation.norm, []).append(evaluation)
    known = dict(reference or {})
    pools = {} if by_norm else known
    for norm, found in by_norm.items():
        pool = known.get(norm)
        check_alike(found)
        queries = pool.queries if pool else min(reached(evaluation) for evaluation in found)
        pools[norm] = ReferencePool.of([evaluated(one, queries=queries) for one in found], reference=pool)
    given = {evaluation.model for found in by_norm.values() for evaluation in found}
    return ranking.rank(
        {norm: pools[norm] for norm in NORMS if norm in pools},
        given=given,
        radii={norm: dict(parse_radii(radii or "", norm)) for norm in pools},
        resamples=resamples,
    )
