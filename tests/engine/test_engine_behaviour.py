"""What the engine counts as a success, keeps, refuses and puts back."""

import pytest
import torch
from support.models import Answering, conv_net, linear, samples, tanh_mlp
from support.runs import Bench, catalogue, complete, small
from torch import nn

from advfrontier import FrontierError, trace
from advfrontier.engine import advance, robustly_misclassified
from advfrontier.pool import CATALOGUE

ALL = catalogue("restart1", "target1")
EVERY_RUN = pytest.mark.parametrize(("norm", "run"), ALL)


def measured(delta, norm):
    """‖δ‖ of one sample, by another way than the library's."""
    return torch.linalg.vector_norm(delta, {"L0": 0, "L1": 1, "L2": 2, "Linf": torch.inf}[norm])


def cost(run):
    return CATALOGUE[run.split("-")[0].split(":")[0]].step_queries


@EVERY_RUN
def test_points_stay_in_the_box_and_distances_never_rise(norm, run):
    """Kinked model, images with features at both ends of the box, every point looked at as the model gets it."""
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
    unit = bench.finished(run, 200 if ":" not in run else 100)
    done = unit.trajectory[: unit.queries // 10]
    assert (done[1:] <= done[:-1]).all()
    assert done[-1].isfinite().any()
    kept = done[-1].isfinite()
    delta = unit.best_point.double() - images.flatten(1).double()
    again = torch.stack([measured(row, norm) for row in delta])
    torch.testing.assert_close(done[-1][kept], again[kept], rtol=1e-14, atol=0)
    assert (net(unit.best_point.view(-1, 1, 6, 6)).argmax(1) != labels)[kept].all()
    assert torch.equal(unit.best_point[~kept], images.flatten(1)[~kept])


@pytest.mark.parametrize(
    ("norm", "run"), [case for case in catalogue("target2", classes=3) if ":" in case.values[1]]
)
def test_targeted_runs_count_any_misclassification(norm, run):
    """Class 2, the target, can never win; on the way to it class 1 does."""
    weight = torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0], [0.1, 0, 0, 0]])
    bias = torch.tensor([0.5, -0.5, -10.0])
    images = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)) * 0.4
    bench = Bench.of(
        Answering(lambda x: x @ weight.T + bias), images, torch.zeros(5, dtype=torch.long), norm
    )
    unit = bench.finished(run, 300)
    assert (unit.problem.targets == 2).all()
    assert unit.distances().isfinite().all()
    assert ((unit.best_point @ weight.T + bias).argmax(1) == 1).all()


def test_misclassified_samples_have_distance_zero_and_are_never_attacked():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 8, seed=3)
    wrong = torch.tensor([1, 6])
    labels[wrong] = (labels[wrong] + 1) % 10
    seen = []
    handle = model.register_forward_hook(lambda _m, inputs, _out: seen.append(len(inputs[0])))
    traces = trace(
        model, images, labels, norm="L2", runs=["fmn", "fmn:restart1", "ddn:target1"], queries=40
    )
    handle.remove()
    assert (traces.distances[:, :, wrong] == 0).all()
    right = torch.tensor([0, 2, 3, 4, 5, 7])
    assert (traces.distances[:, :, right] > 0).all()
    assert seen.count(6) >= 3 * 20
    assert traces.counts["attack"] == 3 * 40 * 6


def test_a_model_that_is_always_wrong_costs_nothing():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 4, seed=3)
    traces = trace(model, images, (labels + 1) % 10, norm="L2", runs=["fmn"], queries=20)
    assert (traces.distances == 0).all()
    assert traces.counts["attack"] == 0


def constant(x):
    """Four classes, the first always ahead; the gradient is exactly zero."""
    return torch.tensor([2.0, 1.0, 0.5, 0.0]).to(x) + 0 * x.sum(1, keepdim=True)


def poisoned(x):
    """The same logits, whose gradient is NaN: the slope of a square root at zero."""
    return constant(x) + (0 * x).sqrt().sum(1, keepdim=True)


