"""Other ways to give out the same queries, for the greedy allocation and the race to be compared with.

None of them looks at a held-out model: the best attack and the best run are those of the training models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from advfrontier.bench.subject import Allocations
from advfrontier.frontier.optimality import aoi
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import CHECKPOINT, Run, tier_label

Queries = dict[str, int]  # run → queries

UNIFORM, BEST_ATTACK, BEST_RUN, RANDOM = "uniform", "best attack", "best run", "random"
SEEDS = 10  # random allocations
_STEP = 100  # queries: what a random allocation gives out is a multiple of it


def rivals(
    training: Iterable[Trajectories], runs: Sequence[str], *, budgets: Sequence[int], queries: int
) -> Allocations:
    """Name → budget → queries of each of these runs, of which none may spend more than `queries`.

    The traces of the training models, which all have these runs, may come one at a time.
    """
    attacks: dict[
        str, list[str]
    ] = {}  # attack → its base run, restarts and targets, in the order of the pool
    for run in runs:
        attacks.setdefault(Run.parse(run).attack, []).append(run)
    # To choose from: a run alone; and for every budget the base run of an attack to its end, then one restart after the
    # other, then targets.
    choices = [[{run: queries} for run in runs]]
    choices += [
        [_in_turn([(run, queries) for run in own], budget) for own in attacks.values()]
        for budget in budgets
    ]
    scores = [np.zeros(len(each)) for each in choices]
    for traces in training:
        frontier = traces.frontier()
        for sums, each in zip(scores, choices, strict=True):
            sums += [aoi(traces.best(given), frontier).value for given in each]
    best_run, *best = (
        each[int(np.argmax(sums))] for sums, each in zip(scores, choices, strict=True)
    )
    return {
        UNIFORM: {budget: _uniform(runs, budget, queries) for budget in budgets},
        BEST_ATTACK: dict(zip(budgets, best, strict=True)),
        BEST_RUN: {budget: best_run for budget in budgets if budget >= queries},
        **{
            f"{RANDOM} {seed}": {b: _random(runs, b, queries, seed) for b in budgets}
            for seed in range(SEEDS)
        },
    }


def rival_words(given: Allocations) -> dict[str, str]:
    """What these other ways to give out queries are."""
    attacks = {
        tier_label(b): Run.parse(next(iter(runs))).attack for b, runs in given[BEST_ATTACK].items()
    }
    by_tier = ", ".join(f"{attack} at {tier}" for tier, attack in attacks.items())
    told = {
        UNIFORM: "equal queries for all runs",
        BEST_ATTACK: f"base run, restarts and targets of one attack, one after the other: {by_tier}",
    }
    for run, queries in (pair for runs in given[BEST_RUN].values() for pair in runs.items()):
        told[BEST_RUN] = f"{run} alone, with {queries} queries whatever the tier"
    return {**told, RANDOM: "runs in random order with random queries each"}


def _in_turn(wanted: Iterable[tuple[str, int]], budget: int) -> Queries:
    """What each run wants, one after the other, until the budget is spent."""
    given: Queries = {}
    for run, queries in wanted:
        left = min(queries, budget - sum(given.values())) // CHECKPOINT * CHECKPOINT
        if left:
            given[run] = left
    return given


def _uniform(runs: Sequence[str], budget: int, most: int) -> Queries:
    """As much for every run; what is left over goes in smallest parts to the first of them."""
    parts = min(budget, most * len(runs)) // CHECKPOINT
    each, over = divmod(parts, len(runs))
    given = {run: CHECKPOINT * (each + (place < over)) for place, run in enumerate(runs)}
    return {run: queries for run, queries in given.items() if queries}


def _random(runs: Sequence[str], budget: int, most: int, seed: int) -> Queries:
    """Runs in random order, each with a random number of queries, until the budget is spent; without the rules C.

    Smaller budgets are prefixes of larger ones.
    """
    draw = np.random.default_rng(seed)
    step = _STEP if most % _STEP == 0 else CHECKPOINT
    order = draw.permutation(len(runs)).tolist()
    return _in_turn(
        [(runs[place], step * int(draw.integers(1, most // step + 1))) for place in order], budget
    )
