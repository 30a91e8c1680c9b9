"""A benchmark run again, with another pool or other budgets: what is made anew, and what stays true."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from bench_running import files, with_budgets
from support.faults import noting

from advfrontier.bench import Bench, allocation, run_benchmark, status
from advfrontier.command import typed
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.trace import load_traces
from advfrontier.execution import Machine
from advfrontier.frontier import aoi
from advfrontier.frontier.race import read_off
from advfrontier.pool import Race
from advfrontier.record import Record
from advfrontier.record.folder import LocalFolder
from advfrontier.report import benchmark as report
from advfrontier.report.benchmark import write_results
from advfrontier.solvers import PUBLISHED


def test_ensembles_are_made_again_only_if_what_they_rest_on_changed(finished, tiny, monkeypatch):
    calls = []
    before = allocation.allocate
    monkeypatch.setattr(allocation, "allocate", lambda *a, **k: calls.append(1) or before(*a, **k))
    run_benchmark(finished)
    assert calls == []
    run_benchmark(tiny(pool=("fmn", "ddn", "pdgd")))
    assert calls == [1]


def test_interrupted_between_two_files_neither_passes_for_what_it_is_not(
    finished, tiny, monkeypatch
):
    place = Path(finished.ensembles)
    before, write = files(place), LocalFolder.write

    def interrupt(self, name, content):
        if name == "L2-80.toml":
            raise KeyboardInterrupt
        write(self, name, content)

    monkeypatch.setattr(LocalFolder, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(tiny(pool=("ddn",)))
    monkeypatch.undo()
    assert (place / "L2-40.toml").read_bytes() != before[Path("L2-40.toml")]
    run_benchmark(tiny())  # with the pool of before
    assert files(place) == before


def test_a_second_run_writes_the_same_bytes_even_if_all_is_learned_anew(tiny, monkeypatch):
    monkeypatch.setattr(report, "drawable", lambda: False)  # figures take longest
    whole = with_budgets(tiny(pool=("fmn", "ddn", "pdgd"), samples=6), 1000, 2000)
    written = {}
    for again in range(3):
        write_results(run_benchmark(whole), whole.results)
        written[again] = files(whole.results)
        if again == 1:
            for path in Path(whole.ensembles).iterdir():
                path.unlink()
    assert {"results.md", "results.json", "ensembles/L2-race.toml"} <= {
        name.as_posix() for name in written[0]
    }
    assert written[0] == written[1] == written[2]
    tables = json.loads(written[0][Path("results.json")])["norms"]["L2"]["tables"]
    race = Race.load(Path(whole.results) / "ensembles" / "L2-race.toml")
    held_out = load_traces(whole.trace(whole.benchmark["noisy"], "L2"), runs=race.runs)
    (row,) = [row for row in tables["aoi"]["rows"] if row["model"] == "noisy"]
    assert row["race-2k"] == pytest.approx(
        aoi(read_off(held_out, race, 2000).at(2000), held_out.frontier()).value
    )
    assert {row["split"] for row in tables["race_against_greedy"]["rows"]} == {
        "train",
        "held-out",
        "all",
    }


@pytest.fixture
def raced(raced_once, tmp_path):
    """A copy of what was raced, and one that is traced only."""
    bench, _ = raced_once
    whole = Bench(bench.benchmark, str(shutil.copytree(bench.out, tmp_path / "whole")))
    traced = Bench(bench.benchmark, str(shutil.copytree(bench.out, tmp_path / "traced")))
    shutil.rmtree(Path(traced.out) / "races")
    return whole, traced


def races_of(bench):
    race = Race.load(Path(bench.ensembles) / "L2-race.toml")
    return [Evaluation.load(f"{bench.race(model, race)}/L2") for model in bench.benchmark.models]


@pytest.mark.slow  # two processes of its own
def test_races_side_by_side_find_what_they_find_one_after_the_other(raced):
    whole, traced = raced
    said = []
    with typed("bench run tiny"):
        found = run_benchmark(traced, machine=Machine(threads=1, workers=2), say=said.append)
    assert found.failures == ()
    assert "the races on plain, noisy, wide in L2" in said
    for alone, beside in zip(races_of(whole), races_of(traced), strict=True):
        assert np.array_equal(alone.distances, beside.distances)
        assert alone.record.header.commands == beside.record.header.commands == ("bench run tiny",)


def test_from_what_is_done_no_race_is_run_even_if_another_is_learned(raced):
    whole, _ = raced
    models = [
        m.model_copy(update={"split": "held-out" if m.id == "wide" else m.split})
        for m in whole.benchmark.models
    ]
    other = Bench(whole.benchmark.model_copy(update={"models": models}), whole.out)
    done = {(part.model, part.norm, part.stage) for part in status(other).parts if not part.left}
    assert ("plain", "L2", "race") in done
    found = run_benchmark(other, only=done, machine=noting(tasks := [], threads=1))
    assert tasks == []
    assert "the race on plain is missing: it is not done yet" in found.norms["L2"].notes


def test_a_race_of_another_budget_is_still_to_be_done(raced_once):
    bench, _ = raced_once
    for budgets, left in (((1000, 2000), 0), ((500, 1000), 6 * 1000)):
        parts = [
            part for part in status(with_budgets(bench, *budgets)).parts if part.stage == "race"
        ]
        assert [part.queries for part in parts] == [left] * 3


def test_when_time_is_up_one_race_is_done_and_no_other_begun(raced):
    _, traced = raced
    for count in (1, 2):
        with pytest.raises(Unfinished, match="time is up"):
            run_benchmark(traced, machine=Machine(threads=1, until=time.time() - 1))
        assert len(list((Path(traced.out) / "races").glob("*/*/L2"))) == count


def test_the_tables_of_one_page_agree_where_the_race_is_nearer_than_all_runs(raced_once):
    tables = raced_once[1].norms["L2"].tables()
    means = {row["split"]: row for row in tables["aoi_summary"].records() if row["what"] == "mean"}
    for row in tables["tiers"].records():
        for split in ("train", "held-out"):
            assert row[f"aoi of {split} models"] == pytest.approx(means[split][row["tier"]].mean)


def test_a_folder_of_another_benchmark_is_refused(finished):
    other = Bench(finished.benchmark.model_copy(update={"name": "other"}), finished.out)
    with pytest.raises(
        FrontierError, match="holds the benchmark tiny, not other: name another folder with --out"
    ):
        run_benchmark(other)
    for content in ("[]", "[" * 100_000):
        (Path(finished.out) / "benchmark.json").write_text(content)
        with pytest.raises(
            FrontierError, match=r"benchmark.json is damaged, or was not written by advfrontier"
        ):
            run_benchmark(finished)


def test_only_the_benchmarks_own_pool_is_judged_against(finished, tiny, tmp_path):
    fewer = run_benchmark(tiny(pool=("fmn",)))
    alone = run_benchmark(Bench(tiny(pool=("fmn",)).benchmark, str(tmp_path / "alone")))
    for one, other in zip(fewer.norms["L2"].subjects, alone.norms["L2"].subjects, strict=True):
        assert np.array_equal(one.frontier, other.frontier)  # what ddn left there does not count
    tables = fewer.norms["L2"].tables()
    tier, *_ = tables["tiers"].records()
    (train,) = [row for row in tables["aoi_summary"].records() if row["split"] == "train"]
    assert train[tier["tier"]].mean == pytest.approx(
        tier["aoi"]
    )  # the two tables of one page agree
    raised = run_benchmark(
        with_budgets(tiny(pool=("fmn",)), 60, 110)
    )  # the leftovers end at 80 queries
    assert raised.failures == ()
    assert raised.norms["L2"].subjects[0].aois["greedy"][110].value == 1


def test_longer_traces_of_larger_budgets_change_nothing(finished, finished_once):
    fresh_bench, fresh = finished_once
    run_benchmark(with_budgets(finished, 60, 160))
    after = run_benchmark(finished)
    for one, other in zip(after.norms["L2"].subjects, fresh.norms["L2"].subjects, strict=True):
        assert np.array_equal(one.frontier, other.frontier)
        assert one.growth == other.growth
    files_of = [
        Path(place) / "ensembles" / "L2-80.toml" for place in (finished.out, fresh_bench.out)
    ]
    assert files_of[0].read_text() == files_of[1].read_text()


def test_published_solvers_and_the_papers_algorithm(tmp_path, tiny, monkeypatch):
    bench = tiny(models=("plain",))
    asked = bench.benchmark.model_copy(update={"published": True, "allocation": "plain"})
    seen, allocate = [], allocation.allocate_traces
    monkeypatch.setattr(
        allocation, "allocate_traces", lambda *a, **k: seen.append(k) or allocate(*a, **k)
    )
    results = run_benchmark(Bench(asked, str(tmp_path / "published")))
    held = Record.open(tmp_path / "published" / "traces" / "plain" / "L2", "trace").header.solvers
    assert held == {attack: repr(PUBLISHED[attack]) for attack in ("fmn", "ddn")}
    assert [given["plain"] for given in seen] == [True]
    (ensemble, _) = results.norms["L2"].ensembles.values()
    assert set(ensemble.solvers) == {"fmn", "ddn"}
    assert {
        "the solvers are those of their papers",
        "allocated by the paper's algorithm as printed",
    } <= set(results.norms["L2"].notes)
    beyond = asked.model_copy(update={"pool": ("fmn", "fab_min")})
    with pytest.raises(FrontierError, match="fab_min: searches of this package"):
        run_benchmark(Bench(beyond, str(tmp_path / "beyond")))
