"""What every solver of the catalogue keeps: the contract with the engine."""

import math

import pytest
import torch
from searches import Bench, answer_of, catalogue, runs_of, small, step
from support.device import count_device_work
from support.models import Answering, Watch, conv_problem, samples, tanh_mlp

from advfrontier.errors import FrontierError
from advfrontier.pool import CATALOGUE, Run, SolverFacts
from advfrontier.pool.plugins import register
from advfrontier.solvers import FMN, solver_of
from advfrontier.threat.names import NORMS

SHORT = 200  # a horizon: whole schedules in a fifth of the time


def test_every_solver_can_be_made_and_asks_for_a_gradient_as_its_facts_say():
    for norm in NORMS:
        for run in runs_of(norm, "restart1", "target1"):
            solver = solver_of(run)
            facts = CATALOGUE[run.solver]
            assert type(solver).__name__ == facts.solver.partition(":")[2]
            assert (solver.loss(3) is None) == (facts.step_queries == 1)
            assert solver_of(run) is solver
            assert solver_of(run.base) is solver


def test_losses_that_solvers_descend():
    asked = {}
    for norm in NORMS:
        for run in runs_of(norm):
            asked[str(run)] = {solver_of(run).loss(i) for i in (1, 250)}
    assert (
        asked
        | {
            "sigma_zero": {"margin"},
            "pdpgd": {"margin"},
            "pdgd": {"margin"},
            "fmn": {"margin"},
            "alma": {"dlr_plus"},
            "ddn": {"ce"},
            "apgd_min-ce": {"ce"},
            "apgd_min-dlr": {"dlr"},
            "fab_min": {"difference"},
            "square_min": {None},
            "sparse_min": {None},
            "prune": {"margin"},
        }
        == asked
    )


def test_unknown_solvers_are_refused():
    with pytest.raises(FrontierError, match=r"unknown solver in run newton: expected one of .*fmn"):
        solver_of(Run("newton"))


@pytest.mark.parametrize("place", ["no_such_package:Newton", "advfrontier.solvers.fmn:Newton"])
def test_solvers_that_cannot_be_imported_are_refused(monkeypatch, place):
    monkeypatch.setitem(CATALOGUE, "newton", SolverFacts("newton", place, ("L2",)))
    with pytest.raises(FrontierError, match=rf"newton is registered as {place}.*module:Class"):
        solver_of(Run("newton"))


def test_a_registered_class_is_made_once_for_each_loss(monkeypatch):
    monkeypatch.delitem(CATALOGUE, "mine", raising=False)

    class Mine(FMN):
        def __init__(self, loss_name):
            super().__init__()
            object.__setattr__(self, "loss_name", loss_name)

    register(SolverFacts("mine", Mine, ("L2",), losses=("ce", "dlr")))
    try:
        assert solver_of(Run("mine", "ce")).loss_name == "ce"
        assert solver_of(Run("mine", "dlr")).loss_name == "dlr"
    finally:
        del CATALOGUE["mine"]


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_base_runs_start_at_the_input_and_restarts_elsewhere(norm, run):
    bench = small(norm)
    base = bench.search(run)
    facts = CATALOGUE[Run.parse(run).solver]
    if facts.step_queries == 2:  # a black-box search starts from a random perturbation
        assert torch.equal(base.state.point, base.problem.inputs)
    if facts.restarts:
        again = bench.search(f"{run}:restart1")
        assert (again.state.point != base.state.point).any(1).all()
        problem = again.problem
        reach = problem.norm.distance(problem.starts, problem.inputs)
        most = problem.boundary.ceil() if norm == "L0" else problem.boundary * 1.0001
        assert (reach <= most).all()


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_cost_is_exact_at_every_checkpoint(norm, run):
    model, images, labels = conv_problem(4)
    bench = Bench.of(model, images, labels, norm)
    watch = Watch.on(model)
    search = bench.search(run, horizon=SHORT)
    for stop in range(10, 101, 10):
        bench.go(search, stop)
        assert watch.total == stop * len(bench.shard)


def row_wise(images):
    """Return logits that are computed for each sample alone, whatever the batch."""
    weight = torch.sin(torch.arange(4 * 27, dtype=images.dtype).view(4, 27) ** 1.5)
    hidden = torch.tanh((images[:, None] - 0.5) * weight)
    return torch.cat(
        [(hidden[:, k] * weight[(k + 1) % 4]).sum(1, keepdim=True) for k in range(4)], 1
    )


@pytest.mark.parametrize(("norm", "run"), catalogue(classes=4))
def test_results_do_not_depend_on_the_batch(norm, run):
    model = Answering(row_wise)
    bench = Bench.of(model, *samples(model, 6, (3, 3, 3)), norm)
    together = bench.search(run, horizon=SHORT)
    distances = bench.go(together, SHORT)
    for rows in ([5, 0, 2],):
        alone = bench.search(run, rows, horizon=SHORT)
        assert torch.equal(bench.go(alone, SHORT), distances[:, rows])
        assert torch.equal(alone.best_point, together.best_point[rows])


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1"))
def test_points_stay_in_the_box_and_states_are_finite(norm, run):
    bench = small(norm)
    search = bench.search(run, horizon=SHORT)
    for stop in range(20, SHORT + 1, 20):
        bench.go(search, stop)
        for tensor in (search.state.point, search.best_point):
            assert 0 <= float(tensor.min()) <= float(tensor.max()) <= 1
    for name, tensor in search.tensors().items():
        assert not tensor.isnan().any(), name


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_runs_work_in_float64(norm, run):
    bench = small(norm, torch.float64)
    search = bench.search(run, horizon=SHORT)
    assert bench.go(search, SHORT)[-1].isfinite().all()
    for name, tensor in search.tensors().items():
        assert tensor.dtype in {torch.float64, torch.bool}, name


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_a_model_that_fails_does_not_poison_a_run(norm, run):
    """Logits are not a number for some samples on some steps; the others go on, and later all."""
    model = tanh_mlp(hidden=16, seed=3)
    calls = [0]

    def failing(images):
        logits = model(images.view(-1, 3, 4, 4))
        calls[0] += 1
        if 10 < calls[0] < 40:
            return torch.where(images[:, :1] < images[:, 1:2], math.nan, logits)
        return logits

    images, labels = samples(model, 6, seed=3)
    bench = Bench.of(Answering(failing), images, labels, norm)
    search = bench.search(run, horizon=SHORT)
    assert bench.go(search, SHORT)[-1].isfinite().all()
    assert search.state.point.isfinite().all()


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_steps_make_no_device_wait(norm, run):
    search = small(norm, shape=(3, 12, 12)).search(run, horizon=100)
    for i in range(search.problem.steps):
        best = math.inf if i % 3 else 4.0
        answer = answer_of(search, wrong=i % 3 == 0, best=best, distance=5.0)
        with count_device_work() as work:
            step(search, i, answer)
        assert work.waits == 0, work.where
