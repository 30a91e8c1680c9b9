"""Compare two evaluations: is one rejected already, or what should be run next?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.frontier import comparison

if TYPE_CHECKING:
    from advfrontier.evaluation.record import Evaluation
    from advfrontier.frontier.comparison import Comparison


def compare(first: Evaluation, second: Evaluation, *, E: float | None = None) -> Comparison:
    """Compare the whole curves of two models on the same samples in one norm, each at the tier it stands at."""
    if first.norm != second.norm:
        raise FrontierError(
            f"{first.model} was evaluated in {first.norm}, {second.model} in {second.norm}: expected the same norm"
        )
    names = (first.model, second.model)
    if names[0] == names[1]:
        names = (first.store.place, second.store.place)
    return comparison.compare(
        *(
            comparison.Evaluated(name, e.distances, e.samples, e.ensemble.total)
            for name, e in zip(names, (first, second), strict=True)
        ),
        E=E,
    )
