"""Several norms at once: the robust accuracy against perturbations of any of them.

A sample is broken at the path's parameter t if any norm p has a misclassified point within t·ε_p.
Its distance along the path is therefore the least of d_p / ε_p over the norms, and t = 1 stands for
all radii at once. Every figure of one norm follows from these distances: curve, AUREC, ranks. The
norms share the samples, so an interval that draws samples anew draws all norms together.

Maini, Wong and Kolter: Adversarial Robustness Against the Union of Multiple Perturbation Models,
ICML 2020, arXiv:1909.04068.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.confidence import Interval, aurec_interval, robust_accuracy_interval
from advfrontier.frontier.curve import Curve, aurec, epsilon_min, robust_accuracy
from advfrontier.frontier.measure import Distances, Measure, as_table


@dataclass(frozen=True, eq=False)
class Union:
    """Distances of one model in several norms, and the radii that a path scales together.

    Args:
        by_norm: Norm to its distances (n,): 0 where a sample is misclassified, inf where unbroken.
        radii: Norm to its radius at t = 1, greater than 0.
    """

    by_norm: Mapping[str, Distances]
    radii: Mapping[str, float]

    def __post_init__(self) -> None:
        if len(self.by_norm) < 2 or set(self.by_norm) != set(self.radii):
            raise FrontierError(
                f"distances in {', '.join(self.by_norm) or 'no norm'} and radii of "
                f"{', '.join(self.radii) or 'no norm'}: expected the same two norms or more"
            )
        for norm, radius in self.radii.items():
            if not 0 < radius < np.inf:
                raise FrontierError(
                    f"the radius {radius} of {norm} cannot scale a path: expected a finite size > 0"
                )
        _, table = as_table(self.by_norm)
        if (len(np.unique(table == 0, axis=0))) > 1:
            raise FrontierError(
                "the norms disagree on which samples are misclassified unperturbed: expected "
                "distances of one model"
            )

    @cached_property
    def scaled(self) -> NDArray[np.float64]:
        """Return the distances over the radii: (norms, n)."""
        norms, table = as_table(self.by_norm)
        scales = np.array([self.radii[norm] for norm in norms])
        scaled: NDArray[np.float64] = table / scales[:, None]
        return scaled

    @property
    def distances(self) -> Distances:
        """Return per sample the least t that breaks it: 0 if misclassified, inf if none does."""
        least: Distances = self.scaled.min(axis=0)
        return least

    @property
    def weakest(self) -> tuple[str | None, ...]:
        """Return per sample the norm that breaks it first; None where there is none to break."""
        norms = tuple(self.by_norm)
        first = self.scaled.argmin(axis=0)
        found: list[str | None] = []
        for distance, index in zip(self.distances, first, strict=True):
            found.append(norms[index] if 0 < distance < np.inf else None)
        return tuple(found)

    def curve(self) -> Curve:
        """Return the robust accuracy against t."""
        return Curve.of(self.distances)

    def aurec(self, E: float | None = None) -> Measure:
        """Return the area under the curve up to t = E, by default where the curve ends.

        Args:
            E: End of the area, as a multiple of the radii.
        """
        return aurec(self.distances, E=E)

    def aurec_interval(self, E: float | None = None) -> Interval:
        """Return the area with its confidence interval for other samples of the same source.

        Args:
            E: End of the area, as a multiple of the radii.
        """
        limit = epsilon_min(self.distances).value if E is None else E
        return aurec_interval(self.distances, E=limit)

    def robust_accuracy(self, t: float = 1.0) -> float:
        """Return the share of samples that no norm breaks within t times its radius.

        Args:
            t: Multiple of the radii, at least 0.
        """
        return robust_accuracy(self.distances, t)

    def robust_accuracy_interval(self, t: float = 1.0) -> Interval:
        """Return the robust accuracy at t with its confidence interval.

        Args:
            t: Multiple of the radii, at least 0.
        """
        return robust_accuracy_interval(self.distances, t)

    def alone(self, norm: str, t: float = 1.0) -> float:
        """Return the robust accuracy in one of the norms within t times its radius.

        Args:
            norm: Name of one of the norms.
            t: Multiple of the radii, at least 0.
        """
        return robust_accuracy(self.by_norm[norm], t * self.radii[norm])

    def broken_only_by(self, norm: str, t: float = 1.0) -> float:
        """Return the share of samples that this norm breaks within t, and no other norm does.

        Args:
            norm: Name of one of the norms.
            t: Multiple of the radii, at least 0.
        """
        place = list(self.by_norm).index(norm)
        others = np.delete(self.scaled, place, axis=0)
        return float(
            np.mean((self.scaled[place] > 0) & (self.scaled[place] <= t) & (others > t).all(axis=0))
        )
