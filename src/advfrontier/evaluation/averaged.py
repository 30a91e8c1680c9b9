"""What is known about the attack on a random model, beside its distances."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advfrontier.engine import LAST_LOOK
from advfrontier.evaluation.evaluation import Evaluation


@dataclass(frozen=True)
class Averaged:
    """Of how many passes a query was the mean, and which share of fresh passes misclassifies the points found."""

    eot: int  # passes per query
    passes: int  # fresh ones over each point
    lowest: float  # share; NaN where no point was found, as is the next
    median: float

    @classmethod
    def of(cls, evaluation: Evaluation) -> Averaged | None:
        """The figures of an evaluation with EOT."""
        if evaluation.shares is None:
            return None
        known = evaluation.shares[~np.isnan(evaluation.shares)]
        lowest, median = (known.min(), np.median(known)) if known.size else (math.nan, math.nan)
        return cls(evaluation.eot, LAST_LOOK, round(float(lowest), 4), round(float(median), 4))
