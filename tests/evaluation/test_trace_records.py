"""`trace` into a record: only what is missing is run."""

from pathlib import Path

import pytest
import torch
from support.faults import failing
from support.models import Watch, conv_problem

from advfrontier import FrontierError, allocate, trace
from advfrontier.evaluation.trace import load_traces
from advfrontier.record import Record

RUNS = ["fmn", "ddn", "fmn:restart1", "alma:target1"]


@pytest.fixture
def problem():
    return conv_problem(11, wrong=4)


def traced(place, model, images, labels, **options):
    options = {"norm": "L2", "runs": RUNS, "queries": 60, "batch_size": 4} | options
    return trace(model, images, labels, out=place, **options)


def marks(place):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in Path(place).rglob("*+*.safetensors")
    }


def test_trace_in_a_record_equals_one_without(problem, tmp_path):
    model, images, labels = problem
    record = traced(tmp_path / "a" / "L2", model, images, labels)
    memory = trace(model, images, labels, norm="L2", runs=RUNS, queries=60, batch_size=4)
    assert record.runs == memory.runs
    assert record.samples == memory.samples
    assert (record.queries == memory.queries).all()
    assert record.distances.tobytes() == memory.distances.tobytes()
    assert record.counts == memory.counts
    assert record.flags == memory.flags
    again = load_traces(str(tmp_path / "a" / "L2"), runs=RUNS)
    assert (again.distances == record.distances).all()
    assert allocate([again], budgets=(60, 120), levels=(20, 40, 60))[1].total <= 120


@pytest.mark.parametrize("queries", [20, 60])
def test_where_nothing_is_classified_correctly_all_distances_are_zero(problem, tmp_path, queries):
    model, images, _ = problem
    wrong = (model(images).argmax(1) + 1) % 10
    record = traced(tmp_path / "a" / "L2", model, images, wrong, queries=queries)
    memory = trace(model, images, wrong, norm="L2", runs=RUNS, queries=queries, batch_size=4)
    assert record.runs == memory.runs
    assert record.distances.shape == memory.distances.shape
    assert not record.distances.any()
    assert (load_traces(str(tmp_path / "a" / "L2")).distances == memory.distances).all()
    assert load_traces(tmp_path / "a", runs=RUNS[0]).runs == (RUNS[0],)


def test_model_without_gradients_is_traced_by_black_box_runs_alone(problem, tmp_path):
    model, images, _ = problem
    labels = model(images).argmax(1)

    def closed(x):
        with torch.no_grad():
            return model(x.detach())

    options = {"norm": "Linf", "runs": ["square_min"], "queries": 20}
    record = traced(tmp_path / "a" / "L2", closed, images, labels, **options)
    memory = trace(closed, images, labels, batch_size=4, **options)
    assert record.distances.tobytes() == memory.distances.tobytes()
    assert record.counts == memory.counts
    grown = traced(tmp_path / "a" / "L2", closed, images, labels, **options | {"queries": 40})
    assert (grown.distances[:, :2] == record.distances).all()
    with pytest.raises(FrontierError, match="begun for black-box runs alone"):
        traced(tmp_path / "a" / "L2", closed, images, labels, **options | {"runs": ["fmn"]})
    with pytest.raises(FrontierError, match="no gradient with respect to the images"):
        traced(
            tmp_path / "b" / "L2",
            closed,
            images,
            labels,
            **options | {"runs": ["square_min", "fmn"]},
        )


def test_runs_that_are_not_finished_are_named(problem, tmp_path):
    def wrong(_, task):
        return task.unit.name == "ddn" and task.unit.first == 8

    with pytest.raises(FrontierError, match="1 of 12 units failed"):
        traced(tmp_path / "a" / "L2", *problem, machine=failing(wrong))
    assert load_traces(str(tmp_path / "a" / "L2")).runs == ("fmn", "fmn:restart1", "alma:target1")
    with pytest.raises(FrontierError, match=r"not finished in .*a/L2: ddn \(3 runs are\)"):
        load_traces(str(tmp_path / "a" / "L2"), runs=["fmn", "ddn"])


def test_traces_keep_no_points_and_no_state(problem, tmp_path):
    traced(tmp_path / "a" / "L2", *problem)
    record = Record.find(tmp_path / "a" / "L2")
    for unit, queries in record.units().items():
        stored = record.read_unit(unit, queries)
        assert len(stored.trajectory) == 6
        assert stored.best_point is None
        assert stored.state == {}
    assert not (tmp_path / "a" / "L2" / "images").exists()


def test_another_run_adds_its_own_units_alone(problem, tmp_path):
    model, images, labels = problem
    before = traced(tmp_path / "a" / "L2", model, images, labels)
    files = marks(tmp_path / "a" / "L2")
    watch = Watch.on(model)
    after = traced(tmp_path / "a" / "L2", model, images, labels, runs=[*RUNS, "pdgd"])
    assert (
        watch.total == 11 + 10 * 60 + after.counts["verification"] - before.counts["verification"]
    )
    assert {
        path: mark for path, mark in marks(tmp_path / "a" / "L2").items() if path in files
    } == files
    assert len(marks(tmp_path / "a" / "L2")) == len(files) + 3
    assert (after.distances[:4] == before.distances).all()


def test_same_call_again_only_recognises_the_model(problem, tmp_path):
    model, images, labels = problem
    traced(tmp_path / "a" / "L2", model, images, labels)
    watch = Watch.on(model)
    traced(tmp_path / "a" / "L2", model, images, labels)
    assert watch.total == 11


def test_more_samples_add_their_own_shards(problem, tmp_path):
    model, images, labels = problem
    traced(tmp_path / "a" / "L2", model, images[:8], labels[:8])
    files = marks(tmp_path / "a" / "L2")
    at_once = traced(tmp_path / "b" / "L2", model, images, labels)
    watch = Watch.on(model)
    grown = traced(tmp_path / "a" / "L2", model, images, labels)
    assert watch.total == 8 + 3 * 60 * len(RUNS) + 2 * 3 + 3 * len(RUNS) + at_once.counts["checks"]
    assert {
        path: mark for path, mark in marks(tmp_path / "a" / "L2").items() if path in files
    } == files
    assert (grown.distances == at_once.distances).all()


def test_more_queries_replay_and_agree(problem, tmp_path):
    short = traced(tmp_path / "a" / "L2", *problem)
    long = traced(tmp_path / "a" / "L2", *problem, queries=100)
    assert (long.distances[:, :6] == short.distances).all()
    assert len(long.queries) == 10


def test_damaged_unit_is_computed_again(problem, tmp_path):
    whole = traced(tmp_path / "a" / "L2", *problem)
    victim = next((tmp_path / "a" / "L2" / "units" / "ddn").iterdir())
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(FrontierError, match="lacks ddn on samples"):
        load_traces(str(tmp_path / "a" / "L2"))
    assert (traced(tmp_path / "a" / "L2", *problem).distances == whole.distances).all()


def test_folder_without_a_trace(tmp_path):
    with pytest.raises(FrontierError, match="holds no trace"):
        load_traces(str(tmp_path))