@EVERY_RUN
@pytest.mark.parametrize("logits", [constant, poisoned])
def test_unbreakable_models_give_inf(norm, run, logits):
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    bench = Bench.of(Answering(logits), images, torch.zeros(3, dtype=torch.long), norm)
    unit = bench.unit(run)
    bench.go(unit, 40)
    steps = 40 // cost(run)
    assert unit.trajectory.isinf().all()
    assert unit.state.point.isfinite().all()
    if cost(run) == 2:
        assert (unit.zero_gradients == steps).all()
        assert (unit.bad_gradients == (steps if logits is poisoned else 0)).all()


@pytest.mark.parametrize("logits", [constant, poisoned])
def test_unbreakable_models_are_flagged(logits):
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    traces = trace(
        Answering(logits), images, torch.zeros(3, dtype=torch.long), norm="L2", queries=20
    )
    assert (traces.distances == torch.inf).all()
    told = [flag.text for flag in traces.flags]
    runs = "pdpgd, pdpgd:restart1, pdpgd:restart2 and 50 other runs"
    assert f"{runs}: up to 3 samples had no gradient on most steps" in told
    not_finite = f"{runs}: up to 3 samples had logits or gradients that are not finite"
    assert (not_finite in told) == (logits is poisoned)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_no_success(bad):
    z = torch.tensor([[0.0, 5, 1], [0.0, 5, 1], [0.0, 5, 1], [0.0, 5, 1]])
    for row in range(3):
        z[row, row] = bad
    gap = z[:, 0] - z[:, 1:].amax(1)
    assert robustly_misclassified(z, gap).tolist() == [False, False, False, True]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_a_model_that_fails_where_it_would_be_wrong_stays_unbroken(norm, run, bad):
    layer = linear(16, 3, seed=1)

    def logits(x):
        z = layer(x)
        return torch.where((z.argmax(1) == 0)[:, None], z, bad)

    images = torch.rand(40, 16, generator=torch.Generator().manual_seed(0))
    images = images[layer(images).argmax(1) == 0][:4]
    unit = Bench.of(Answering(logits), images, torch.zeros(4, dtype=torch.long), norm).finished(
        run, 100
    )
    assert unit.distances().isinf().all()


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_a_step_on_logits_that_are_not_finite_does_not_poison_the_run(norm, run):
    """The model fails at some ends of the box; a solver that comes there must find its way out."""
    net = tanh_mlp((16,), hidden=16, classes=3, seed=1)

    def logits(x):
        ends = (x[:, :2] == 1).any(1) | (x[:, 2:4] == 0).any(1)
        return torch.where(ends[:, None], torch.nan, net(x))

    images, labels = samples(net, 16, (16,))
    unit = Bench.of(Answering(logits), images, labels, norm).finished(run, 200)
    assert unit.state.point.isfinite().all()
    lost = [name for name, tensor in unit.tensors().items() if tensor.isnan().any()]
    assert set(lost) <= {"state.last_loss"}  # of the step before, whatever it was
    assert unit.distances().isfinite().sum() >= 8


def test_a_success_must_survive_another_layout():
    """A margin of less than 1e-5 of the largest logit does not count in float32, less than 1e-12 not in float64."""
    z = torch.tensor([[10.0, 10.00005, -4.0], [10.0, 10.0002, -4.0], [0.0, 2e-5, -1.0]])
    assert robustly_misclassified(z, z[:, 0] - z[:, 1]).tolist() == [False, True, True]
    fine = torch.tensor(
        [[10.0, 10.0 + 5e-12, -4.0], [10.0, 10.0 + 5e-11, -4.0]], dtype=torch.float64
    )
    assert robustly_misclassified(fine, fine[:, 0] - fine[:, 1]).tolist() == [False, True]


class Modes(nn.Module):
    """Modules in several modes, parameters of which some are frozen; fails after so many calls."""

    def __init__(self, calls=10**9):
        super().__init__()
        self.net, self.drop = tanh_mlp(hidden=16, seed=3), nn.Dropout(0.5)
        self.calls = calls
        self.train()
        self.net[2].eval()
        self.net[1].weight.requires_grad = False

    def forward(self, images):
        assert not self.drop.training
        assert not any(parameter.requires_grad for parameter in self.parameters())
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("out of memory")
        return self.drop(self.net(images))

    def condition(self):
        modes = {name: module.training for name, module in self.named_modules()}
        return modes, {name: parameter.requires_grad for name, parameter in self.named_parameters()}


