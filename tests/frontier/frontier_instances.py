"""Random instances: allocation problems, and samples of which the true AUREC, DOI or AOI is
known.
"""

import numpy as np

from advfrontier.frontier import (
    Trajectories,
    build_problem,
    certify,
    exact_optimum,
    greedy,
    improve,
)
from advfrontier.frontier.allocation import applied

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
    """Each run ends at a distance of its own and gets there early (concave), evenly, or late
    (convex).
    """
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
        found.append(
            Trajectories.best_so_far(runs, levels, d, [f"{i:03}" for i in range(samples)], "L2")
        )
    return found


def problem(seed, **options):
    levels = options.get("levels", LEVELS)
    return build_problem(trajectories(seed, **options), levels=levels)


def solved(seed, budget):
    """A small problem with its greedy, swapped and exact allocations, and certificates without and
    with steps.
    """
    p = problem(1000 + seed, samples=18)
    first = applied(p.none, greedy(p, p.none, budget))
    better = improve(p, first, budget, floor=p.none)
    bounds = (certify(p, {budget: better}, steps=steps)[budget] for steps in (0, 30))
    return p, first, better, exact_optimum(p, budget), *bounds


E = 4.0


def model(rng, shape):
    """Distances as robust models have them: 15 % misclassified, the rest skewed, some beyond E or
    never broken.
    """
    hardness = rng.lognormal(0, 0.6, shape)
    d = np.where(rng.random(shape) < 0.15, 0.0, hardness)
    return hardness, np.where(rng.random(shape) < 0.01, np.inf, d)


def aurec_columns(rng, shape):
    d = np.minimum(model(rng, shape)[1], E)
    return d, np.ones(shape)


def skewed_aurec_columns(rng, shape):
    """A weak model: 60 % misclassified, a long tail."""
    d = np.where(rng.random(shape) < 0.6, 0.0, np.minimum(rng.lognormal(0, 1, shape), 2 * E))
    return d, np.ones(shape)


def difference_columns(rng, shape):
    hardness, first = model(rng, shape)
    second = np.where(rng.random(shape) < 0.2, 0.0, hardness * rng.lognormal(0.1, 0.4, shape))
    return np.minimum(first, E) - np.minimum(second, E), np.ones(shape)


def doi_columns(rng, shape):
    hardness = rng.lognormal(0, 0.6, shape)
    pool = [
        np.where(
            rng.random(shape) < 0.1 + 0.1 * k, 0.0, hardness * rng.lognormal(-0.1 * k, 0.4, shape)
        )
        for k in range(5)
    ]
    return pool[2], np.max(pool, axis=0)


def aoi_columns(rng, shape):
    """An attack that misses the frontier by a little on every third sample: AOI 0.99, very
    skewed.
    """
    hardness, _ = model(rng, shape)
    correct = rng.random(shape) > 0.15
    missed = np.where(rng.random(shape) < 0.3, rng.exponential(0.1, shape), 0.0)
    return (
        np.where(correct, np.maximum(E - hardness * (1 + missed), 0), 0),
        np.where(correct, np.maximum(E - hardness, 0), 0),
    )


COLUMNS = {
    "AUREC": aurec_columns,
    "AUREC, long tail": skewed_aurec_columns,
    "AUREC difference": difference_columns,
    "DOI": doi_columns,
    "AOI at a fixed E": aoi_columns,
}  # figure → the u and w it is mean(u) / mean(w) of


def simulated(figure, n, draws):
    """The figure's true value, from four million samples, and u and w of so many draws of n
    samples.
    """
    rng = np.random.default_rng(n)
    u, w = COLUMNS[figure](rng, 4_000_000)
    return u.mean() / w.mean(), *COLUMNS[figure](rng, (draws, n))
