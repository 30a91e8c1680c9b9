"""`run_callable`: attacks of others are counted, measured and stopped from outside."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from support.models import Watch, samples, tanh_mlp
from torch.nn import functional

from advfrontier import allocate, run_callable, trace
from advfrontier.errors import FrontierError

SHAPE = (3, 4, 4)


@pytest.fixture
def task():
    model = tanh_mlp(SHAPE, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.3, high=0.7)
    labels[2] = (labels[2] + 1) % 10
    return model, images, labels


def gradient_steps(model, x, y, *, seen=None):
    """Ascend without end; 2 queries per step."""
    point = x.clone()
    while True:
        point.requires_grad_()
        logits = model(point)
        if seen is not None:
            seen.append((point.detach().clone(), logits.detach().clone()))
        (slope,) = torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), point)
        point = (point.detach() + 0.003 * slope.sign()).clamp(0, 1)


def noise(model, x, y):
    """Black-box: never asks for a gradient, and stops by itself."""
    best = x.clone()
    for k in range(30):
        point = (x + 0.05 * (k + 1) * torch.randn_like(x)).clamp(0, 1)
        wrong = model(point).argmax(1) != y
        best[wrong] = point[wrong]
    return best


def test_model_in_double_precision_gets_points_in_double_precision(task):
    model, images, labels = task
    with torch.no_grad():  # the caller's, not the attack's
        found = run_callable(
            gradient_steps,
            deepcopy(model).double(),
            images,
            labels,
            name="a",
            norm="Linf",
            queries=60,
        )
    assert found.points.dtype == torch.float64
    assert np.isfinite(found.traces.frontier()).any()


def test_distances_are_those_of_the_points_that_were_evaluated(task):
    model, images, labels = task
    seen = []
    watch = Watch.on(model)
    found = run_callable(
        lambda *given: gradient_steps(*given, seen=seen),
        model,
        images,
        labels,
        name="ascent",
        norm="Linf",
        queries=60,
    )
    attacked = [0, 1, 3, 4, 5]
    expected = np.full((6, 5), np.inf)
    for step, (points, logits) in enumerate(seen):
        own = logits.gather(1, labels[attacked, None])[:, 0]
        wrong = logits.scatter(1, labels[attacked, None], -torch.inf).amax(
            1
        ) - own > 1e-5 * logits.abs().amax(1)
        d = (points.double() - images[attacked].double()).abs().flatten(1).amax(1)
        expected[2 * step // 10] = np.minimum(
            expected[2 * step // 10], torch.where(wrong, d, torch.inf).numpy()
        )
    assert len(seen) == 30
    assert np.isfinite(expected.min(0)).any()
    assert np.array_equal(found.traces.distances[0][:, attacked], np.minimum.accumulate(expected))
    assert (found.traces.distances[0][:, 2] == 0).all()
    assert found.traces.counts == {
        "checks": 0,
        "setup": 6,
        "attack": 5 * 60,
        "verification": np.isfinite(expected.min(0)).sum(),
    }
    assert watch.total == sum(found.traces.counts.values())
    kept = np.isfinite(found.traces.frontier()[attacked])
    with torch.no_grad():
        assert ((model(found.points).argmax(1) != labels)[attacked].numpy() == kept).all()
    moved = (found.points.double() - images.double()).abs().flatten(1).amax(1).numpy()
    assert np.array_equal(moved[attacked][kept], found.traces.frontier()[attacked][kept])


def test_smaller_budget_is_a_prefix(task):
    long = run_callable(gradient_steps, *task, name="ascent", norm="L2", queries=200).traces
    short = run_callable(gradient_steps, *task, name="ascent", norm="L2", queries=50).traces
    assert np.array_equal(long.distances[:, :5], short.distances)


def test_black_box_attack_costs_its_forward_passes_and_one_for_its_result(task):
    found = run_callable(noise, *task, name="noise", norm="L2")
    assert found.traces.counts["attack"] == 5 * (30 + 1)
    again = run_callable(noise, *task, name="noise", norm="L2")
    assert np.array_equal(found.traces.distances, again.traces.distances)
    claimed = run_callable(lambda _model, x, _y: torch.ones_like(x), *task, name="white", norm="L2")
    assert claimed.traces.counts["attack"] == 5


def dropping(model, x, y):
    """Continue with the samples that are not broken yet."""
    left = torch.arange(len(x))
    for k in range(20):
        left = left[model((x[left] * (1 - 0.05 * k)).clamp(0, 1)).argmax(1) == y[left]]
        if not len(left):
            break
    return x


def several(model, x, y):
    """Evaluate seven points of every sample at once."""
    while True:
        model(torch.cat([(x + 0.2 * torch.randn_like(x)).clamp(0, 1) for _ in range(7)]))


@pytest.mark.parametrize(("attack", "cost"), [(dropping, None), (several, 5 * 100)])
def test_batches_of_another_size_are_run_one_sample_at_a_time(task, attack, cost):
    found = run_callable(attack, *task, name="other", norm="L2", queries=100)
    alone = run_callable(attack, *task, name="other", norm="L2", queries=100, alone=True)
    assert np.array_equal(found.traces.distances, alone.traces.distances)
    assert (
        found.traces.counts["attack"]
        == alone.traces.counts["attack"]
        == (cost or found.traces.counts["attack"])
    )
    assert alone.traces.counts["checks"] == 0
    assert np.isfinite(found.traces.frontier()).sum() > 1


def test_point_outside_the_box_does_not_count(task):
    found = run_callable(
        lambda _model, x, _y: x + 40 * torch.sign(x - 0.5), *task, name="far", norm="L2"
    )
    assert np.isinf(found.traces.frontier()[[0, 1, 3, 4, 5]]).all()
    assert "outside [0, 1]" in found.traces.flags[0].text


def test_traces_join_those_of_the_pool(task):
    traces = trace(*task, norm="L2", runs=["ddn", "fmn"], queries=200)
    joined = traces.join(
        run_callable(gradient_steps, *task, name="ascent", norm="L2", queries=200).traces
    )
    assert joined.runs == ("ddn", "fmn", "ascent")
    (ensemble,) = allocate([joined], budgets=(500,), levels=(100, 200))
    assert ensemble.aoi > 0


def test_wrong_names_queries_and_results_are_refused(task):
    with pytest.raises(FrontierError, match="does not name a run"):
        run_callable(noise, *task, name="My Attack", norm="L2")
    with pytest.raises(FrontierError, match="multiple of 10"):
        run_callable(noise, *task, name="noise", norm="L2", queries=15)
    for size, expected in {0: "1 or more", 2.5: "a whole number"}.items():
        with pytest.raises(FrontierError, match=f"batch_size is {size}: expected {expected}"):
            run_callable(noise, *task, name="noise", norm="L2", batch_size=size)
    with pytest.raises(FrontierError, match="the attack returned NoneType"):
        run_callable(lambda *_: None, *task, name="noise", norm="L2")


class Ramp(torch.nn.Module):
    """Class 0 below a mean of one half, class 1 above it; beyond the boundary the margin stays at
    `floor`.
    """

    def __init__(self, floor):
        super().__init__()
        self.floor = floor
        self.eval()

    def forward(self, images):
        gap = (10 * (0.5 - images.flatten(1).mean(1))).clamp(min=-self.floor)
        return torch.stack((4 + gap / 2, 4 - gap / 2, torch.full_like(gap, -4)), 1)


def to_the_boundary(extra):
    """An attack that returns points a little beyond the boundary, by this much of the margin."""
    return lambda _model, x, _y: x + (0.5 - x.flatten(1).mean(1) + extra / 10)[:, None, None, None]


DARK = 0.1 + 0.3 * torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))


def test_points_on_the_boundary_are_moved_outward_once():
    """2e-5 is within the rounding of logits of size 4: it does not count, but a thousandth farther
    it does.
    """
    zeros = torch.zeros(5, dtype=torch.long)
    model = Ramp(floor=1.0)
    with torch.no_grad():
        assert (model(to_the_boundary(2e-5)(model, DARK, zeros)).argmax(1) == 1).all()
    found = run_callable(to_the_boundary(2e-5), model, DARK, zeros, name="edge", norm="L2")
    exact = (0.5 - DARK.flatten(1).mean(1)).numpy() * np.sqrt(DARK[0].numel())
    assert found.traces.frontier() == pytest.approx(1.001 * exact, rel=1e-4)
    assert found.traces.flags == ()
    assert found.traces.counts["attack"] == 5 * 2
    farther = run_callable(to_the_boundary(1e-2), model, DARK, zeros, name="edge", norm="L2")
    assert farther.traces.counts["attack"] == 5


@pytest.mark.parametrize(("floor", "queries"), [(2e-5, 1000), (1.0, 10)])
def test_points_that_cannot_be_moved_to_count_are_flagged(floor, queries):
    """Either the margin never falls further, or there are no queries left."""

    def spending(model, x, y):
        point = to_the_boundary(2e-5)(model, x, y)
        for _ in range(9):
            model(point)
        return point

    zeros = torch.zeros(5, dtype=torch.long)
    found = run_callable(
        spending, Ramp(floor), DARK, zeros, name="edge", norm="L2", queries=queries
    )
    assert np.isinf(found.traces.frontier()).all()
    (flag,) = found.traces.flags
    assert (
        flag.text
        == "edge: 5 samples have a point, nearer than any that counts, misclassified by rounding "
        "only"
    )


def test_model_that_writes_to_its_input_moves_no_point(task):
    net, images, labels = task

    def writing(x):
        z = net(x)
        x.data.fill_(0.5)
        return z

    found = run_callable(
        gradient_steps, writing, images, labels, name="ascent", norm="Linf", queries=60
    )
    expected = run_callable(
        gradient_steps, net, images, labels, name="ascent", norm="Linf", queries=60
    )
    assert np.array_equal(found.traces.distances, expected.traces.distances)
    assert torch.equal(found.points, expected.points)


def test_model_that_is_always_wrong_is_not_attacked(task):
    model, images, labels = task
    labels = (model(images).argmax(1) + 1) % 10
    found = run_callable(
        gradient_steps, model, images, labels, name="ascent", norm="L2", queries=20
    )
    assert (found.traces.distances == 0).all()
    assert found.traces.counts == {"checks": 0, "setup": 6, "attack": 0, "verification": 0}
