"""Queries are counted by hooks on the model that know nothing of the engine, and must be what was asked for."""

import pytest
import torch
from support.models import Watch, samples, tanh_mlp
from support.runs import Bench, catalogue, small

from advfrontier import Machine, trace
from advfrontier.engine import Oracle, advance, check_model, classify, clean_pass
from advfrontier.pool import CATALOGUE, Run
from advfrontier.threat.norms import get_norm


def watched(count=6):
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, count, seed=3)
    return model, images, labels, Watch.on(model)


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_every_budget_is_spent_exactly_and_stops_leave_no_trace(norm, run):
    """10, 20, … queries: at each the model has seen exactly that many passes per sample, and what is found is the same.

    That nothing else differs either is the matter of the tests of resuming.
    """
    whole = small(norm)
    watch = Watch.on(whole.oracle.model)
    unit = whole.unit(run)
    cost = CATALOGUE[unit.run.solver].step_queries
    before = whole.oracle.counts.attack
    for budget in range(10, 151, 10):
        whole.go(unit, budget)
        assert watch.total == budget * unit.rows
        assert watch.forward == budget // cost * unit.rows
    assert unit.queries == 150
    assert whole.oracle.counts.attack - before == watch.total
    assert torch.equal(unit.trajectory[:15], whole.finished(run, 150).trajectory[:15])


@pytest.mark.parametrize("budget", [10, 20, 270, 1000])
def test_units_of_several_budgets_in_one_batch(budget):
    model, images, labels, watch = watched()
    bench = Bench.of(model, images, labels, "Linf")
    units = [bench.unit(run) for run in ("fmn", "square_min", "pdpgd")]
    watch.forward = watch.backward = 0
    with bench.oracle:
        advance(bench.oracle, units, [budget, 30, 10])
    assert [unit.queries for unit in units] == [budget, 30, 10]
    assert watch.total == 6 * (budget + 30 + 10)
    assert watch.forward == 6 * (budget // 2 + 30 + 5)


@pytest.mark.parametrize(("gradients", "queries"), [(True, 2), (False, 1)])
def test_setup(gradients, queries):
    model, images, labels, watch = watched(11)
    with Oracle(model) as oracle:
        clean_pass(oracle, images, labels, get_norm("L2"), batch_size=4, gradients=gradients)
    assert watch.total == oracle.counts.setup == 11 * queries
    assert oracle.counts.attack == oracle.counts.checks == oracle.counts.verification == 0


@pytest.mark.parametrize("gradients", [True, False])
def test_checks(gradients):
    model, images, labels, watch = watched(11)
    with Oracle(model) as oracle:
        check_model(oracle, images, labels, gradients=gradients)
    assert watch.total == oracle.counts.checks > 0
    assert watch.backward == (11 if gradients else 0)
    assert oracle.counts.attack == oracle.counts.setup == oracle.counts.verification == 0


def test_verification():
    model, images, labels, watch = watched()
    bench = Bench.of(model, images, labels, "L2")
    unit = bench.finished("fmn", 100)
    unit.best_distance[[1, 4]] = torch.inf  # nothing kept there
    before = watch.total
    with bench.oracle:
        classes, shares = classify(bench.oracle, unit, batch_size=3)
    assert watch.total - before == bench.oracle.counts.verification == 4
    assert (classes != labels).all()
    assert (classes[[1, 4]] == -1).all()
    assert shares.tolist() == [1, 0, 1, 1, 0, 1]


@pytest.mark.parametrize("pack", [1, 3])
def test_traces_tell_what_the_hooks_saw(pack):
    model, images, labels, watch = watched(9)
    labels[[0, 5]] = (labels[[0, 5]] + 1) % 10  # two are misclassified anyway
    runs = ["fmn", "fmn:restart2", "square_min", "apgd_min-dlr:target3"]
    traces = trace(
        model,
        images,
        labels,
        norm="Linf",
        runs=runs,
        queries=30,
        batch_size=4,
        machine=Machine(pack=pack),
    )
    assert traces.counts["setup"] == 2 * 9
    assert traces.counts["attack"] == 30 * 7 * len(runs)
    assert (
        traces.counts["verification"]
        == (traces.distances[:, -1, [1, 2, 3, 4, 6, 7, 8]] < torch.inf).sum()
    )
    assert sum(traces.counts.values()) == watch.total
    black_box = 30 * 7
    half = (traces.counts["attack"] - black_box) // 2
    others = watch.backward - half
    assert others == 9 + 9  # one in the setup and one in the checks


@pytest.mark.parametrize(
    "run", [Run(name) for name, facts in CATALOGUE.items() if facts.step_queries == 1]
)
def test_black_box_runs_never_go_backwards(run):
    model, images, labels, watch = watched()
    trace(model, images, labels, norm=CATALOGUE[run.solver].norms[0], runs=[str(run)], queries=50)
    assert watch.backward == 0
