"""Races and traces: what a race finds is read off traces of its runs, and its order and hopes are learned from such.

Runs are independent, so what a race would find is known once all its runs were traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advfrontier.errors import FrontierError
from advfrontier.frontier.allocation import staged
from advfrontier.frontier.optimality import excess
from advfrontier.frontier.problem import build_problem
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import MAX_QUERIES, SLICE, TIERS, Polish, Race, Run, Turn
from advfrontier.pool.ensemble import tier_name


@dataclass(frozen=True, eq=False)
class RaceOutcome:
    """What a race finds, and where its queries go."""

    distances: NDArray[np.float64]  # (slice, sample): after 100, 200, … queries per sample
    plan: NDArray[
        np.intp
    ]  # (slice, sample): the run, by its place in the order, that each slice goes to

    def at(self, budget: int) -> NDArray[np.float64]:
        """The distances after so many queries per sample."""
        return np.asarray(self.distances[budget // SLICE - 1])


def read_off(traces: Trajectories, policy: Race, budget: int | None = None) -> RaceOutcome:
    """What `policy` finds on traced samples with `budget` queries each, by default all of its own.

    Samples that are misclassified anyway are found at distance 0 by every run, and take part like all others. What
    polishing finds is in no trace: its queries are spent here, and bring nothing.
    """
    budget = policy.total if budget is None else budget
    most = MAX_QUERIES * len(policy.runs)
    if budget % SLICE or not 0 < budget <= most:
        raise FrontierError(
            f"cannot read a race off traces after {budget} queries: expected a multiple of {SLICE}, up to {most}"
        )
    if traces.queries[-1] < MAX_QUERIES:
        raise FrontierError(
            f"these traces end at {traces.queries[-1]} queries: expected all {MAX_QUERIES}"
        )
    chosen = traces.select(runs=policy.runs).thin(range(SLICE, MAX_QUERIES + 1, SLICE)).distances
    return simulate(chosen, policy, budget // SLICE)


def simulate(distances: NDArray[np.float64], policy: Race, slices: int) -> RaceOutcome:
    """A race over distances (run in the policy's order, slice, sample)."""
    runs, _, samples = distances.shape
    spent = np.zeros((samples, len(policy.names)), dtype=np.int64)
    found = np.full((samples, len(policy.names)), np.inf)
    best, rows = np.full(samples, np.inf), np.arange(samples)
    reached, plan = np.empty((slices, samples)), np.empty((slices, samples), dtype=np.intp)
    for k in range(slices):
        place, before = policy.choice(k * SLICE, spent, found)
        spent[rows, place] += SLICE
        if place[0] < runs:
            now = distances[place, before // SLICE, rows]
            found[rows, place] = now
            best = np.minimum(best, now)
        reached[k], plan[k] = best, place
    return RaceOutcome(reached, plan)


_BUDGETS = (
    1000,
    2000,
    *TIERS,
    20_000,
    40_000,
)  # of the allocation whose moves are the order: samples walk far beyond
_RARE = 0.02  # the share of runs that end nearer than is reckoned with
_EVERY = 4000  # queries, of which the last polish
_REACH = 3.0  # of a turn that is to end in another place than the nearest point
_TURNS = {  # by norm: of what was tried on training models, the runs that ended nearest
    "L0": (Turn("fmn", 200),),
    "L1": (
        Turn("pdpgd", 400, _REACH), Turn("fab_min", 200, _REACH), Turn("apgd_min-dlr", 200, _REACH), Turn("fmn", 200),
    ),
    "L2": (
        Turn("pdgd", 400, _REACH), Turn("fmn", 200, _REACH), Turn("apgd_min-dlr", 200, _REACH), Turn("fmn", 200),
    ),
    "Linf": (
        Turn("apgd_min-dlr", 200, _REACH), Turn("apgd_min-ce", 200, _REACH), Turn("square_min", 200), Turn("fmn", 200),
    ),
}  # fmt: skip
_NOTHING = 1e4  # times the frontier: what counts as the distance where nothing was found


def learn_race(
    traces: Sequence[Trajectories], *, name: str = "race", total: int = TIERS[-1]
) -> Race:
    """A race for models like these: traces of one pool, each model counting the same.

    The order is that of the moves of a greedy allocation: the paper's algorithm as printed, or the one with moves of
    several runs, whichever does better when one model at a time is left out and raced on with what the others teach.
    How it polishes does not depend on the traces, in which nothing of it can be seen.

    Args:
        traces: All runs of a pool to their ends, on several models in one norm.
        name: What the race is called.
        total: Queries per sample.
    """
    if not traces or len({trace.norm for trace in traces}) != 1:
        raise FrontierError(
            "a race is learned from traces in one norm: expected at least one, all in the same norm"
        )
    runs = [run for run in traces[0].runs if all(run in trace.runs for trace in traces)]
    if total > MAX_QUERIES * len(runs):
        total = MAX_QUERIES * len(runs)
        name = tier_name(name, total)
    models = [trace.select(runs=runs) for trace in traces]
    plain = True
    if len(models) > 1:
        scores = {True: 0.0, False: 0.0}
        budgets = [min(tier, total) for tier in TIERS]
        for k, model in enumerate(models):
            for each in scores:
                race = _race(models[:k] + models[k + 1 :], name, total, plain=each)
                scores[each] += sum(race_excess(model, race, budgets).values())
        plain = scores[True] <= scores[False]
    return _race(models, name, total, plain=plain)


def race_excess(traces: Trajectories, race: Race, budgets: Sequence[int]) -> dict[int, float]:
    """By how much the distances of a race exceed the frontier of the traced runs on average, at these budgets."""
    found = read_off(traces, race, max(budgets))
    frontier = traces.frontier()
    return {budget: excess(found.at(budget), frontier) for budget in budgets}


def _race(models: Sequence[Trajectories], name: str, total: int, *, plain: bool) -> Race:
    """What these models teach."""
    runs, table = models[0].runs, np.concatenate([_excess(model) for model in models], axis=2)
    order, solvers = _order(models, plain=plain), models[0].solvers
    polish = polishing(models[0].norm, runs)
    return Race(
        name, models[0].norm, total, order, _hopes(runs, table), solvers=solvers, polish=polish
    )


def polishing(norm: str, runs: Sequence[str]) -> Polish | None:
    """How a race of these runs polishes: in the turns of the norm whose attacks are among them; None if there are none.

    Turns that start beyond the nearest point look for a nearer one elsewhere. The search without gradients is for
    models whose gradients mislead.
    """
    turns = tuple(turn for turn in _TURNS[norm] if turn.attack in runs)
    return Polish(turns, _EVERY) if turns else None


def _excess(traces: Trajectories) -> NDArray[np.float64]:
    """(run, slice, sample): distances over the frontier, of the samples that were attacked and broken."""
    thin = traces.thin(range(SLICE, MAX_QUERIES + 1, SLICE)).distances
    frontier = traces.frontier()
    attacked = (frontier > 0) & (frontier < np.inf)
    return np.minimum(thin[:, :, attacked] / frontier[attacked], _NOTHING)


def _order(traces: Sequence[Trajectories], *, plain: bool) -> tuple[tuple[str, int], ...]:
    """The moves of a greedy allocation, without its bounds, then all that is left of every run."""
    runs = traces[0].runs
    budgets = [budget for budget in _BUDGETS if budget <= MAX_QUERIES * len(runs)]
    levels = range(SLICE, MAX_QUERIES + 1, SLICE)
    problem = build_problem(traces, levels=list(levels))
    raises = [
        each
        for stage in staged(problem, budgets, plain=plain).values()
        for move in stage
        for each in move
    ]
    moves = [(problem.runs[run], int(problem.costs[level])) for run, level in raises]
    reached = dict.fromkeys(runs, 0) | dict(moves)
    return (
        *moves,
        *((run, MAX_QUERIES) for run, queries in reached.items() if queries < MAX_QUERIES),
    )


def _hopes(runs: Sequence[str], table: NDArray[np.float64]) -> dict[str, tuple[float, ...]]:
    """Attack → the ratio d(1000)/d(q) that only a rare run goes below: of a run not begun, to another run's end."""
    attacks = np.array([Run.parse(run).attack for run in runs])
    learned = {}
    for attack in dict.fromkeys(attacks.tolist()):
        own = table[attacks == attack]
        ends = own[:, -1]
        pairs = (ends[:, None] / ends[None])[~np.eye(len(ends), dtype=bool)]
        before = np.quantile(pairs, _RARE) if pairs.size else 1.0
        ratios = (own[:, -1:] / own[:, :-1]).swapaxes(0, 1).reshape(own.shape[1] - 1, -1)
        after = (
            np.quantile(ratios, _RARE, axis=1) if ratios.size else np.ones(len(ratios))
        )  # nothing was broken
        learned[attack] = tuple(float(f"{ratio:.4g}") for ratio in (before, *after))
    return learned
