"""Robustness–perturbation curve ρ(ε): the share of samples whose distance is larger than ε.

From n distances ρ is a step function, so nothing here is approximated: it is right-continuous,
starts at the clean accuracy (distance 0 = already misclassified), drops at every distance, and
never reaches 0 if a sample was never broken (distance inf). The area under it up to E is a clipped
mean, ∫₀ᴱ ρ(ε) dε = mean(min(d, E)), because each sample adds 1/n for as long as ε < d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.measure import Measure, as_distances, check_epsilon, unbroken_flag


@dataclass(frozen=True, eq=False)
class Curve:
    """Curve ρ as a step function: `accuracies[k]` from `epsilons[k]` to below `epsilons[k + 1]`.

    Args:
        epsilons: Radii at which ρ drops, rising from 0, (steps,).
        accuracies: ρ from each radius on, in [0, 1], (steps,).
    """

    epsilons: NDArray[np.float64]  # increasing, from 0
    accuracies: NDArray[np.float64]  # strictly decreasing

    @classmethod
    def of(cls, distances: ArrayLike) -> Curve:
        """Build the curve of per-sample distances.

        Args:
            distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
                broken.
        """
        d = as_distances(distances)
        steps, counts = np.unique(np.concatenate(([0.0], d[np.isfinite(d)])), return_counts=True)
        counts[0] -= 1  # the 0 put in front so that every curve starts there
        return cls(steps, (d.size - np.cumsum(counts)) / d.size)

    def at(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """Robust accuracy at one ε or many.

        Args:
            epsilon: Perturbation size in units of the norm: one, or an array of any shape.
        """
        where = np.searchsorted(self.epsilons, check_epsilon(epsilon), side="right") - 1
        return np.asarray(self.accuracies[where], dtype=np.float64)

    def area(self, E: float) -> float:
        """Return the area under the curve from 0 to E; `aurec` computes it from the distances.

        Args:
            E: End of the area, in units of the norm.
        """
        edges = np.minimum(np.append(self.epsilons, np.inf), check_limit(E))
        return float(np.dot(self.accuracies, np.diff(edges)))

    def falls_to(self, share: float) -> float:
        """Return the ε at which the curve has fallen to this share, or its last step.

        Args:
            share: Robust accuracy, in [0, 1].
        """
        return float(
            self.epsilons[min(int((self.accuracies > share).sum()), self.epsilons.size - 1)]
        )

    def less(self, other: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return every ε where either curve drops, and this curve less the other from there on.

        Args:
            other: Curve of another model in the same norm.
        """
        steps = np.union1d(self.epsilons, other.epsilons)
        return steps, self.at(steps) - other.at(steps)


def robust_accuracy(distances: ArrayLike, epsilon: float) -> float:
    """Return ρ(ε): the share of samples for which no perturbation of size ≤ ε was found.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        epsilon: Perturbation size, in units of the norm.
    """
    if np.ndim(epsilon):
        raise FrontierError(
            f"{np.size(epsilon)} radii at once: expected one; type Curve.of(distances).at(radii)"
        )
    return float(np.mean(as_distances(distances) > check_epsilon(epsilon)))


def epsilon_min(distances: ArrayLike) -> Measure:
    """Return ε_min, where the curve reaches zero: the largest distance over broken samples.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
    """
    d = as_distances(distances)
    finite = d[np.isfinite(d)]
    value = float(finite.max()) if finite.size else 0.0
    flags = unbroken_flag(d)
    if not finite.size:
        flags += ("no sample was ever broken, so ε_min is not known and taken as 0",)
    elif value == 0:
        flags += ("no sample was both classified correctly and broken, so ε_min is 0",)
    return Measure(value, flags)


def aurec(distances: ArrayLike, *, E: float | None = None) -> Measure:
    """AUREC, the area under the curve up to E (by default its own ε_min): mean(min(d, E)).

    Areas are comparable only up to one common E: give it whenever two are set side by side. Where
    no run broke any sample, or E is 0, there is no area: the value is NaN.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        E: End of the area; by default ε_min of the distances.
    """
    d = as_distances(distances)
    flags = unbroken_flag(d)
    if E is None:
        limit = epsilon_min(d)
        E, flags = limit.value, limit.flags
    if never_broken(d):
        return Measure(math.nan, (*flags, "no run broke any sample, so there is no AUREC"))
    if check_limit(E) == 0:
        return Measure(math.nan, (*flags, "there is no area up to E = 0"))
    return Measure(float(np.minimum(d, E).mean()), flags)


def distance_quantile(distances: ArrayLike, share: float) -> float:
    """Return the smallest ε that breaks this share of samples (0.5: the median), or inf.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
        share: Share of all samples, in [0, 1].
    """
    if not 0 < share <= 1:
        raise FrontierError(
            f"a share of {share} is not a quantile: expected 0 < share ≤ 1, such as 0.5 for the "
            "median"
        )
    d = np.sort(as_distances(distances))
    # A hair's breadth below keeps 0.3 × 10 = 3.0000000000000004 from asking for a fourth sample.
    return float(d[int(np.ceil(share * d.size * (1 - 1e-12))) - 1])


def never_broken(distances: NDArray[np.float64]) -> bool:
    """Return whether samples were attacked and none was broken: then areas are unknown.

    Args:
        distances: Distance per sample, (n,): 0 where misclassified unperturbed, inf where never
            broken.
    """
    attacked = distances[distances > 0]
    return bool(attacked.size) and bool(np.isinf(attacked).all())


def check_limit(E: float) -> float:
    """Refuse an end of integration that is not a finite size.

    Args:
        E: End of the area, in units of the norm.
    """
    if not (np.isfinite(E) and E >= 0):
        raise FrontierError(
            f"E = {E} cannot end an area: expected a finite size ≥ 0, such as "
            "epsilon_min(distances).value"
        )
    return float(E)
