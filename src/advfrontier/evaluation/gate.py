"""Gates for continuous integration: decide whether a demand on a model holds.

A gate fails if the samples show that the demand is not met: the whole 95 % interval lies below it.
So that it does not pass by luck either, it also fails where there are so few samples that a clear
shortfall, of ten points of accuracy or a tenth of the area, would more often than not have gone
unnoticed. Between the two it holds.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import bdtr

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import check_alike, evaluated, reached
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import parse_radii
from advfrontier.flags import doubts
from advfrontier.frontier.comparison import compare
from advfrontier.frontier.confidence import robust_accuracy_interval, wilson
from advfrontier.threat.names import norm_name

_DEMAND = re.compile(
    r"\s*(?P<norm>[^@\s]+)\s*@\s*(?P<radius>[^>]+?)\s*>=\s*(?P<least>[0-9.]+)\s*(?P<percent>%?)\s*"
)
_SHORTFALL = 0.1  # of accuracy, or of the area: what a gate must be able to notice


@dataclass(frozen=True)
class Ruling:
    """Ruling on a demand, with its reason in one sentence.

    Args:
        holds: Whether the demand is met.
        text: Reason, in one sentence.
    """

    holds: bool
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Demand:
    """Robust accuracy at a radius that a model is to have at least.

    Args:
        norm: Name of the norm.
        radius: Radius as written.
        epsilon: Radius as a number, in units of the norm.
        least: Least robust accuracy, in (0, 1].
    """

    norm: str
    radius: str
    epsilon: float
    least: float

    def __str__(self) -> str:
        return f"{self.norm}@{self.radius}>={self.least:g}"

    def rule(self, evaluation: Evaluation) -> Ruling:
        """Rule whether an evaluation in this norm meets the demand.

        Args:
            evaluation: Finished evaluation in the norm of the demand.
        """
        if doubtful := doubts(evaluation.flags):
            return Ruling(
                holds=False, text=f"{self} fails, because the distances are in doubt: {doubtful[0]}"
            )
        n, found = (
            len(evaluation.samples),
            robust_accuracy_interval(evaluation.distances, self.epsilon),
        )
        estimate, low, high = (
            f"{100 * share:.1f}" for share in (found.estimate, found.low, found.high)
        )
        figures = (
            f"robust accuracy is {estimate} % ({low}–{high} %, 95 % on other samples) on {n} "
            "samples"
        )
        if found.high < self.least:
            return Ruling(
                holds=False, text=f"{self} fails: {figures}, and the whole interval lies below"
            )
        if found.low >= self.least:
            return Ruling(
                holds=True, text=f"{self} holds: {figures}, and the whole interval lies above"
            )
        if not _notices(n, self.least):
            enough = (
                f"{_enough(n, self.least)} samples are enough to notice a shortfall of 10 points"
            )
            return Ruling(
                holds=False,
                text=f"{self} fails, because {n} samples are too few to decide: {figures}; "
                f"{enough}",
            )
        return Ruling(holds=True, text=f"{self} holds: {figures}, and the interval includes it")


def parse_demands(texts: Iterable[str]) -> tuple[Demand, ...]:
    """Read demands such as `Linf@8/255>=0.40`, several with commas.

    Args:
        texts: Texts with one or several demands.
    """
    found = []
    for text in ",".join(texts).split(","):
        if not text.strip():
            continue
        parts = _DEMAND.fullmatch(text)
        radii = parse_radii(parts["radius"]) if parts else ()
        if parts is None or not radii:  # `L2@ >=0.4` names none
            raise FrontierError(
                f"{text.strip()!r} is no requirement: expected one such as Linf@8/255>=0.40"
            )
        ((label, size),) = radii
        try:
            least = float(parts["least"]) / (100 if parts["percent"] else 1)
        except ValueError:
            least = -1.0
        if not 0 < least <= 1:
            raise FrontierError(
                f"{text.strip()!r} demands no accuracy: expected one above 0 and up to 1, such as "
                "0.40"
            )
        found.append(Demand(norm_name(parts["norm"]), label, size, least))
    return tuple(found)


def not_worse(new: Evaluation, reference: Evaluation) -> Ruling:
    """Rule whether a model may replace another: fail if its area is significantly smaller.

    Args:
        new: Evaluation of the new model.
        reference: Evaluation of the model it would replace.
    """
    both = (new, reference)
    check_alike(both)
    tier = min(reached(each) for each in both)
    a, b = (
        evaluated(each, queries=tier, name=name)
        for each, name in zip(both, ("new", "reference"), strict=True)
    )
    if doubtful := doubts(new.flags):
        return Ruling(
            holds=False,
            text=f"{new.norm} fails, because the distances of {new.model} are in doubt: "
            f"{doubtful[0]}",
        )
    compared = compare(a, b)
    if (a.distances >= b.distances).all():
        return Ruling(
            holds=True, text=f"{new.norm} holds: no sample is nearer to an error than before"
        )
    gap, area, n = compared.difference, compared.aurec[1], len(a.samples)
    if not gap.known:
        return Ruling(
            holds=False,
            text=f"{new.norm} fails: no run broke any sample of one of the two models, but some of "
            "the other",
        )
    estimate, low, high = (
        f"{100 * value / area:+.1f} %" for value in (gap.estimate, gap.low, gap.high)
    )
    change = (
        f"the area changes by {estimate} ({low} to {high}, 95 % on other samples) on {n} samples"
    )
    if gap.high < 0:
        return Ruling(
            holds=False, text=f"{new.norm} fails: {change}, and the whole interval is a loss"
        )
    if gap.low < 0 and gap.estimate - gap.low > _SHORTFALL * area:
        why = (
            f"{n} samples are too few to decide: {change}; expected enough to detect a loss of a "
            "tenth"
        )
        return Ruling(holds=False, text=f"{new.norm} fails, because {why}")
    shown = "which shows no loss" if gap.low < 0 else "and the whole interval is a gain"
    return Ruling(holds=True, text=f"{new.norm} holds: {change}, {shown}")


def _notices(samples: int, least: float) -> bool:
    """Return whether a shortfall of ten points is detected with at least 50 % power."""
    # The largest count whose interval lies below.
    shown = (
        bisect_left(range(samples), True, key=lambda count: wilson(count, samples).high >= least)  # noqa: FBT003
        - 1
    )
    return shown >= 0 and bool(bdtr(shown, samples, max(least - _SHORTFALL, 0.0)) >= 1 / 2)


def _enough(samples: int, least: float) -> int:
    """Return the approximate n that detects a 10-point shortfall (power is not monotone in n)."""
    low, high = samples, 2 * samples
    while not _notices(high, least):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _notices(middle, least) else (middle, high)
    return high
