"""Mathematics of the paper: curves, optimality, allocation, ranking, confidence; without torch.

| paper | here |
|---|---|
| curve ρ(ε), AUREC, ε_min | `curve`: `Curve`, `robust_accuracy`, `aurec`, `epsilon_min` |
| distance against queries, per run and sample | `trajectories`: `Trajectories` |
| attack frontier, AOI, global AOI | `optimality`: `attack_frontier`, `aoi`, `global_aoi` |
| AutoAttack's curve from ten radii | `optimality`: `baseline_radii`, `baseline_aoi` |
| the budget allocation problem | `problem`: `build_problem` |
| Algorithm 1, greedy ensemble construction | `allocation`: `greedy`; over the tiers, `allocate` |
| (not in the paper) | `allocation`: `improve`; `certificate`: bounds, and exact optima |
| defense frontier, DOI | `defence`: `defence_frontier`, `doi`, `ReferencePool` |
| ranks by DOI, in one norm and over all | `ranking`: `rank_table`, `rank` |
| using the ensembles in practice | `comparison`: `compare` |
| crossings and ranking instability | `comparison`: `crossings`, `rank_stability`, `reversals` |
| (not in the paper) | `confidence`: intervals and bands; `optimality`: `contributions` |
"""

from advfrontier.frontier.allocation import allocate, greedy, improve, staged
from advfrontier.frontier.certificate import certify, exact_optimum
from advfrontier.frontier.comparison import (
    compare,
    crossings,
    lies_below,
    rank_stability,
    reversals,
)
from advfrontier.frontier.confidence import (
    Interval,
    aoi_interval,
    aurec_interval,
    curve_margin,
    wilson,
)
from advfrontier.frontier.curve import Curve, aurec, distance_quantile, epsilon_min, robust_accuracy
from advfrontier.frontier.defence import ReferencePool, defence_frontier, doi
from advfrontier.frontier.measure import Evaluated, Measure
from advfrontier.frontier.optimality import (
    aoi,
    attack_frontier,
    baseline_aoi,
    baseline_radii,
    contributions,
    global_aoi,
    winsorised_aoi,
)
from advfrontier.frontier.problem import build_problem
from advfrontier.frontier.ranking import doi_intervals, rank, rank_ranges, rank_table
from advfrontier.frontier.trajectories import Trajectories

__all__ = [
    "Curve",
    "Evaluated",
    "Interval",
    "Measure",
    "ReferencePool",
    "Trajectories",
    "allocate",
    "aoi",
    "aoi_interval",
    "attack_frontier",
    "aurec",
    "aurec_interval",
    "baseline_aoi",
    "baseline_radii",
    "build_problem",
    "certify",
    "compare",
    "contributions",
    "crossings",
    "curve_margin",
    "defence_frontier",
    "distance_quantile",
    "doi",
    "doi_intervals",
    "epsilon_min",
    "exact_optimum",
    "global_aoi",
    "greedy",
    "improve",
    "lies_below",
    "rank",
    "rank_ranges",
    "rank_stability",
    "rank_table",
    "reversals",
    "robust_accuracy",
    "staged",
    "wilson",
    "winsorised_aoi",
]
