"""Attacks of four other libraries as runs: counted, traced, allocated, evaluated, verified.

The libraries are installed by `make peers`; without one its tests are skipped.
"""

import numpy as np
import pytest
import torch
from support.models import Watch, samples, tanh_mlp
from support.peers import need_library

from advfrontier import Evaluation, allocate, evaluate, trace, verify
from advfrontier.errors import FrontierError
from advfrontier.pool import Ensemble

SHAPE = (3, 4, 4)
ATTACKS = {
    "foolbox": ("foolbox:DDNAttack?steps=60", "foolbox:L2PGD?rel_stepsize=0.1&steps=20"),
    "advlib": ("advlib:alma?num_steps=60", "advlib:apgd?n_iter=10"),
    "torchattacks": ("torchattacks:DeepFool?steps=10", "torchattacks:PGDL2?steps=5"),
    "art": ("art:DeepFool?max_iter=20", "art:ProjectedGradientDescent?max_iter=5"),
}
RUNS = [name for names in ATTACKS.values() for name in names]

pytestmark = pytest.mark.filterwarnings("ignore")  # other libraries warn as they are imported


@pytest.fixture
def task():
    model = tanh_mlp(SHAPE, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.3, high=0.7)
    labels[2] = (labels[2] + 1) % 10
    return model, images, labels


@pytest.mark.parametrize("library", ATTACKS)
def test_queries_are_those_that_a_hook_counts(task, library, monkeypatch):
    need_library(library, monkeypatch)
    for name in ATTACKS[library]:
        watch = Watch.on(task[0])
        found = trace(*task, norm="L2", runs=[name], queries=400)
        assert watch.total == sum(found.counts.values())
        assert 0 < found.counts["attack"] <= 5 * 400
        assert np.isfinite(found.frontier()).all()


def test_eight_attacks_are_traced_allocated_evaluated_extended_and_verified(
    task, tmp_path, monkeypatch
):
    for library in ATTACKS:
        need_library(library, monkeypatch)
    model, images, labels = task
    traces = trace(*task, norm="L2", runs=["fmn", *RUNS], queries=300)
    assert set(RUNS) < set(traces.runs)
    ensembles = allocate([traces], budgets=(100, 400), levels=(50, 100, 300))
    allocated = evaluate(*task, norm="L2", ensemble=ensembles[-1])
    assert allocated.ensemble.queries == ensembles[-1].queries
    limit = {step.run: step.queries for step in ensembles[-1].steps}
    for run, queries in limit.items():  # a step finds what the trace found at its queries
        index = traces.runs.index(run)
        known = traces.distances[index][queries // 10 - 1]
        assert np.array_equal(allocated.found_by_run[run], known), run

    written = tmp_path / "all.toml"
    steps = [{"run": name, "queries": 100} for name in RUNS]
    ensemble = Ensemble(name="all", norm="L2", steps=[*steps, {"run": "fmn", "queries": 200}])
    ensemble.save(written)
    watch = Watch.on(model)
    small = evaluate(
        *task, norm="L2", ensemble=Ensemble.load(written).at(400), out=tmp_path / "runs"
    )
    extended = Evaluation.load(tmp_path / "runs").extend(str(written), model=model)
    assert watch.total >= extended.counts["attack"]
    whole = evaluate(*task, norm="L2", ensemble=str(written))
    assert small.ensemble.total == 400
    assert extended.ensemble.total == whole.ensemble.total == 1000
    assert np.array_equal(extended.trajectory, whole.trajectory)
    assert torch.equal(extended.adversarials, whole.adversarials)
    assert (extended.queries == whole.queries).all()
    result = verify(tmp_path / "runs", model, images, labels, rerun=1)
    assert result.holds
    assert result.same == 1

    plain = evaluate(*task, norm="L2", ensemble=Ensemble.of("fmn", "L2", {"fmn": 200}))
    assert (whole.distances <= plain.distances).all()


@pytest.mark.parametrize(
    ("name", "norm", "message"),
    [
        (
            "foolbox:DDNAttac",
            "L2",
            "foolbox has no attack DDNAttac: expected one such as DDNAttack",
        ),
        ("foolbox:DDNAttack?speed=3", "L2", "raised TypeError"),
        ("foolbox:DDNAttack", "Linf", "attacks in L2, and the norm asked for is Linf"),
        ("foolbox:DDNAttack?steps", "L2", "cannot read the parameter 'steps'"),
        ("torchattacks:PGD?speed=3", "Linf", "has no parameter speed: expected one of eps"),
        ("torchattacks:PGD", "L2", "attacks in Linf, and the norm asked for is L2"),
    ],
)
def test_wrong_names_of_attacks_are_refused(task, name, norm, message, monkeypatch):
    need_library(name.partition(":")[0], monkeypatch)
    with pytest.raises(FrontierError, match=message):
        trace(*task, norm=norm, runs=[name], queries=100)


def test_missing_library_is_named_with_the_line_that_installs_it(task, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "secmlt", None)
    with pytest.raises(FrontierError, match=r"type pip install 'advfrontier\[secmlt\]'"):
        trace(*task, norm="L2", runs=["secmlt:PGD"])


def test_secml_torch_attacks_run(task, monkeypatch):
    need_library("secmlt", monkeypatch)
    watch = Watch.on(task[0])
    for name in (
        "secmlt:PGD?num_steps=10&backend=native",
        "secmlt:FMN?num_steps=50&step_size=1.0&backend=native",
    ):
        before = watch.total
        found = trace(*task, norm="L2", runs=[name], queries=400)
        assert watch.total - before == sum(found.counts.values())
        assert np.isfinite(found.frontier()).all()
