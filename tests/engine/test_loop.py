"""One run of a solver: what counts as a success, what is kept, and what is refused."""

from dataclasses import dataclass

import pytest
import torch
from support.models import Answering, conv_net, linear, samples, tanh_mlp
from support.runs import Bench, catalogue, complete, small, step_cost
from torch import nn

from advfrontier import FrontierError
from advfrontier.engine.loop import refinement_starts
from advfrontier.pool import Refine

EVERY_RUN = pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
EVERY_BASE_RUN = pytest.mark.parametrize(("norm", "run"), catalogue())
ORDERS = {"L0": 0, "L1": 1, "L2": 2, "Linf": torch.inf}


def measured(delta, norm):
    """Return the norm of every row, by another way than the library's."""
    return torch.stack([torch.linalg.vector_norm(row, ORDERS[norm]) for row in delta])


@EVERY_RUN
def test_points_stay_in_the_box_and_are_at_the_distances_that_are_returned(norm, run):
    """A model with kinks, images with features at both ends of the box."""
    net = conv_net((1, 6, 6), seed=2)

    class Guarded(nn.Module):
        def forward(self, images):
            assert images.isfinite().all()
            assert images.min() >= 0
            assert images.max() <= 1
            return net(images)

    images, _ = samples(net, 6, (1, 6, 6), seed=1)
    images = images.sub(0.3).mul(2).clamp(0, 1)
    labels = net(images).argmax(1)
    bench = Bench.of(Guarded(), images, labels, norm)
    search, trajectory = bench.finished(run, 200 if ":" not in run else 100)
    assert (trajectory[1:] <= trajectory[:-1]).all()
    kept = trajectory[-1].isfinite()
    assert kept.any()
    delta = search.best_point.double() - images.flatten(1).double()
    torch.testing.assert_close(trajectory[-1], measured(delta, norm).where(kept, torch.inf))
    assert (net(search.best_point.view(-1, 1, 6, 6)).argmax(1) != labels)[kept].all()
    assert torch.equal(search.best_point[~kept], images.flatten(1)[~kept])


@EVERY_RUN
def test_distances_are_those_of_the_kept_points_in_float64(norm, run):
    search, trajectory = complete(norm, run)
    kept = trajectory[-1].isfinite()
    assert torch.equal(kept, search.best_distance < torch.inf)
    delta = (search.best_point.double() - search.problem.inputs.double())[kept]
    again = measured(delta, norm)
    torch.testing.assert_close(trajectory[-1][kept], again, rtol=1e-14, atol=0)
    single = search.best_distance[kept].double()
    torch.testing.assert_close(single, again, rtol=1e-5, atol=0)


TARGETED = [case for case in catalogue("target2", classes=3) if ":" in case.values[1]]


@pytest.mark.parametrize(("norm", "run"), TARGETED)
def test_targeted_runs_count_any_misclassification(norm, run):
    """Class 2, the target, can never win; on the way to it class 1 does."""
    weight = torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0], [0.1, 0, 0, 0]])
    bias = torch.tensor([0.5, -0.5, -10.0])
    images = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)) * 0.4
    model = Answering(lambda x: x @ weight.T + bias)
    bench = Bench.of(model, images, torch.zeros(5, dtype=torch.long), norm)
    search, trajectory = bench.finished(run, 300)
    assert (search.problem.targets == 2).all()
    assert trajectory[-1].isfinite().all()
    assert ((search.best_point @ weight.T + bias).argmax(1) == 1).all()


def constant(x):
    """Return four classes, the first always ahead; the gradient is exactly zero."""
    return torch.tensor([2.0, 1.0, 0.5, 0.0]).to(x) + 0 * x.sum(1, keepdim=True)


def poisoned(x):
    """Return the same logits, whose gradient is NaN: the slope of a square root at zero."""
    return constant(x) + (0 * x).sqrt().sum(1, keepdim=True)


@EVERY_RUN
@pytest.mark.parametrize("logits", [constant, poisoned])
def test_distance_of_unbreakable_models_is_infinite(norm, run, logits):
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    bench = Bench.of(Answering(logits), images, torch.zeros(3, dtype=torch.long), norm)
    search, trajectory = bench.finished(run, 40)
    assert trajectory.isinf().all()
    assert search.state.point.isfinite().all()
    assert torch.equal(search.best_point, search.problem.inputs)
    if step_cost(run) == 2:
        steps = 20
        assert (search.zero_gradients == steps).all()
        assert (search.bad_gradients == (steps if logits is poisoned else 0)).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@EVERY_BASE_RUN
def test_model_that_fails_where_it_would_be_wrong_stays_unbroken(norm, run, bad):
    layer = linear(16, 3, seed=1)

    def logits(x):
        z = layer(x)
        return torch.where((z.argmax(1) == 0)[:, None], z, bad)

    images = torch.rand(40, 16, generator=torch.Generator().manual_seed(0))
    images = images[layer(images).argmax(1) == 0][:4]
    bench = Bench.of(Answering(logits), images, torch.zeros(4, dtype=torch.long), norm)
    assert bench.finished(run, 100).distances.isinf().all()


@EVERY_BASE_RUN
def test_step_on_logits_that_are_not_finite_does_not_poison_the_run(norm, run):
    """The model fails at some ends of the box; a solver that comes there must find its way out."""
    net = tanh_mlp((16,), hidden=16, classes=3, seed=1)

    def logits(x):
        ends = (x[:, :2] == 1).any(1) | (x[:, 2:4] == 0).any(1)
        return torch.where(ends[:, None], torch.nan, net(x))

    images, labels = samples(net, 16, (16,))
    search, trajectory = Bench.of(Answering(logits), images, labels, norm).finished(run, 200)
    assert search.state.point.isfinite().all()
    lost = [name for name, tensor in search.tensors().items() if tensor.isnan().any()]
    assert set(lost) <= {"state/last_loss"}  # of the step before, whatever it was
    assert trajectory[-1].isfinite().sum() >= 8


