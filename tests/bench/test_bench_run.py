"""Benchmarks end to end: from nothing to tables, again without a query, and through failures and kills."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from bench_nets import FILE as NETS
from support.faults import failing, interrupted, noting

from advfrontier.attacks.autoattack import AtRadius
from advfrontier.bench import Bench, allocation, calibrate, run_autoattack, run_benchmark, status
from advfrontier.bench import run as running
from advfrontier.bench.baselines import radii_of
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.bench.status import disk_used
from advfrontier.engine import Oracle
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.trace import load_traces
from advfrontier.execution import Machine
from advfrontier.frontier import aoi
from advfrontier.frontier.race import read_off
from advfrontier.jobs import autoattack as autoattack_job
from advfrontier.jobs.autoattack import read_points
from advfrontier.pool import Ensemble, Race
from advfrontier.record import Header, Record, UnitName
from advfrontier.report import benchmark as report
from advfrontier.report.benchmark import write_results
from advfrontier.solvers import PUBLISHED
from advfrontier.sources import load_data, load_model


@pytest.fixture
def passes(monkeypatch):
    """Rows that pass through any model."""
    seen = []
    before = Oracle.logits

    def counted(self, x):
        seen.append(len(x))
        return before(self, x)

    monkeypatch.setattr(Oracle, "logits", counted)
    return seen


def units_of(tasks):
    """The units that were done, by the names of the record's folder and the run."""
    done = [(place, part.unit) for place, task in tasks for part in getattr(task, "parts", ())]
    return [(*Path(place).parts[-2:], unit.run, unit.first) for place, unit in done]


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_small_benchmark_goes_from_nothing_to_its_tables_and_then_repeats_nothing(tmp_path, passes, monkeypatch):
    loaded, read, tasks = [], [], []
    from_bytes = Header.from_bytes
    monkeypatch.setattr(running, "load_model", lambda source: loaded.append(source) or load_model(source))
    monkeypatch.setattr(Header, "from_bytes", lambda *a: read.append(a[-1]) or from_bytes(*a))
    small = load_benchmark("small")
    bench = Bench(small, str(tmp_path))
    began = time.process_time()  # not the clock on the wall: the machine may be busy with other things
    found = run_benchmark(bench, machine=noting(tasks, threads=1))
    written = write_results(found, bench.results)
    assert time.process_time() - began < 180
    assert found.failures == ()
    assert list(found.norms) == ["L0", "L1", "L2", "Linf"]
    expected = sum(len(bench.runs(norm, 10)) for norm in small.norms) * len(small.models)
    assert len(units_of(tasks)) == expected
    assert sum(passes) > 100 * expected
    assert sorted(loaded) == sorted(model.source for model in small.models)  # each once, for four norms
    assert len(read) <= 2 * len(small.models) * len(small.norms)
    assert {path.name for path in written} >= {"results.md", "results.json", "curves.png", "growth.pdf"}
    for norm in small.norms:
        files_of_tiers = [Path(bench.ensembles) / f"{norm}-{budget}.toml" for budget in small.budgets]
        tiers = [Ensemble.load(path) for path in files_of_tiers]
        assert tiers[2].contains(tiers[1])
        assert tiers[1].contains(tiers[0])
        held_out = load_traces(bench.trace(small["F5"], norm))
        by_hand = aoi(held_out.best(tiers[2].queries), held_out.frontier()).value
        tables = json.loads((Path(bench.results) / "results.json").read_text())["norms"][norm]["tables"]
        (row,) = [row for row in tables["aoi"]["rows"] if row["model"] == "F5"]
        assert row["greedy-150"] == by_hand

    before = files(tmp_path)
    tasks.clear()
    passes.clear()
    again = run_benchmark(bench, machine=noting(tasks, threads=1))
    write_results(again, bench.results)
    assert tasks == []
    assert passes == [16] * 12  # three models in four norms are recognised by their answers
    assert status(bench).queries == 0
    after = files(tmp_path)
    changed = {name for name in before if before[name] != after[name]}
    assert {name for name in changed if not str(name).endswith("record.json")} == set()


def test_adding_runs_models_samples_and_norms_does_only_what_is_missing(tiny):
    def done(bench):
        run_benchmark(bench, machine=noting(tasks := [], threads=1))
        return units_of(tasks)

    assert sorted(done(tiny())) == [
        (model, "L2", run, first) for model in ("noisy", "plain") for run in ("ddn", "fmn") for first in (0, 6)
    ]
    units = done(tiny(pool=("fmn", "ddn", "pdgd")))
    assert {unit[2] for unit in units} == {"pdgd"}
    assert len(units) == 4
    units = done(tiny(pool=("fmn", "ddn", "pdgd"), models=("plain", "noisy", "wide")))
    assert {unit[0] for unit in units} == {"wide"}
    units = done(tiny(norms=("L2", "Linf")))
    assert {unit[1:3] for unit in units} == {("Linf", "fmn")}  # there is no ddn in Linf
    units = done(tiny(models=("plain",), samples=12))
    assert sorted(unit[2:] for unit in units) == [("ddn", 6), ("fmn", 6)]  # the first six are a whole unit, and stay


