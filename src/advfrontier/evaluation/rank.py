"""Rank evaluations by DOI, in each norm and across norms.

All models of a table stand on the same samples and the same tier. A record that went further is read back at the
common tier, which costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.evaluation.compare import check_alike, evaluated, reached
from advfrontier.evaluation.radii import parse_radii
from advfrontier.frontier import ranking
from advfrontier.frontier.confidence import RESAMPLES
from advfrontier.frontier.defence import ReferencePool
from advfrontier.threat.names import NORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.frontier.ranking import Ranking


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