@EVERY_BASE_RUN
def test_float64_runs_keep_float64_and_end_near_the_float32_ones(norm, run):
    search, trajectory = small(norm, torch.float64).finished(run, 100)
    assert search.best_point.dtype == torch.float64
    assert all(tensor.dtype != torch.float32 for tensor in search.tensors().values())
    double, single = trajectory[-1], small(norm).finished(run, 100).distances
    broken = double.isfinite()
    assert torch.equal(broken, single.isfinite())
    assert (double / single - 1)[broken].abs().median() < (0.2 if norm == "L0" else 0.05)


def test_stop_where_the_run_stands_spends_nothing():
    bench = small("L2")
    search, _ = bench.finished("fmn", 50)
    before = bench.oracle.counts.attack
    assert bench.go(search, 50).shape == (0, 5)
    assert bench.oracle.counts.attack == before


def test_ticks_add_up_to_the_queries_spent():
    bench, ticks = small("Linf"), []
    for run, queries in (("fmn", 30), ("square_min", 20)):
        bench.go(bench.search(run), queries, tick=ticks.append)
    assert sum(ticks) == 5 * (30 + 20)


# Where runs start


def test_restarts_use_seeds_43_to_47_and_other_runs_42():
    bench = small("L2")
    assert bench.search("fmn").problem.seed == 42
    assert bench.search("fmn:target3").problem.seed == 42
    assert [bench.search(f"fmn:restart{k}").problem.seed for k in range(1, 6)] == [*range(43, 48)]


def test_restarts_start_at_random_and_other_runs_at_the_inputs():
    bench = small("L2")
    for run in ("fmn", "fmn:target1"):
        assert torch.equal(bench.search(run).state.point, bench.shard.inputs)
    starts = [bench.search(f"fmn:restart{k}").state.point for k in range(1, 6)]
    for k, start in enumerate(starts):
        for other in (*starts[:k], bench.shard.inputs):
            assert (start != other).any(1).all()


def test_random_starts_of_a_sample_are_the_same_in_any_batch():
    bench = small("L2")
    among_others = bench.search("fmn:restart2").problem.starts
    alone = bench.search("fmn:restart2", [3]).problem.starts
    assert torch.equal(among_others[3], alone[0])


def test_target_runs_aim_at_the_likeliest_wrong_classes_in_order():
    bench = small("L2")
    for k in (1, 4, 9):
        assert torch.equal(
            bench.search(f"fmn:target{k}").problem.targets, bench.shard.targets[:, k - 1]
        )
    assert bench.search("fmn").problem.targets is None


def test_refinement_at_the_best_point_starts_there():
    bench = small("L2")
    best = bench.finished("fmn", 100).search.best_point
    step = Refine(run="fmn", queries=100, start="best")
    starts = refinement_starts(bench.shard, step, best, seed=100)
    assert torch.equal(starts, best)
    assert starts.data_ptr() != best.data_ptr()


@pytest.mark.parametrize("reach", [1.5, 3.0])
def test_refinement_beyond_the_best_point_starts_on_the_ray_through_it(reach):
    bench = small("L2")
    x, best = bench.shard.inputs, bench.finished("fmn", 100).search.best_point
    step = Refine(run="fmn", queries=100, start="beyond", reach=reach)
    starts = refinement_starts(bench.shard, step, best, seed=100)
    free = (starts > 0) & (starts < 1) & ((best - x).abs() > 1e-4)
    ratio = (starts - x) / (best - x)
    least = ratio.where(free, torch.inf).amin(1)
    most = ratio.where(free, -torch.inf).amax(1)
    torch.testing.assert_close(least, most, rtol=1e-2, atol=0)
    assert (least > 1).all()
    assert (most < reach).all()
    assert len(set(most.tolist())) == len(x)  # every sample draws its own
    other = refinement_starts(bench.shard, step, best, seed=110)
    assert (other != starts).any(1).all()


# Solvers of other packages


@dataclass
class State:
    point: torch.Tensor


@dataclass
class Listed:
    point: torch.Tensor
    past: list


@dataclass(frozen=True)
class Foreign:
    """A solver that walks away from its inputs by 0.3 a step."""

    kind: str = "leaves"

    def start(self, problem):
        if self.kind == "rows":
            return State(problem.inputs[:1])
        if self.kind == "list":
            return Listed(problem.inputs, [])
        return {"point": problem.inputs} if self.kind == "dict" else State(problem.inputs)

    def loss(self, i):  # noqa: ARG002
        return "hinge" if self.kind == "loss" else "margin"

    def step(self, problem, state, i, answer):  # noqa: ARG002
        state.point = state.point + 0.3


@pytest.mark.parametrize("kind", ["rows", "list", "dict", "loss"])
def test_solver_that_breaks_the_contract_is_refused_at_its_start(kind):
    with pytest.raises(FrontierError, match=r"the solver Foreign keeps .*expected a dataclass of"):
        small("L2").search("fmn", solver=Foreign(kind))


def test_solver_that_leaves_the_box_is_refused():
    with pytest.raises(FrontierError, match=r"a point of Foreign has left \[0, 1\].*clamp"):
        small("L2").finished("fmn", 100, solver=Foreign())
