"""Attack frontier and Attack Optimality Index (AOI): how close an attack comes to the best the pool found.

With K the samples classified correctly, d* the frontier and E = ε_min its largest finite distance, the paper's ratio of
areas is a ratio of sums, because both areas are clipped means (see `curve`):

    AOI(a) = (ρ(0)·E − AUREC_a) / (ρ(0)·E − AUREC_a*) = Σ_K (E − d)⁺ / Σ_K (E − d*)⁺

0 for an attack that always fails, 1 for one that is on the frontier everywhere. The AOI belongs to its pool: another
run moves d* and E, so values of different pools are not comparable. E is set by the single most robust sample, which
pushes all AOIs towards 1; the winsorised variant ends at the 95th percentile of d* instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.curve import check_limit, distance_quantile, epsilon_min
from advfrontier.frontier.measure import Measure, as_distances, as_pair, as_table, unbroken_flag

_WORST = 10.0  # times the frontier


def attack_frontier(distances: Sequence[ArrayLike] | NDArray[np.float64]) -> NDArray[np.float64]:
    """d*: the least distance any attack found, per sample. One row per attack."""
    _, table = as_table({f"attack {i}": row for i, row in enumerate(distances)})
    return np.asarray(table.min(axis=0), dtype=np.float64)


def aoi(distances: ArrayLike, frontier: ArrayLike, *, E: float | None = None) -> Measure:
    """AOI of one attack on one model, against the frontier of its pool; E is ε_min of the frontier unless given."""
    d, best = as_pair(distances, frontier)
    limit = epsilon_min(best).value if E is None else check_limit(E)
    correct = best > 0
    flags = unbroken_flag(best)
    if beaten := int((d < best).sum()):
        flags += (f"the attack is below the frontier on {beaten} samples, so its pool lacks it and the AOI may pass 1",)
    reach = float(np.maximum(limit - best[correct], 0).sum())
    if reach == 0:
        return Measure(1.0, (*flags, degenerate(best, limit)))
    return Measure(float(np.maximum(limit - d[correct], 0).sum()) / reach, flags)


def excess(distances: ArrayLike, frontier: ArrayLike) -> float:
    """By how much distances exceed the frontier on average, over the samples that were attacked and broken.

    What is further than ten times the frontier, or was not found, counts as ten times. 0 where no sample counts.
    """
    d, best = as_pair(distances, frontier)
    counted = (best > 0) & (best < np.inf)
    return float(np.minimum(d[counted] / best[counted], _WORST).mean()) - 1 if counted.any() else 0.0


def degenerate(frontier: NDArray[np.float64], limit: float) -> str:
    """Say why no attack can be told from another below E."""
    if not (frontier > 0).any():
        return "no sample is classified correctly, so every attack is on the frontier: AOI set to 1"
    return f"the frontier breaks no sample below E = {limit:g}, so every attack is on the frontier: AOI set to 1"


def global_aoi(values: Mapping[str, Measure]) -> Measure:
    """Global AOI: the mean over models, each model counting the same however many samples it has."""
    if not values:
        raise FrontierError('no model given: expected {"model": aoi(…), …} with at least one')
    flags = tuple(f"{model}: {flag}" for model, measure in values.items() for flag in measure.flags)
    return Measure(float(np.mean([measure.value for measure in values.values()])), flags)


def winsorised_aoi(distances: ArrayLike, frontier: ArrayLike) -> Measure:
    """AOI up to the 95th percentile of d* over the broken samples: an E that one outlier cannot set."""
    best = as_distances(frontier, what="frontier distances")
    broken = best[(best > 0) & np.isfinite(best)]
    return aoi(distances, best, E=distance_quantile(broken, 0.95) if broken.size else 0.0)
