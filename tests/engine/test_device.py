"""What a GPU would wait for and launch, counted on the CPU: per step of a solver, per 4k ensemble.

Operations are calls of PyTorch's operators beside those of the model's own passes. A budget is what
was measured plus 5 %: a change that raises one is welcome if it is worth it, with the new figure.
"""

import math
from functools import cache
from typing import NamedTuple

import pytest
import torch
from support.device import count_device_work
from support.runs import Bench, runs_of, small, step_cost

from advfrontier import zoo
from advfrontier.engine import Unit, advance
from advfrontier.pool import CHECKPOINT, Fork, Raise, find_ensemble, make_ensemble
from advfrontier.threat.names import NORMS

# Operations per step of a solver, at most: measured on a small tanh net, plus 5 %.
STEP_BUDGETS = {
    "L0": {"sigma_zero": 110, "pdpgd": 304, "fmn": 300, "sparse_min": 156, "prune": 195},
    "L1": {
        "pdpgd": 135,
        "fmn": 212,
        "apgd_min-ce": 450,
        "apgd_min-dlr": 463,
        "alma": 175,
        "fab_min": 569,
        "square_min": 169,
    },
    "L2": {
        "pdpgd": 177,
        "pdgd": 102,
        "fmn": 114,
        "apgd_min-ce": 139,
        "apgd_min-dlr": 152,
        "alma": 170,
        "ddn": 113,
        "fab_min": 292,
        "square_min": 162,
    },
    "Linf": {
        "pdpgd": 238,
        "fmn": 114,
        "apgd_min-ce": 133,
        "apgd_min-dlr": 145,
        "fab_min": 287,
        "square_min": 111,
    },
}
# Operations and waits per model call of the default 4k ensemble, at most.
CALL_BUDGETS = {"L0": 140, "L1": 180, "L2": 110, "Linf": 100}
WAITS_PER_CALL = 1.0
WAITS_PER_STEP = 0.3  # of a run, checkpoints and its end included

EVERY_RUN = []
for _norm in NORMS:
    EVERY_RUN.extend((_norm, str(_run)) for _run in runs_of(_norm))


class Cost(NamedTuple):
    """Operations and waits."""

    operations: float
    waits: float


def bare_operations(bench, cost):
    """Return the operations of the model's own passes in one step of a solver."""
    images = bench.shard.inputs.view(-1, *bench.shard.shape).clone()
    with count_device_work() as work, torch.set_grad_enabled(cost == 2):
        logits = bench.oracle.model(images.requires_grad_(cost == 2))
        if cost == 2:
            torch.autograd.grad(logits.sum(), images)
    return work.operations


@cache
def steps_of(norm, run, queries=200):
    """Return the cost of every step of a run, from query 20 on, and of the whole stretch."""
    bench = small(norm)
    search = bench.search(run)
    bench.go(search, 20)
    steps, before = [], Cost(0, 0)
    with count_device_work() as work:

        def tick(_):
            nonlocal before
            now = Cost(work.operations, work.waits)
            steps.append(Cost(now.operations - before.operations, now.waits - before.waits))
            before = now

        bench.go(search, 20 + queries, tick=tick)
    return steps, work


@pytest.mark.parametrize(("norm", "run"), EVERY_RUN)
def test_nothing_waits_between_two_checkpoints(norm, run):
    steps, work = steps_of(norm, run)
    cost = step_cost(run)
    assert len(steps) == 200 // cost
    for number, step in enumerate(steps, start=1):
        if number * cost % CHECKPOINT:
            assert step.waits == 0, work.where
    assert 0 < work.waits <= WAITS_PER_STEP * len(steps), work.where


@pytest.mark.parametrize(("norm", "run"), EVERY_RUN)
def test_steps_launch_no_more_operations_than_their_budget(norm, run):
    steps, work = steps_of(norm, run)
    cost = step_cost(run)
    own = bare_operations(small(norm), cost)
    between = []
    for number, step in enumerate(steps, start=1):
        if number * cost % CHECKPOINT:
            between.append(step.operations - own)
    mean = sum(between) / len(between)
    assert run in STEP_BUDGETS[norm], f"add {run!r}: {math.ceil(1.05 * mean)} to STEP_BUDGETS"
    assert mean <= STEP_BUDGETS[norm][run], work.names.most_common(10)
    assert mean > STEP_BUDGETS[norm][run] / 2  # else the budget has become too large to hold


def scaled(ensemble, part):
    """Return an ensemble with one part in so many of the queries of every step within its total."""
    steps = []
    for span in ensemble.between(0, ensemble.total):
        content = span.step.model_dump(exclude_unset=True)
        if isinstance(span.step, Fork):
            for branch in content["fork"].values():
                for step in branch:
                    step["queries"] //= part
        else:
            length = min(span.end, ensemble.total) - span.begin
            content["queries"] = (span.reached + length) // part
        steps.append(content)
    return make_ensemble(name="part", norm=ensemble.norm, steps=steps)


class Work(NamedTuple):
    """Operations beside the model's own, waits, and calls: forward and backward passes."""

    operations: float
    waits: float
    calls: float


@cache
def work_of(norm, part):
    """Return the work of a part of the default 4k on the zoo's F3."""
    images, labels = zoo.images_and_labels()[:2]
    bench = Bench.of(zoo.load("F3"), images[:40], labels[:40], norm)
    assert len(bench.shard) >= 32
    bench = Bench(bench.oracle, bench.shard.select(torch.arange(32)), bench.clean)
    ensemble = scaled(find_ensemble("4k", norm, 10), part)
    assert ensemble.total == 4000 // part
    unit = Unit.start(ensemble, bench.shard)
    passes = {True: 0, False: 0}  # with and without a backward pass

    def count(_module, arguments, _answer):
        passes[arguments[0].requires_grad] += 1

    handle = bench.oracle.model.register_forward_hook(count)
    with bench.oracle, count_device_work() as work:
        advance(bench.oracle, unit, ensemble.total)
    handle.remove()
    own = passes[True] * bare_operations(bench, 2) + passes[False] * bare_operations(bench, 1)
    return Work(work.operations - own, work.waits, 2 * passes[True] + passes[False])


@pytest.mark.parametrize(
    "norm", ["L2", "Linf", *(pytest.param(n, marks=pytest.mark.slow) for n in ("L0", "L1"))]
)
def test_default_ensemble_keeps_to_its_budget_of_operations_and_waits(norm):
    """The whole 4k is estimated from two parts of it.

    Every step with a tenth, and with a fifth, of its queries: their difference is 400 queries
    without a beginning or an end of a step, and the rest is what beginnings and ends cost. In a
    fork each of the two groups of samples has calls of its own.
    """
    tenth, fifth = work_of(norm, 10), work_of(norm, 5)
    calls = tenth.calls + 9 * (fifth.calls - tenth.calls)
    for name, budget in (("operations", CALL_BUDGETS[norm]), ("waits", WAITS_PER_CALL)):
        small_part, large_part = getattr(tenth, name), getattr(fifth, name)
        whole = small_part + 9 * (large_part - small_part)
        assert 0 < whole / calls <= budget, f"{whole:.0f} {name} in {calls} calls"


def test_scaled_ensemble_has_every_step():
    ensemble = find_ensemble("4k", "L2", 10)
    part = scaled(ensemble, 10)
    assert len(part.steps) == len(list(ensemble.between(0, 4000)))
    assert [type(step) for step in part.steps[:5]] == [type(s) for s in ensemble.steps[:5]]
    assert {name: 10 * queries for name, queries in part.queries.items()} == ensemble.queries
    assert isinstance(part.steps[0], Raise)
