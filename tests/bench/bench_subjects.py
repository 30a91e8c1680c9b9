"""Models of a benchmark, known by distances that are made up."""

import numpy as np

from advfrontier.bench.subject import Subject
from advfrontier.frontier import Trajectories, allocate, aoi
from advfrontier.frontier.optimality import BaselineAOI

BUDGETS = (1000, 2000)
LEVELS = (250, 500, 750, 1000)
RUNS = ("fmn", "fmn:restart1", "fmn:target1", "ddn", "alma")


def traced(seed, *, robust=1.0, samples=60):
    """Trajectories of one model; `robust` scales its distances."""
    rng = np.random.default_rng(seed)
    truth = robust * rng.lognormal(0, 0.3, samples)
    ends = truth * (
        1 + rng.exponential(0.2, (len(RUNS), samples)) * (rng.random((len(RUNS), samples)) < 0.6)
    )
    found = ends[:, None, :] * (1 + 0.5 * (1 - np.array(LEVELS) / 1000))[None, :, None]
    found[:, :, rng.random(samples) < 0.1] = 0
    return Trajectories(
        RUNS, np.array(LEVELS), found, tuple(f"{i:03}" for i in range(samples)), "L2"
    )


def subject(model, split, tiers, *, known=None, data="d", doubts=(), samples=None):
    """A model known by its distances at each budget alone."""
    rows = {budget: np.asarray(d, dtype=float) for budget, d in tiers.items()}
    last = rows[max(rows)]
    names = samples or tuple(str(i) for i in range(last.size))
    growth = {budget: aoi(d, last).value for budget, d in rows.items()}
    return Subject(
        model, data, split, names, last, {"greedy": rows}, growth, known=known, doubts=tuple(doubts)
    )


def scored(model, split, baseline, tiers, straight):
    """A model known by its AOIs alone."""
    found = subject(model, split, {tier: [1.0] for tier in tiers})
    by_lines = {True: straight, False: tiers}
    vars(found).update(
        aoi=lambda tier, *, straight=False: by_lines[straight][tier[1]],
        baseline=BaselineAOI(baseline, baseline, baseline),
    )
    return found


def rows_by(table, *names):
    """The rows of a table by what stands in these columns."""
    return {tuple(row[name] for name in names): row for row in table.records()}


def pool_of_four():
    traces = {
        "A": traced(1),
        "B": traced(2, robust=0.3),
        "C": traced(3, robust=1.1),
        "D": traced(4, robust=0.9),
    }
    splits = {"A": "train", "B": "held-out", "C": "train", "D": "held-out"}
    training = [traces[model] for model in traces if splits[model] == "train"]
    ensembles = dict(zip(BUDGETS, allocate(training, budgets=BUDGETS, levels=LEVELS), strict=True))
    subjects = [
        Subject.of(traces[model], ensembles, model=model, data="d", split=splits[model])
        for model in traces
    ]
    return traces, ensembles, subjects
