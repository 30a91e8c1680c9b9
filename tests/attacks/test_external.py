"""Functions of users as external runs: counted, measured and stopped from outside."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from support.models import Watch, samples, tanh_mlp
from torch.nn import functional

from advfrontier import Evaluation, allocate, evaluate, trace, verify
from advfrontier.errors import FrontierError
from advfrontier.flags import Kind
from advfrontier.pool import Ensemble

SHAPE = (3, 4, 4)
NAME = "callable:attack"


@pytest.fixture
def task():
    model = tanh_mlp(SHAPE, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.3, high=0.7)
    labels[2] = (labels[2] + 1) % 10
    return model, images, labels


def run(attack, model, images, labels, *, norm, queries=1000, name=NAME, out=None):
    """Evaluate with one function as the only run."""
    return evaluate(
        model,
        images,
        labels,
        norm=norm,
        ensemble=Ensemble.of("one", norm, {name: queries}),
        solvers={name: attack},
        out=out,
    )


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


def at_radius(model, x, y, eps):
    """One signed gradient step of length eps."""
    point = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        functional.cross_entropy(model(point), y, reduction="sum"), point
    )
    return (x + eps * slope.sign()).clamp(0, 1)


def test_model_in_double_precision_gets_points_in_double_precision(task):
    model, images, labels = task
    with torch.no_grad():  # the caller's, not the attack's
        found = run(
            gradient_steps, deepcopy(model).double(), images, labels, norm="Linf", queries=60
        )
    assert found.adversarials.dtype == torch.float64
    assert np.isfinite(found.distances).any()


def test_distances_are_those_of_the_points_that_were_evaluated(task):
    model, images, labels = task
    seen = []
    watch = Watch.on(model)
    found = run(
        lambda *given: gradient_steps(*given, seen=seen),
        model,
        images,
        labels,
        norm="Linf",
        queries=60,
    )
    assert watch.total == sum(found.counts.values())
    attacked = [0, 1, 3, 4, 5]
    expected = np.full((6, 5), np.inf)
    for step, (points, logits) in enumerate(seen):
        own = logits.gather(1, labels[attacked, None])[:, 0]
        others = logits.scatter(1, labels[attacked, None], -torch.inf).amax(1)
        wrong = others - own > 1e-5 * logits.abs().amax(1)
        d = (points.double() - images[attacked].double()).abs().flatten(1).amax(1)
        distances = torch.where(wrong, d, torch.inf).numpy()
        expected[2 * step // 10] = np.minimum(expected[2 * step // 10], distances)
    assert len(seen) == 30
    assert np.isfinite(expected.min(0)).any()
    assert np.array_equal(found.trajectory[:, attacked], np.minimum.accumulate(expected))
    assert (found.trajectory[:, 2] == 0).all()
    assert found.counts["attack"] == 5 * 60
    assert found.queries.tolist() == [60, 60, 0, 60, 60, 60]
    kept = np.isfinite(found.distances[attacked])
    with torch.no_grad():
        assert ((model(found.adversarials).argmax(1) != labels)[attacked].numpy() == kept).all()
    moved = (found.adversarials.double() - images.double()).abs().flatten(1).amax(1).numpy()
    assert np.array_equal(moved[attacked][kept], found.distances[attacked][kept])


def test_smaller_budget_is_a_prefix(task):
    for attack in (gradient_steps, at_radius):
        long = run(attack, *task, norm="Linf", queries=200).trajectory
        short = run(attack, *task, norm="Linf", queries=50).trajectory
        assert np.array_equal(long[:5], short)


def test_black_box_attack_costs_its_forward_passes_and_one_for_its_result(task):
    torch.manual_seed(5)
    found = run(noise, *task, norm="L2")
    assert found.counts["attack"] == 5 * (30 + 1)
    assert found.queries.tolist() == [31, 31, 0, 31, 31, 31]
    again = run(noise, *task, norm="L2")
    assert np.array_equal(found.distances, again.distances)
    other = run(noise, *task, norm="L2", name=f"{NAME}?restart=1")
    assert not np.array_equal(found.distances, other.distances)
    claimed = run(lambda _model, x, _y: torch.ones_like(x), *task, norm="L2")
    assert claimed.counts["attack"] == 5


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
    found = run(attack, *task, norm="L2", queries=100)
    alone = run(attack, *task, norm="L2", queries=100, name=f"{NAME}?alone=true")
    assert np.array_equal(found.distances, alone.distances)
    assert found.counts["attack"] == alone.counts["attack"]
    assert cost in {None, found.counts["attack"]}
    lost = found.counts["checks"] - alone.counts["checks"]
    assert (lost > 0) == (attack is dropping)
    assert np.isfinite(found.distances).sum() > 1


def test_traces_are_allocated_and_the_ensemble_runs_and_extends(task, tmp_path):
    given = {NAME: noise, "callable:steps": gradient_steps}
    traces = trace(*task, norm="L2", runs=["ddn", "fmn", *given], queries=200, solvers=given)
    small, large = allocate([traces], budgets=(300, 500), levels=(50, 100, 200))
    external = [step.run for step in large.steps if step.run in given]
    assert external == list(dict.fromkeys(external))
    whole = evaluate(*task, norm="L2", ensemble=large, solvers=given)
    first = evaluate(*task, norm="L2", ensemble=small, solvers=given, out=tmp_path)
    extended = first.extend(large)
    assert np.array_equal(extended.trajectory, whole.trajectory)
    assert torch.equal(extended.adversarials, whole.adversarials)


def test_strong_run_beside_others_never_raises_the_curve(task):
    steps = [{"run": "fmn", "queries": 20}]
    plain = evaluate(*task, norm="Linf", ensemble=Ensemble(name="a", norm="Linf", steps=steps))
    steps = [{"run": NAME, "queries": 300}, *steps]
    joined = Ensemble(name="b", norm="Linf", steps=steps)
    found = evaluate(*task, norm="Linf", ensemble=joined, solvers={NAME: at_radius})
    assert (found.distances <= plain.distances).all()
    assert (found.distances < plain.distances).any()
    assert NAME in found.winners


def test_functions_of_a_file_are_imported_and_recognised(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (
        "import torch\n\ndef white(model, images, labels, level=1.0):\n"
        "    return torch.full_like(images, level)\n"
    )
    (tmp_path / "mine.py").write_text(source)
    found = evaluate(*task, norm="L2", ensemble="mine.py:white?level=0.9,fmn@200", out="runs")
    assert found.counts["attack"] == 5 * (100 + 1)
    assert found.solver_parameters["mine.py:white?level=0.9"]["level"] == "0.9"
    model, images, labels = task
    loaded = Evaluation.load("runs")
    with pytest.raises(FrontierError, match=r"--attack 'mine.py:white\?level=0.9'"):
        loaded.extend(300, model=model)
    with pytest.raises(FrontierError, match=r"the record names the attack mine\.py:white"):
        verify("runs", model, images, labels, rerun=1)
    (tmp_path / "mine.py").write_text(source.replace("level)", "level / 2)"))
    with pytest.raises(FrontierError, match=r"mine\.py:white"):
        evaluate(*task, norm="L2", ensemble="mine.py:white?level=0.9,fmn@200", out="runs")


def test_evaluation_with_a_function_is_verified(task, tmp_path):
    model, images, labels = task
    run(noise, *task, norm="L2", queries=100, out=tmp_path)
    result = verify(tmp_path, model, images, labels, rerun=1, solvers={NAME: noise})
    assert result.holds
    assert result.same == 1
    with pytest.raises(FrontierError, match="no function was given for it"):
        verify(tmp_path, model, images, labels, rerun=1)
    assert verify(tmp_path, model, images, labels, rerun=0).holds


def test_external_step_is_never_cut(task):
    ensemble = Ensemble.of("one", "L2", {NAME: 200, "fmn": 200})
    assert [ensemble.at(budget).total for budget in (100, 200, 290)] == [0, 200, 290]
    with pytest.raises(FrontierError, match="100 queries would cut callable:attack"):
        ensemble.with_total(100)
    with pytest.raises(
        FrontierError, match="is done in one piece, and is raised to 100 and to 200"
    ):
        Ensemble.from_toml(
            'name = "x"\nnorm = "L2"\nsteps = [{ run = "callable:attack", queries = 100 }, '
            '{ run = "callable:attack", queries = 200 }]'
        )
    with pytest.raises(FrontierError, match="a refinement by callable:attack"):
        Ensemble.from_toml(
            'name = "x"\nnorm = "L2"\nsteps = [{ run = "fmn", queries = 100 }, '
            '{ run = "callable:attack", queries = 200, start = "best" }]'
        ).check()
    with pytest.raises(FrontierError, match="cannot run with --eot"):
        evaluate(*task, norm="L2", ensemble=ensemble, solvers={NAME: noise}, eot=2)


def test_wrong_names_and_results_are_refused(task):
    with pytest.raises(FrontierError, match="does not name a run"):
        trace(*task, norm="L2", runs=["My Attack"])
    with pytest.raises(FrontierError, match="no function was given for it"):
        trace(*task, norm="L2", runs=[NAME])
    with pytest.raises(FrontierError, match="has no parameter speed: expected one of x, y"):
        trace(*task, norm="L2", runs=[f"{NAME}?speed=2"], solvers={f"{NAME}?speed=2": noise})
    with pytest.raises(FrontierError, match="the attack returned dict"):
        run(lambda *_: {}, *task, norm="L2")
    with pytest.raises(FrontierError, match=r"callable:attack failed \(ZeroDivisionError"):
        run(lambda *_: 1 / 0, *task, norm="L2")
    with pytest.raises(FrontierError, match=r"no file nothing\.py"):
        trace(*task, norm="L2", runs=["nothing.py:attack"])
    with pytest.raises(FrontierError, match="is no attack for callable:attack"):
        trace(*task, norm="L2", runs=[NAME], solvers={NAME: 3})


class Ramp(torch.nn.Module):
    """Class 0 below a mean of one half, class 1 above it; beyond, the margin stays at `floor`."""

    def __init__(self, floor):
        super().__init__()
        self.floor = floor
        self.eval()

    def forward(self, images):
        gap = (10 * (0.5 - images.flatten(1).mean(1))).clamp(min=-self.floor)
        return torch.stack((4 + gap / 2, 4 - gap / 2, torch.full_like(gap, -4)), 1)


def to_the_boundary(extra):
    """Return points a little beyond the boundary, by this much of the margin."""
    return lambda _model, x, _y: x + (0.5 - x.flatten(1).mean(1) + extra / 10)[:, None, None, None]


DARK = 0.1 + 0.3 * torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("floor", "queries"), [(2e-5, 1000), (1.0, 10)])
def test_points_that_cannot_be_moved_to_count_are_flagged(floor, queries):
    """Either the margin never falls further, or there are no queries left."""

    def spending(model, x, y):
        point = to_the_boundary(2e-5)(model, x, y)
        for _ in range(9):
            model(point)
        return point

    zeros = torch.zeros(5, dtype=torch.long)
    found = run(spending, Ramp(floor), DARK, zeros, norm="L2", queries=queries)
    assert np.isinf(found.distances).all()
    (flag,) = [flag for flag in found.flags if flag.kind is Kind.REJECTED]
    assert flag.text.startswith("callable:attack: 5 samples have misclassified points")


def test_model_that_is_always_wrong_is_not_attacked(task):
    model, images, labels = task
    labels = (model(images).argmax(1) + 1) % 10
    found = run(gradient_steps, model, images, labels, norm="L2", queries=20)
    assert (found.distances == 0).all()
    assert found.counts["attack"] == 0
