"""Benchmarks end to end on tiny nets: from nothing to records, again without work, and failures."""

import shutil
import time
from pathlib import Path

import pytest
from bench_nets import FILE
from bench_tiny import NORMS, write_tiny
from support.faults import noting

from advfrontier.bench.folder import (
    BASELINE,
    EVALUATE,
    TRACE,
    Bench,
    finished_baseline,
    finished_evaluation,
    finished_trace,
    read_trace,
)
from advfrontier.bench.run import run_benchmark
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.execution import Machine
from advfrontier.pool import Ensemble
from advfrontier.record import Record
from advfrontier.solvers import PUBLISHED


def contents(folder):
    found = {}
    for path in Path(folder).rglob("*"):
        if path.is_file() and path.name != "record.json":  # which notes what was typed
            found[path.relative_to(folder)] = path.read_bytes()
    return found


@pytest.fixture
def copied(finished, tmp_path):
    """Return a copy of the finished benchmark."""
    bench, _ = finished
    shutil.copytree(bench.out, tmp_path / "out")
    write_tiny(tmp_path)
    return Bench.open(tmp_path / "tiny.toml", tmp_path / "out")


def test_every_model_is_traced_and_evaluated_and_held_out_ones_meet_autoattack(finished):
    bench, said = finished
    for model in bench.models:
        for norm in NORMS:
            trace = read_trace(bench, finished_trace(bench, model, norm))
            assert trace.runs == tuple(bench.runs(norm, 10))
            assert int(trace.queries[-1]) == 80
            evaluation = finished_evaluation(bench, model, norm)
            assert evaluation.ensemble.total == 80
            assert evaluation.samples == trace.samples
    noisy, plain = bench.benchmark["noisy"], bench.benchmark["plain"]
    assert 1.1 in finished_baseline(bench, noisy, "L2").radii
    assert finished_baseline(bench, plain, "L2") is None
    assert finished_baseline(bench, noisy, "L0") is None
    assert said[:3] == ["trace plain in L0", "evaluate plain in L0", "trace plain in L2"]
    assert "baseline noisy in L2" in said
    assert said[-2:] == ["allocate in L0", "allocate in L2"]


def test_greedy_ensembles_are_nested_and_use_runs_of_their_norm(finished):
    bench, _ = finished
    for norm in NORMS:
        small, large = (Ensemble.load(f"{bench.out}/ensembles/{norm}-{b}.toml") for b in (40, 80))
        assert large.holds(small)
        assert (small.total, large.total) <= (40, 80)
        assert set(large.runs) <= set(bench.runs(norm, 10))
        assert small.aoi <= large.aoi <= large.bound


def test_a_second_run_does_no_work_and_changes_no_file(copied):
    before = contents(copied.out)
    machine = noting(tasks := [], threads=1)
    assert run_benchmark(copied, norms=NORMS, machine=machine) == []
    assert tasks == []
    assert contents(copied.out) == before


def test_a_model_or_a_run_that_is_added_is_the_only_work(copied, tmp_path):
    before = set(contents(copied.out))
    write_tiny(
        tmp_path, models=("plain", "noisy", "wide"), pool=("fmn", "sigma_zero", "ddn", "pdgd")
    )
    larger = Bench.open(tmp_path / "tiny.toml", copied.out)
    assert run_benchmark(larger, norms=("L2",), stages=[TRACE]) == []
    added = {path.parts[:3] for path in set(contents(copied.out)) - before}
    assert {place[1] for place in added if place[0] == "traces"} == {"plain", "noisy", "wide"}
    for model in ("plain", "noisy"):
        files = Path(copied.out, "traces", model, "L2").rglob("*pdgd*")
        assert list(files)
    assert not Path(copied.out, "evaluations", "wide").exists()


def test_a_model_that_fails_is_named_and_the_others_are_done(tiny):
    bench = tiny(models=("lost", "plain"))
    said = []
    failures = run_benchmark(bench, norms=["L2"], stages=[TRACE], say=said.append)
    assert len(failures) == 2
    assert failures[0].startswith("model lost: ")
    assert "these weights were lost" in failures[0]
    assert failures[1].startswith("allocate in L2: no training model is traced")
    assert f"failed: {failures[0]}" in said
    assert finished_trace(bench, bench.benchmark["plain"], "L2") is not None


def test_a_model_without_a_source_is_left_out(tiny, tmp_path):
    path = write_tiny(tmp_path)
    path.write_text(path.read_text().replace(f'source = "{FILE}:noisy"\n', ""))
    bench = Bench.open(path, tmp_path / "out")
    assert [model.id for model in bench.models] == ["plain"]
    assert run_benchmark(bench, norms=["L2"], stages=[TRACE]) == []


def test_time_that_is_up_stops_the_benchmark(tiny):
    machine = Machine(threads=1, progress=False, until=time.time() - 1)
    with pytest.raises(Unfinished, match="time is up"):
        run_benchmark(tiny(), norms=["L2"], machine=machine)


def test_a_pool_without_a_run_in_a_norm_fails_there_alone(tiny):
    bench = tiny(pool=("ddn",))
    failures = run_benchmark(bench, norms=["L0", "L2"], stages=[TRACE])
    assert any("the pool of tiny has no run in L0: found ddn" in line for line in failures)
    assert all("L2" not in line.partition(":")[0] for line in failures)


def test_published_solvers_are_traced_and_the_default_ensemble_is_left_out(tiny):
    bench = tiny(pool=("fmn", "ddn"), more="published = true\n")
    assert bench.stages == (TRACE, BASELINE)
    assert EVALUATE not in bench.stages
    assert run_benchmark(bench, norms=["L2"], stages=[TRACE]) == []
    held = Record.open(bench.folder("traces", "plain", "L2"), "trace").header.solvers
    assert set(held) == {"fmn", "ddn"}
    assert type(PUBLISHED["fmn"]).__name__ in str(held["fmn"])
    ensemble = Ensemble.load(f"{bench.out}/ensembles/L2-80.toml")
    assert set(ensemble.solvers) == {"fmn", "ddn"}
    beyond = tiny(pool=("fmn", "fab_min"), more="published = true\n")
    with pytest.raises(FrontierError, match="fab_min"):
        run_benchmark(beyond, norms=["L2"])


def test_autoattack_keeps_the_radii_it_was_begun_with(copied, tmp_path):
    noisy = copied.benchmark["noisy"]
    before = finished_baseline(copied, noisy, "L2")
    write_tiny(tmp_path, pool=("fmn", "sigma_zero", "ddn", "pdgd"))
    larger = Bench.open(tmp_path / "tiny.toml", copied.out)
    assert run_benchmark(larger, norms=["L2"], stages=[TRACE, BASELINE]) == []
    assert finished_baseline(larger, noisy, "L2") == before