@pytest.mark.parametrize("calls", [0, 3, 9, 10**9])
def test_the_model_is_put_back_as_it_was(calls):
    model = Modes(calls)
    images, labels = samples(tanh_mlp(hidden=16, seed=3), 5, seed=3)
    before = model.condition()
    assert len(set(before[0].values())) == len(set(before[1].values())) == 2
    if calls < 100:
        with pytest.raises((RuntimeError, FrontierError), match="out of memory"):
            trace(model, images, labels, norm="L2", runs=["fmn"], queries=50)
    else:
        trace(model, images, labels, norm="L2", runs=["fmn"], queries=50)
    assert model.condition() == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_works_in_no_grad_mode_with_the_same_bits():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 5, seed=3)
    options = {"norm": "L2", "runs": ["fmn", "alma:target1"], "queries": 60}
    expected = trace(model, images, labels, **options)
    with torch.no_grad():
        traces = trace(model, images, labels, **options)
    assert (traces.distances == expected.distances).all()
    assert torch.is_grad_enabled()


def test_images_of_the_caller_are_left_alone():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 5, seed=3)
    copy = images.clone()
    trace(
        model, images, labels, norm="L2", runs=["fmn", "fmn:restart1", "apgd_min-ce"], queries=100
    )
    assert torch.equal(images, copy)
    assert not images.requires_grad


@pytest.mark.parametrize(("norm", "run"), catalogue())
def test_float64(norm, run):
    unit = small(norm, torch.float64).finished(run, 100)
    assert unit.best_point.dtype == torch.float64
    assert all(tensor.dtype != torch.float32 for tensor in unit.tensors().values())
    single = small(norm).finished(run, 100)
    near = ((unit.distances() / single.distances()) - 1).abs().median()
    assert near < (0.2 if norm == "L0" else 0.05)


@pytest.mark.parametrize("stop", [-10, 0, 15, 40, 1010, 1005])
def test_units_refuse_other_stops(stop):
    bench = small("L2")
    unit = bench.finished("fmn", 50)
    saved = unit.tensors()
    with (
        bench.oracle,
        pytest.raises(FrontierError, match=f"from 50 to {stop} queries.*multiple of 10.*1000"),
    ):
        advance(bench.oracle, [bench.unit("ddn"), unit], [20, stop])
    assert torch.equal(unit.tensors()["best_point"], saved["best_point"])
    assert unit.queries == 50


def test_a_stop_where_the_unit_stands_spends_nothing():
    bench = small("L2")
    unit = bench.finished("fmn", 50)
    before = bench.oracle.counts.attack
    bench.go(unit, 50)
    assert bench.oracle.counts.attack == before


@EVERY_RUN
def test_stored_distances_are_those_of_the_stored_points(norm, run):
    unit = complete(norm, run)
    assert torch.equal(unit.trajectory[unit.queries // 10 - 1], unit.distances())
    kept = unit.best_distance < torch.inf
    delta = (unit.best_point.double() - unit.problem.inputs.double())[kept]
    again = torch.stack([measured(row, norm) for row in delta])
    torch.testing.assert_close(unit.distances()[kept], again, rtol=1e-14, atol=0)
    assert torch.equal(unit.distances()[kept], unit.problem.norm.size(delta))


def test_ticks_add_up_to_the_work_done():
    bench, ticks = small("Linf"), []
    units = [bench.unit("fmn"), bench.unit("square_min")]
    with bench.oracle:
        advance(bench.oracle, units, [30, 20], tick=ticks.append)
    assert sum(ticks) == 5 * (30 + 20)


def test_an_empty_shard_is_no_trouble():
    bench = small("L2")
    unit = bench.unit("fmn", torch.zeros(0, dtype=torch.long))
    bench.go([unit, bench.unit("ddn")], 20)
    assert unit.distances().shape == (0,)