def test_ensembles_are_made_again_only_if_what_they_rest_on_changed(finished, tiny, monkeypatch):
    calls = []
    before = allocation.allocate
    monkeypatch.setattr(allocation, "allocate", lambda *a, **k: calls.append(1) or before(*a, **k))
    run_benchmark(finished)
    assert calls == []
    run_benchmark(tiny(pool=("fmn", "ddn", "pdgd")))
    assert calls == [1]


def with_budgets(bench, *budgets):
    return Bench(bench.benchmark.model_copy(update={"budgets": budgets}), bench.out)


def test_a_second_run_writes_the_same_bytes_even_if_all_is_learned_anew(tiny, monkeypatch):
    monkeypatch.setattr(report, "drawable", lambda: False)  # figures take longest
    whole = with_budgets(tiny(models=("plain", "noisy", "wide"), pool=("fmn", "ddn", "pdgd", "alma")), 1000, 2000)
    written = {}
    for again in range(3):
        write_results(run_benchmark(whole), whole.results)
        written[again] = files(whole.results)
        if again == 1:
            for path in Path(whole.ensembles).iterdir():
                path.unlink()
    assert {"results.md", "results.json", "ensembles/L2-race.toml"} <= {name.as_posix() for name in written[0]}
    assert written[0] == written[1] == written[2]
    tables = json.loads(written[0][Path("results.json")])["norms"]["L2"]["tables"]
    race = Race.load(Path(whole.results) / "ensembles" / "L2-race.toml")
    held_out = load_traces(whole.trace(whole.benchmark["noisy"], "L2"), runs=race.runs)
    (row,) = [row for row in tables["aoi"]["rows"] if row["model"] == "noisy"]
    assert row["race-2k"] == aoi(read_off(held_out, race, 2000).at(2000), held_out.frontier()).value
    assert {row["split"] for row in tables["race_against_greedy"]["rows"]} == {"train", "held-out", "all"}


def test_only_the_benchmarks_own_pool_is_judged_against(finished, tiny, tmp_path):
    fewer = run_benchmark(tiny(pool=("fmn",)))
    alone = run_benchmark(Bench(tiny(pool=("fmn",)).benchmark, str(tmp_path / "alone")))
    for one, other in zip(fewer.norms["L2"].subjects, alone.norms["L2"].subjects, strict=True):
        assert np.array_equal(one.frontier, other.frontier)  # what ddn left there does not count
    tables = fewer.norms["L2"].tables()
    tier, *_ = tables["tiers"].records()
    (train,) = [row for row in tables["aoi_summary"].records() if row["split"] == "train"]
    assert train[tier["tier"]].mean == pytest.approx(tier["aoi"])  # the two tables of one page agree
    raised = run_benchmark(with_budgets(tiny(pool=("fmn",)), 60, 110))  # the leftovers end at 80 queries
    assert raised.failures == ()
    assert raised.norms["L2"].subjects[0].aois["greedy"][110].value == 1


def test_longer_traces_of_larger_budgets_change_nothing(finished, finished_once):
    fresh_bench, fresh = finished_once
    run_benchmark(with_budgets(finished, 60, 160))
    after = run_benchmark(finished)
    for one, other in zip(after.norms["L2"].subjects, fresh.norms["L2"].subjects, strict=True):
        assert np.array_equal(one.frontier, other.frontier)
        assert one.growth == other.growth
    files_of = [Path(place) / "ensembles" / "L2-80.toml" for place in (finished.out, fresh_bench.out)]
    assert files_of[0].read_text() == files_of[1].read_text()


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

    found = run_benchmark(bench, machine=failing(wrong, error="RuntimeError: out of memory", threads=1))
    assert any("ddn on samples 6–7" in failure and "out of memory" in failure for failure in found.failures)
    assert [(part.model, part.left) for part in status(bench).parts if part.left] == [("plain", 1), ("noisy", 1)]
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


