"""Other ways to give out the same queries, for the greedy allocation and the race to be compared with.

None of them looks at a held-out model: the best attack and the best run are those of the training models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from advfrontier.frontier.optimality import aoi
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import CHECKPOINT, Run, tier_label

Queries = dict[str, int]  # run → queries
Allocations = dict[str, dict[int, Queries]]  # how queries are given out → budget → what each run gets

UNIFORM, BEST_ATTACK, BEST_RUN, RANDOM = "uniform", "best attack", "best run", "random"
SEEDS = 10  # random allocations
_STEP = 100  # queries: what a random allocation gives out is a multiple of it


def rivals(
    training: Iterable[Trajectories], runs: Sequence[str], *, budgets: Sequence[int], queries: int
) -> Allocations:
    """Name → budget → queries of each run.

    Args:
        training: Traces of the training models, which may come one at a time.
        runs: The runs that all of them have.
        budgets: Queries per sample.
        queries: What one run may spend.
    """
    alone = {run: {run: queries} for run in runs}
    by_attack = {attack: {b: _attack(own, b, queries) for b in budgets} for attack, own in _attacks(runs).items()}
    scores: dict[tuple[str, int], float] = dict.fromkeys(
        [*((run, 0) for run in alone), *((attack, b) for attack in by_attack for b in budgets)], 0.0
    )
    for traces in training:
        frontier = traces.frontier()
        for name, budget in scores:
            given = alone[name] if budget == 0 else by_attack[name][budget]
            scores[name, budget] += aoi(traces.best(given), frontier).value
    best_run = max(alone, key=lambda run: scores[run, 0])
    best_attack = {budget: max(by_attack, key=lambda attack: scores[attack, budget]) for budget in budgets}
    return {
        UNIFORM: {budget: _uniform(runs, budget, queries) for budget in budgets},
        BEST_ATTACK: {budget: by_attack[attack][budget] for budget, attack in best_attack.items()},
        BEST_RUN: {budget: alone[best_run] for budget in budgets if budget >= queries},
        **{f"{RANDOM} {seed}": {b: _random(runs, b, queries, seed) for b in budgets} for seed in range(SEEDS)},
    }


def rival_words(given: Allocations) -> dict[str, str]:
    """What these other ways to give out queries are."""
    attacks = {tier_label(b): Run.parse(next(iter(runs))).attack for b, runs in given[BEST_ATTACK].items()}
    by_tier = ", ".join(f"{attack} at {tier}" for tier, attack in attacks.items())
    told = {
        UNIFORM: "equal queries for all runs",
        BEST_ATTACK: f"base run, restarts and targets of one attack, one after the other: {by_tier}",
    }
    for run, queries in (pair for runs in given[BEST_RUN].values() for pair in runs.items()):
        told[BEST_RUN] = f"{run} alone, with {queries} queries whatever the tier"
    return {**told, RANDOM: "runs in random order with random queries each"}


def _attacks(runs: Sequence[str]) -> dict[str, list[str]]:
    """Attack → its base run, restarts and targets, in the order of the pool."""
    attacks: dict[str, list[str]] = {}
    for run in runs:
        attacks.setdefault(Run.parse(run).attack, []).append(run)
    return attacks


def _attack(own: Sequence[str], budget: int, most: int) -> Queries:
    """The base run to its end, then one restart after the other, then targets."""
    given: Queries = {}
    for run in own:
        left = min(most, budget - sum(given.values())) // CHECKPOINT * CHECKPOINT
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
    given: Queries = {}
    for place in draw.permutation(len(runs)).tolist():
        wanted = step * int(draw.integers(1, most // step + 1))
        left = min(wanted, budget - sum(given.values())) // CHECKPOINT * CHECKPOINT
        if left:
            given[runs[place]] = left
    return given
