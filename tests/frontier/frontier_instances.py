"""Random allocation problems with convex, straight and concave progress along the runs."""

import numpy as np

from advfrontier.frontier import Trajectories, build_problem

RUNS = (
    "fmn",
    "fmn:restart1",
    "fmn:restart2",
    "fmn:target1",
    "fmn:target2",
    "fmn:target3",
    "pdpgd",
    "pdpgd:restart1",
    "ddn",
    "alma",
)
LEVELS = (250, 500, 750, 1000)


def trajectories(seed, *, runs=RUNS, levels=LEVELS, models=2, samples=12):
    """Each run ends at a distance of its own and gets there early (concave), evenly, or late (convex)."""
    rng = np.random.default_rng(seed)
    spent = np.array(levels)[:, None] / 1000
    found = []
    for _ in range(models):
        truth = rng.lognormal(0, 0.25, samples)
        d = np.empty((len(runs), len(levels), samples))
        for run in range(len(runs)):
            end = truth * (1 + rng.exponential(0.5, samples) * (rng.random(samples) < 0.7))
            progress = spent ** rng.choice([0.4, 1.0, 4.0])
            d[run] = end * (1 + 2 * (1 - progress))
            d[run][spent < rng.choice([0.0, 0.0, 0.8]) * rng.random(samples)] = np.inf
        d[:, :, rng.random(samples) < 0.15] = 0
        found.append(Trajectories.best_so_far(runs, levels, d, [f"{i:03}" for i in range(samples)]))
    return found


def problem(seed, **options):
    levels = options.get("levels", LEVELS)
    return build_problem(trajectories(seed, **options), levels=levels)