def test_status_says_what_is_left_and_what_it_will_cost(tiny):
    bench = tiny()
    before = status(bench)
    assert (sum(part.units for part in before.parts), before.queries) == (8, 2 * 2 * 80 * 8)
    assert math.isnan(before.seconds)
    assert not before.results
    known = calibrate(bench, bench.benchmark.models, device="cpu", threads=1)
    estimated = status(bench, known)
    assert estimated.seconds > 0
    began = disk_used(bench.out)
    results = run_benchmark(bench)
    units = [path for path in Path(bench.out).rglob("*.safetensors") if "units" in path.parts]
    size = sum(path.stat().st_size for path in units)
    assert size == pytest.approx(estimated.bytes, rel=0.25)
    assert disk_used(bench.out) > began + size
    write_results(results, bench.results)
    after = status(bench, known)
    assert (after.queries, after.seconds, after.bytes) == (0, 0, 0)
    assert after.results
    assert after.ensembles == ("ensembles/L2-40.toml", "ensembles/L2-80.toml")


def test_status_of_ten_thousand_units_is_a_matter_of_names(tiny):
    pool = ["fmn", *(f"fmn:restart{k}" for k in range(1, 6)), *(f"fmn:target{k}" for k in range(1, 5))]
    bench = tiny(models=("plain",), pool=pool, samples=1000)
    (model,) = bench.benchmark.models
    run_benchmark(Bench(tiny(models=("plain",), pool=["fmn"], samples=1).benchmark, bench.out))
    bench = tiny(models=("plain",), pool=pool, samples=1000)
    record = Record.find(bench.trace(model, "L2"))
    clean = record.clean
    record.write_clean(clean.rows(torch.zeros(6000, dtype=torch.int64)))
    folder = Path(record.place) / "units"
    for run in pool:
        target = folder / run.replace(":", ".")
        target.mkdir(parents=True, exist_ok=True)
        for first in range(0, 6000, 6):
            (target / f"{first:05d}+006-0080.safetensors").touch()
    began = time.process_time()
    found = status(bench)
    assert time.process_time() - began < 2
    assert found.parts[0].units == 10_000
    assert found.parts[0].done == 10_000


