"""Queries counted by hooks on the model, which know nothing of the engine."""

import pytest
import torch
from support.models import Watch, samples, tanh_mlp
from support.runs import Bench, catalogue, small, step_cost

from advfrontier import trace
from advfrontier.engine import Oracle, check_model, clean_pass
from advfrontier.pool import CATALOGUE, Run
from advfrontier.threat.norms import make_norm

SHAPE = (3, 4, 4)
BLACK_BOX = [name for name, facts in CATALOGUE.items() if facts.step_queries == 1]


def watched(count=6):
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, count, seed=3)
    return model, images, labels, Watch.on(model)


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_every_budget_is_spent_exactly_and_stops_leave_no_trace(norm, run):
    bench = small(norm)
    watch = Watch.on(bench.oracle.model)
    search, rows = bench.search(run), len(bench.shard)
    before, measured = bench.oracle.counts.attack, []
    for budget in range(10, 151, 10):
        measured.append(bench.go(search, budget))
        assert watch.total == budget * rows
        assert watch.forward == budget // step_cost(run) * rows
    assert search.queries == 150
    assert bench.oracle.counts.attack - before == watch.total
    assert torch.equal(torch.cat(measured), bench.finished(run, 150).trajectory)


@pytest.mark.parametrize(("gradients", "queries"), [(True, 2), (False, 1)])
def test_clean_pass_costs_two_queries_or_one_without_gradients(gradients, queries):
    model, images, labels, watch = watched(11)
    with Oracle(model) as oracle:
        norm = make_norm("L2", SHAPE)
        clean_pass(oracle, images, labels, norm, batch_size=4, gradients=gradients)
    assert watch.total == oracle.counts.setup == 11 * queries
    assert oracle.counts.attack == oracle.counts.checks == oracle.counts.verification == 0


@pytest.mark.parametrize("gradients", [True, False])
def test_checks_are_counted_apart(gradients):
    model, images, labels, watch = watched(11)
    with Oracle(model) as oracle:
        check_model(oracle, images, labels, gradients=gradients)
    assert watch.total == oracle.counts.checks > 0
    assert watch.backward == (2 * 11 if gradients else 0)  # at the images and near them
    assert oracle.counts.attack == oracle.counts.setup == oracle.counts.verification == 0


def test_traces_report_the_queries_that_the_hooks_saw():
    model, images, labels, watch = watched(9)
    labels[[0, 5]] = (labels[[0, 5]] + 1) % 10  # two are misclassified anyway
    right = [1, 2, 3, 4, 6, 7, 8]
    runs = ["fmn", "fmn:restart2", "square_min", "apgd_min-dlr:target3"]
    traces = trace(model, images, labels, norm="Linf", runs=runs, queries=30, batch_size=4)
    assert traces.counts["setup"] == 2 * 9
    assert traces.counts["attack"] == 30 * 7 * len(runs)
    assert traces.counts["verification"] == (traces.distances[:, -1, right] < torch.inf).sum()
    assert sum(traces.counts.values()) == watch.total
    black_box = 30 * 7
    half = (traces.counts["attack"] - black_box) // 2
    others = watch.backward - half
    assert others == 9 + 2 * 9  # one in the setup and two in the checks


@pytest.mark.parametrize("run", BLACK_BOX)
def test_black_box_runs_never_go_backwards(run):
    model, images, labels, watch = watched()
    norm = CATALOGUE[run].norms[0]
    traces = trace(model, images, labels, norm=norm, runs=[run], queries=50)
    assert watch.backward == 0
    assert traces.counts["attack"] == 50 * 6


def test_shard_costs_nothing_where_every_sample_is_misclassified_anyway():
    model, images, labels, watch = watched()
    traces = trace(model, images, (labels + 1) % 10, norm="L2", runs=["fmn"], queries=20)
    assert (traces.distances == 0).all()
    assert traces.counts["attack"] == 0
    assert watch.total == traces.counts["setup"] + traces.counts["checks"]


def test_misclassified_samples_are_never_attacked():
    model, images, labels, _ = watched(8)
    wrong, right = [1, 6], [0, 2, 3, 4, 5, 7]
    labels[wrong] = (labels[wrong] + 1) % 10
    seen = []
    handle = model.register_forward_hook(lambda _m, inputs, _out: seen.append(len(inputs[0])))
    runs = ["fmn", "fmn:restart1", "ddn:target1"]
    traces = trace(model, images, labels, norm="L2", runs=runs, queries=40)
    handle.remove()
    assert (traces.distances[:, :, wrong] == 0).all()
    assert (traces.distances[:, :, right] > 0).all()
    assert seen.count(6) >= 3 * 20
    assert traces.counts["attack"] == 3 * 40 * 6


def test_every_solver_states_what_a_step_costs():
    for facts in CATALOGUE.values():
        for norm in ("L0", "L1", "L2", "Linf"):
            if facts.runs_in(norm):
                run = Run(facts.name, facts.losses[0])
                names_a_loss = Bench.search(small(norm), run).solver.loss(0) is not None
                assert names_a_loss == (facts.step_queries == 2)
