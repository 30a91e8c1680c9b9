"""Compare two evaluations: is one rejected already, or what should be run next?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.evaluation.evaluated import evaluated
from advfrontier.frontier import comparison

if TYPE_CHECKING:
    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.frontier.comparison import Comparison


def compare(first: Evaluation, second: Evaluation, *, E: float | None = None) -> Comparison:
    """Compare the whole curves of two models on the same samples in one norm, each at the tier it stands at."""
    both = (first, second)
    names = [one.place if first.model == second.model else one.model for one in both]
    return comparison.compare(*(evaluated(one, name=name) for one, name in zip(both, names, strict=True)), E=E)
