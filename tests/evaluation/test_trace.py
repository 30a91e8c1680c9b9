"""The public function: what comes back, and in which shape."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from support.models import Watch, conv_net, samples, tanh_mlp
from torch import nn

import advfrontier
from advfrontier import FrontierError, Machine, Traces, trace
from advfrontier.engine import Oracle, Shard, Unit, advance, clean_pass
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import Ensemble, pool
from advfrontier.solvers import FMN, PDPGD
from advfrontier.threat.norms import make_norm
from advfrontier.threat.random import sample_ids


@pytest.fixture
def problem():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 7, seed=3)
    labels[4] = (labels[4] + 1) % 10
    return model, images, labels


def test_trace_returns_distances_samples_and_counts(problem):
    model, images, labels = problem
    traces = trace(
        model, images, labels, norm="l2", runs=["fmn", "alma:target1", "fmn:restart5"], queries=70
    )
    assert isinstance(traces, Traces)
    assert isinstance(traces, Trajectories)
    assert traces.runs == ("fmn", "alma:target1", "fmn:restart5")
    assert traces.queries.tolist() == [10, 20, 30, 40, 50, 60, 70]
    assert traces.distances.shape == (3, 7, 7)
    assert traces.distances.dtype == np.float64
    assert traces.samples == tuple(f"{key:016x}" for key in sample_ids(images.numpy()).tolist())
    assert traces.flags == ()
    assert set(traces.counts) == {"checks", "setup", "attack", "verification"}
    assert (np.diff(traces.distances, axis=1) <= 0).all()
    assert (traces.distances[:, :, 4] == 0).all()


def test_trace_equals_single_units(problem):
    model, images, labels = problem
    runs = ["apgd_min-dlr", "fmn:restart2", "pdpgd:target2"]
    traces = trace(model, images, labels, norm="L1", runs=runs, queries=120, batch_size=4)
    norm = make_norm("L1", tuple(images.shape[1:]))
    with Oracle(model) as oracle:
        clean = clean_pass(oracle, images, labels, norm, batch_size=4)
        for first in (0, 4):
            rows = torch.arange(first, min(first + 4, 7))
            rows = rows[clean.correct[rows]]
            shard = Shard.of(oracle, images[rows], clean.rows(rows), norm=norm, seed=42)
            for run, distances in zip(runs, traces.distances, strict=True):
                unit = Unit.start(Ensemble.of(run, "L1", {run: 120}), shard)
                advance(oracle, unit, 120)
                assert np.array_equal(distances[:, rows.numpy()], unit.trajectory.numpy())


@pytest.mark.parametrize(("norm", "name"), [("L0", "paper"), ("Linf", "extended")])
def test_pool_is_traced_as_a_whole(norm, name):
    model = tanh_mlp(hidden=8, classes=3)
    images, labels = samples(model, 3)
    traces = trace(model, images, labels, norm=norm, runs=name, queries=10)
    assert traces.runs == tuple(str(run) for run in pool(norm, classes=3, name=name))


def test_same_call_gives_the_same_bits(problem):
    one, two = (
        trace(*problem, norm="L1", queries=30, runs=["fmn:restart1", "alma", "apgd_min-ce"])
        for _ in range(2)
    )
    assert (one.distances == two.distances).all()


def test_seed_changes_restarts_alone(problem):
    runs = ["fmn", "ddn:target1", "fmn:restart1"]
    one, two, shifted = (
        trace(*problem, norm="L2", queries=40, runs=runs, seed=seed) for seed in (42, 7, 41)
    )
    assert (one.distances[:2] == two.distances[:2]).all()
    assert (one.distances[2] != two.distances[2]).any()
    second = trace(*problem, norm="L2", queries=40, runs=["fmn:restart2"], seed=41)
    assert (second.distances[0] == one.distances[2]).all()  # seed 43 either way
    assert (shifted.distances[2] != one.distances[2]).any()


def test_copies_of_an_image_have_names_of_their_own_and_equal_distances(problem):
    model, images, labels = problem
    rows = [0, 1, 0, 2, 0, 1]
    traces = trace(
        model.double(),
        images[rows],
        labels[rows],
        norm="L2",
        runs=["fmn:restart1"],
        queries=100,
        machine=Machine(dtype=torch.float64),
    )
    first = traces.samples[0]
    assert traces.samples[2] == f"{first}-2"
    assert traces.samples[4] == f"{first}-3"
    assert traces.samples[5] == f"{traces.samples[1]}-2"
    assert len(set(traces.samples)) == 6
    np.testing.assert_allclose(
        traces.distances[0, :, [2, 4]], traces.distances[0, :, [0, 0]], rtol=1e-6
    )


@pytest.mark.parametrize("queries", [0, -10, 5, 15, 1010])
def test_queries_that_are_refused_before_any_is_spent(problem, queries):
    watch = Watch.on(problem[0])
    with pytest.raises(
        FrontierError,
        match=f"cannot stop after {queries} queries: expected a multiple of 10 up to 1000",
    ):
        trace(*problem, norm="L2", queries=queries)
    assert watch.total == 0


def test_queries_of_another_type_do_not_damage_a_record(problem, tmp_path):
    options = {"norm": "L2", "runs": ["fmn"], "out": tmp_path / "r"}
    trace(*problem, queries=np.int64(100), **options)
    with pytest.raises(FrontierError, match=r"queries is 200\.0: expected a whole number"):
        trace(*problem, queries=2e2, **options)
    assert trace(*problem, queries=100, **options).queries[-1] == 100


def test_sizes_that_are_refused(problem):
    with pytest.raises(
        FrontierError, match=r"batch_size=\) is 0: expected greater than or equal to 1"
    ):
        trace(*problem, norm="L2", runs=["fmn"], batch_size=0)
    with pytest.raises(FrontierError, match="no runs were named: expected some, or a pool"):
        trace(*problem, norm="L2", runs=[])
    with pytest.raises(FrontierError, match="threads is 0: expected at least 1"):
        Machine(threads=0)


def test_run_that_is_named_twice_is_done_once(problem):
    assert trace(*problem, norm="L2", runs=["fmn", "fmn"], queries=10).runs == ("fmn",)


def test_trace_returns_as_many_queries_as_asked_for(problem, tmp_path):
    long = trace(*problem, norm="L2", runs=["fmn"], queries=60, out=tmp_path)
    short = trace(*problem, norm="L2", runs=["fmn"], queries=20, out=tmp_path)
    assert short.queries.tolist() == [10, 20]
    assert np.array_equal(short.distances, long.distances[:, :2])


@dataclass(frozen=True)
class Recording(FMN):
    """An FMN that tells how often it was asked."""

    steps: ClassVar[list[int]] = []

    def step(self, problem, state, i, answer):
        self.steps.append(i)
        super().step(problem, state, i, answer)


def test_solvers_can_be_replaced(problem):
    runs = ["fmn", "fmn:target1", "ddn"]
    usual = trace(*problem, norm="L2", runs=runs, queries=40)
    same = trace(*problem, norm="L2", runs=runs, queries=40, solvers={"fmn": Recording()})
    assert Recording.steps == 2 * list(range(20))
    assert (same.distances == usual.distances).all()
    other = trace(
        *problem,
        norm="L2",
        runs=runs,
        queries=40,
        solvers={"fmn": FMN(alpha=0.05), "pdpgd": PDPGD()},
    )
    assert (other.distances[0] != usual.distances[0]).any()
    assert (other.distances[2] == usual.distances[2]).all()


SHAPES = [(48,), (5, 7), (1, 5, 9), (3, 4, 6), (3, 1, 9), (2, 2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_square_search_on_any_shape(shape):
    model = tanh_mlp(shape, hidden=16, classes=4)
    images, labels = samples(model, 5, shape)
    watch = Watch.on(model)
    traces = trace(
        model, images, labels, norm="Linf", runs=["square_min", "square_min:restart1"], queries=150
    )
    assert np.isfinite(traces.distances[:, -1]).all()
    assert (traces.distances[:, -1] < traces.distances[:, 5]).any()
    assert traces.counts["attack"] == 2 * 150 * 5  # one query a step
    assert watch.backward == 0
    assert (traces.distances[0, -1] != traces.distances[1, -1]).any()


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
@pytest.mark.parametrize("shape", [(20,), (4, 5), (2, 2, 3, 4)], ids=str)
def test_gradient_runs_on_any_shape(norm, shape):
    model = tanh_mlp(shape, hidden=16, classes=2)
    images, labels = samples(model, 4, shape)
    runs = [str(run) for run in pool(norm, classes=2, name="extended") if run.variant == "base"]
    traces = trace(model, images, labels, norm=norm, runs=runs, queries=20)
    assert traces.distances.shape[2] == 4
    assert np.isfinite(traces.distances).any()


def test_points_that_flip_back_are_flagged(monkeypatch):
    """A model whose answer depends on the company a point is in: nothing it says of kept points can
    be relied upon.
    """
    net = conv_net((1, 6, 6), classes=3)

    class Company(nn.Module):
        def forward(self, images):
            return (
                net(images)
                if len(images) in (6, 3)
                else torch.eye(3)[labels[: len(images)]] + 0 * net(images)
            )

    images, labels = samples(net, 6, (1, 6, 6))
    labels[:] = labels[0]
    images = images[:1].repeat(6, 1, 1, 1) + torch.linspace(0, 0.001, 6)[:, None, None, None]
    images = images.clamp(0, 1)
    labels = net(images).argmax(1)
    assert len(set(labels.tolist())) == 1
    traces = trace(Company(), images, labels, norm="L2", runs=["fmn"], queries=100, batch_size=6)
    assert "fmn: 6 kept points were classified correctly in another batch" in [
        flag.text for flag in traces.flags
    ]


def test_public_names_are_importable():
    assert set(advfrontier.__all__) >= {"attack", "trace", "Traces", "Ensemble", "FrontierError"}
    for name in advfrontier.__all__:
        assert getattr(advfrontier, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'race'"):
        advfrontier.race  # noqa: B018


def test_torch_is_imported_on_first_use():
    code = (
        "import sys, advfrontier, advfrontier.pool, advfrontier.frontier, "
        "advfrontier.threat.names\n"
        "advfrontier.Ensemble, advfrontier.FrontierError, advfrontier.__version__\n"
        "assert 'torch' not in sys.modules\n"
        "advfrontier.trace\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


def test_black_box_pool_needs_no_gradient():
    model = conv_net((1, 4, 4), classes=3, seed=2)
    images, labels = samples(model, 2, (1, 4, 4), seed=2)
    found = trace(
        lambda x: model(x).detach(), images, labels, norm="L2", runs="black-box", queries=10
    )
    assert set(found.runs) == {"square_min", *(f"square_min:restart{k}" for k in range(1, 6))}


def test_sample_that_fails_is_named_by_its_index():
    model = conv_net((1, 4, 4), classes=3, seed=2)
    images, labels = samples(model, 40, (1, 4, 4), seed=2)

    def failing(x):
        logits = model(x)
        return torch.where((x == images[34]).flatten(1).all(1)[:, None], torch.nan, logits)

    with pytest.raises(FrontierError, match="sample 34 is the first"):
        trace(failing, images, labels, norm="L2", runs=["fmn"], queries=10, batch_size=10)