def test_autoattack_is_stored_radius_by_radius_and_goes_on(tmp_path, passes):
    samples = load_data("fashion-mnist", samples=4)
    options = {"norm": "Linf", "batch_size": 2}
    place = str(tmp_path / "baseline")
    first = run_autoattack(place, f"{NETS}:plain", samples, radii=[0.5], **options)
    assert first.radii == (0.5,)
    assert first.accuracies == (0.0,)
    assert first.queries[0] > 0
    spent = len(passes)
    written = files(tmp_path)
    both = run_autoattack(place, f"{NETS}:plain", samples, radii=[0.5, 0.6], **options)
    assert both.at(0.5) == first.at(0.5)
    assert both.at(0.55) is None
    assert radii_of(place) == (0.5, 0.6)
    assert read_points(Record.open(place, "baseline")) == both
    kept = {name for name in written if "0.5" in name.parts}
    assert len(kept) == 2
    assert all(files(tmp_path)[name] == written[name] for name in kept)
    assert len(passes) == spent + 1  # AutoAttack passes the model by another way; it is recognised by its answers
    victim = next(Path(place).rglob("0.6/*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-4])
    with pytest.raises(FrontierError, match=r"lacks AutoAttack at 0\.6 on samples"):
        read_points(Record.open(place, "baseline"))


def fast_attack(model, images, labels, *, norm, radius, **_):
    """In place of AutoAttack: breaks whom a step along the gradient of the margin breaks, for ten queries each."""
    x = images.clone().requires_grad_()
    logits = model(x)
    own = logits.gather(1, labels[:, None])[:, 0]
    other = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    (gradient,) = torch.autograd.grad((own - other).sum(), x)
    unit = gradient / gradient.flatten(1).norm(dim=1)[:, None, None, None]
    robust = (model((images - radius * unit).clamp(0, 1)).argmax(1) == labels) & (logits.argmax(1) == labels)
    spent = np.full(len(images), 5)
    return AtRadius(
        radius, robust.numpy(), spent, spent, {"attack": 10 * len(images), "checks": 0}, 0.1, ("a warning",)
    )


def test_baseline_keeps_its_radii_when_the_frontier_moves(finished, tiny, monkeypatch):
    calls = []
    monkeypatch.setattr(autoattack_job, "attack_at", lambda *a, **k: calls.append(k["radius"]) or fast_attack(*a, **k))
    bench = with_baseline(finished)
    assert sum(part.units for part in status(bench).parts if part.stage == "baseline") == 2 * 10 * 2
    found = run_benchmark(bench)
    assert found.failures == ()
    tables = found.norms["L2"].tables()
    rows = {row["model"]: row for row in tables["robust_accuracy"].records()}
    assert rows["plain"]["epsilon"] == 1.1
    assert rows["plain"]["AutoAttack queries"] == 10
    for row in tables["aoi"].records():
        assert row["AutoAttack"].low <= row["AutoAttack"].value <= row["AutoAttack"].high
    assert set(found.tables()) == {"pool", "totals", "cases"}
    assert "AutoAttack on plain: a warning" in found.norms["L2"].notes
    radii = {model: radii_of(bench.baseline(bench.benchmark[model], "L2")) for model in ("plain", "noisy")}
    assert all(1.1 in found_radii for found_radii in radii.values())
    assert len(calls) == 2 * sum(len(found_radii) for found_radii in radii.values())
    assert not [part for part in status(bench).parts if part.left]
    calls.clear()
    more = with_baseline(tiny(pool=("fmn", "ddn", "pdgd", "alma")))
    run_benchmark(more)
    assert calls == []  # another attack moves the frontier, but AutoAttack's points stay true
    assert radii_of(bench.baseline(bench.benchmark["plain"], "L2")) == radii["plain"]


def test_autoattack_may_have_a_batch_of_its_own(finished, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        autoattack_job,
        "attack_at",
        lambda m, images, *a, **k: sizes.append(len(images)) or fast_attack(m, images, *a, **k),
    )
    with (tmp_path / "tiny.toml").open("a") as file:
        file.write("baseline_batch = 3\n")  # of the last model
    bench = with_baseline(Bench(load_benchmark(tmp_path / "tiny.toml"), str(tmp_path / "out")))
    assert [model.baseline_batch for model in bench.benchmark.models] == [6, 3]
    before = {part.model: part.units for part in status(bench).parts if part.stage == "baseline"}
    assert before == {"plain": 2 * 10, "noisy": 3 * 10}
    found = run_benchmark(bench)
    assert found.failures == ()
    (table,) = found.model_tables().values()
    assert [(row["batch"], row["AutoAttack's batch"]) for row in table.records()] == [(6, 6), (6, 3)]
    radii = {model: len(radii_of(bench.baseline(bench.benchmark[model], "L2"))) for model in ("plain", "noisy")}
    assert sorted(sizes) == sorted([6, 2] * radii["plain"] + [3, 3, 2] * radii["noisy"])
    assert not [part for part in status(bench).parts if part.left]
    assert load_benchmark("paper")["I10"].baseline_batch == 100
    assert load_benchmark("paper")["I9"].baseline_batch == load_benchmark("paper")["I9"].batch


def test_baseline_that_is_not_installed_is_said_to_be_missing(finished, monkeypatch):
    monkeypatch.setattr(running, "_EXTRA", "no_such_package")
    found = run_benchmark(with_baseline(finished))
    assert found.failures == ()
    (note,) = found.norms["L2"].notes
    assert "advfrontier[autoattack]" in note
    assert all(subject.baseline is None for subject in found.norms["L2"].subjects)


def test_model_without_a_source_is_named(finished, tiny):
    bench = tiny(models=("plain", "noisy", "wide"))
    models = tuple(
        m.model_copy(update={"source": None, "origin": "by hand"}) if m.id == "wide" else m
        for m in bench.benchmark.models
    )
    found = run_benchmark(Bench(bench.benchmark.model_copy(update={"models": models}), bench.out))
    (failure,) = found.failures
    assert "--source wide=file.py:factory" in failure


def with_baseline(bench):
    return Bench(bench.benchmark.model_copy(update={"baseline": "autoattack"}), bench.out)


def test_published_solvers_and_the_papers_algorithm(tmp_path, tiny, monkeypatch):
    bench = tiny(models=("plain",))
    asked = bench.benchmark.model_copy(update={"published": True, "allocation": "plain"})
    seen, allocate = [], allocation.allocate_traces
    monkeypatch.setattr(allocation, "allocate_traces", lambda *a, **k: seen.append(k) or allocate(*a, **k))
    results = run_benchmark(Bench(asked, str(tmp_path / "published")))
    held = Record.open(tmp_path / "published" / "traces" / "plain" / "L2", "trace").header.solvers
    assert held == {attack: repr(PUBLISHED[attack]) for attack in ("fmn", "ddn")}
    assert [given["plain"] for given in seen] == [True]
    (ensemble, _) = results.norms["L2"].ensembles.values()
    assert set(ensemble.solvers) == {"fmn", "ddn"}
    assert {"the solvers are those of their papers", "allocated by the paper's algorithm as printed"} <= set(
        results.norms["L2"].notes
    )
    beyond = asked.model_copy(update={"pool": ("fmn", "fab_min")})
    with pytest.raises(FrontierError, match="fab_min: searches of this package"):
        run_benchmark(Bench(beyond, str(tmp_path / "beyond")))


def test_time_that_is_up_is_no_failure():
    under_way = running._Running(None, Machine(), print)
    with pytest.raises(Unfinished), under_way._part("F1", "L2", "trace"):
        raise Unfinished("time is up")
    assert under_way.failures == []
