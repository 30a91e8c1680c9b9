"""Benchmarks end to end: from nothing to tables, again without a query, and through failures and kills."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from bench_running import files, units_of
from support.faults import failing, interrupted, noting
from support.nesting import contains

from advfrontier.bench import Bench, run_benchmark, status
from advfrontier.bench import run as running
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.trace import load_traces
from advfrontier.execution import Machine
from advfrontier.frontier import aoi
from advfrontier.pool import Ensemble
from advfrontier.record import Header, UnitName
from advfrontier.report import benchmark as report
from advfrontier.report.benchmark import write_results
from advfrontier.sources import load_model


@pytest.mark.parametrize(
    ("samples", "figures"),
    [(5, set()), pytest.param(20, {"curves.png", "growth.pdf"}, marks=pytest.mark.slow)],
)
def test_small_benchmark_goes_from_nothing_to_its_tables_and_then_repeats_nothing(
    samples, figures, tmp_path, passes, monkeypatch
):
    monkeypatch.setattr(
        report, "drawable", lambda: bool(figures)
    )  # drawing takes longer than all the rest
    loaded, read, tasks = [], [], []
    from_bytes = Header.from_bytes
    monkeypatch.setattr(
        running, "load_model", lambda source: loaded.append(source) or load_model(source)
    )
    monkeypatch.setattr(Header, "from_bytes", lambda *a: read.append(a[-1]) or from_bytes(*a))
    small = load_benchmark("small").with_samples(samples)
    bench = Bench(small, str(tmp_path))
    began = (
        time.process_time()
    )  # not the clock on the wall: the machine may be busy with other things
    found = run_benchmark(bench, machine=noting(tasks, threads=1))
    written = write_results(found, bench.results)
    assert time.process_time() - began < 180
    assert found.failures == ()
    assert list(found.norms) == ["L0", "L1", "L2", "Linf"]
    expected = sum(len(bench.runs(norm, 10)) for norm in small.norms) * len(small.models)
    assert len(units_of(tasks)) == expected
    assert sum(passes) > 5 * samples * expected
    assert sorted(loaded) == sorted(
        model.source for model in small.models
    )  # each once, for four norms
    assert len(read) <= 2 * len(small.models) * len(small.norms)
    assert {path.name for path in written} >= {"results.md", "results.json"} | figures
    for norm in small.norms:
        files_of_tiers = [
            Path(bench.ensembles) / f"{norm}-{budget}.toml" for budget in small.budgets
        ]
        tiers = [Ensemble.load(path) for path in files_of_tiers]
        assert contains(tiers[2], tiers[1])
        assert contains(tiers[1], tiers[0])
        held_out = load_traces(bench.trace(small["F5"], norm))
        by_hand = aoi(held_out.best(tiers[2].queries), held_out.frontier()).value
        tables = json.loads((Path(bench.results) / "results.json").read_text())["norms"][norm][
            "tables"
        ]
        (row,) = [row for row in tables["aoi"]["rows"] if row["model"] == "F5"]
        assert row["greedy-150"] == by_hand

    before = files(tmp_path)
    tasks.clear()
    passes.clear()
    again = run_benchmark(bench, machine=noting(tasks, threads=1))
    write_results(again, bench.results)
    assert tasks == []
    assert (
        passes == [min(samples, 16)] * 12
    )  # three models in four norms are recognised by their answers
    assert status(bench).queries == 0
    after = files(tmp_path)
    changed = {name for name in before if before[name] != after[name]}
    assert {name for name in changed if not str(name).endswith("record.json")} == set()


def test_adding_runs_models_samples_and_norms_does_only_what_is_missing(tiny):
    def done(bench):
        run_benchmark(bench, machine=noting(tasks := [], threads=1))
        return units_of(tasks)

    assert sorted(done(tiny())) == [
        (model, "L2", run, first)
        for model in ("noisy", "plain")
        for run in ("ddn", "fmn")
        for first in (0, 6)
    ]
    units = done(tiny(pool=("fmn", "ddn", "pdgd")))
    assert {unit[2] for unit in units} == {"pdgd"}
    assert len(units) == 4
    units = done(tiny(pool=("fmn", "ddn", "pdgd"), models=("plain", "noisy", "wide")))
    assert {unit[0] for unit in units} == {"wide"}
    units = done(tiny(norms=("L2", "Linf")))
    assert {unit[1:3] for unit in units} == {("Linf", "fmn")}  # there is no ddn in Linf
    units = done(tiny(models=("plain",), samples=12))
    assert sorted(unit[2:] for unit in units) == [
        ("ddn", 6),
        ("fmn", 6),
    ]  # the first six are a whole unit, and stay


def test_what_fails_is_named_and_the_rest_is_done(finished, tiny):
    bench = tiny(models=("plain", "noisy", "lost"))
    found = run_benchmark(bench)
    (failure,) = found.failures
    assert failure.startswith("lost in L2, trace: ")
    assert "these weights were lost" in failure
    assert [subject.model for subject in found.norms["L2"].subjects] == ["plain", "noisy"]
    assert "lost is missing: it failed" in found.norms["L2"].notes
    (known,) = status(bench).failures
    assert (known.model, known.norm, known.stage) == ("lost", "L2", "trace")


def test_unit_that_fails_is_named_and_done_by_the_next_run(tiny):
    bench = tiny()

    def wrong(_, task):
        return task.parts[0].unit == UnitName("ddn", 6, 2)

    found = run_benchmark(
        bench, machine=failing(wrong, error="RuntimeError: out of memory", threads=1)
    )
    assert any(
        "ddn on samples 6–7" in failure and "out of memory" in failure for failure in found.failures
    )
    assert [(part.model, part.left) for part in status(bench).parts if part.left] == [
        ("plain", 1),
        ("noisy", 1),
    ]
    assert run_benchmark(bench).failures == ()
    assert status(bench).failures == ()


def test_killed_at_any_unit_the_same_command_goes_on_to_the_same_results(tiny, finished_once):
    _, expected = finished_once
    bench = tiny()
    for done in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            run_benchmark(bench, machine=interrupted(done, threads=1))
    found = run_benchmark(bench)
    for one, other in zip(found.norms["L2"].subjects, expected.norms["L2"].subjects, strict=True):
        assert np.array_equal(one.frontier, other.frontier)
        assert all(np.array_equal(one.tiers[budget], other.tiers[budget]) for budget in one.tiers)


def test_a_run_that_no_norm_has_is_refused_and_not_passed_over(tiny):
    for pool, message in (
        (("fnm", "ddn"), "unknown solver in run fnm"),
        (("apgd_min", "ddn"), "expected apgd_min-ce"),
    ):
        for act in (run_benchmark, status):
            with pytest.raises(FrontierError, match=message):
                act(tiny(pool=pool))
    assert tiny(norms=("Linf",), pool=("ddn", "fmn", "fmn:target9")).runs("Linf", 4) == ("fmn",)


def test_models_that_are_not_here_any_more_are_fetched_again(finished, monkeypatch):
    fetched = []

    def load(source, *, download=False):
        fetched.append((source.rpartition(":")[2], download))
        return load_model(source)

    monkeypatch.setattr(running, "load_model", load)
    assert run_benchmark(finished, download=True).failures == ()
    assert fetched == [("plain", True), ("plain", False), ("noisy", True), ("noisy", False)]


def test_model_without_a_source_is_named(finished, tiny):
    bench = tiny(models=("plain", "noisy", "wide"))
    models = tuple(
        m.model_copy(update={"source": None, "origin": "by hand"}) if m.id == "wide" else m
        for m in bench.benchmark.models
    )
    found = run_benchmark(Bench(bench.benchmark.model_copy(update={"models": models}), bench.out))
    (failure,) = found.failures
    assert "--source wide=file.py:factory" in failure


def test_time_that_is_up_is_no_failure():
    under_way = running._Running(None, Machine(), print)
    with pytest.raises(Unfinished), under_way._part("F1", "L2", "trace"):
        raise Unfinished("time is up")
    assert under_way.failures == []
