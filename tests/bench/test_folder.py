"""What a benchmark asks for, what is finished, and the table of both."""

from pathlib import Path

import pytest
from bench_tiny import NORMS, write_tiny

from advfrontier.bench.folder import (
    BASELINE,
    EVALUATE,
    STAGES,
    TRACE,
    Bench,
    finished_evaluation,
    finished_trace,
    status,
)
from advfrontier.errors import FrontierError


def test_folder_is_named_after_the_benchmark():
    assert Bench.open("small").out == "bench/small"
    bench = Bench.open("fashion-mnist", "build/results")
    assert bench.name == "fashion-mnist"
    assert bench.folder("traces", "F1", "L2") == "build/results/traces/F1/L2"
    assert bench.folder("evaluations", "F1") == "build/results/evaluations/F1"


def test_budgets_decide_how_far_runs_are_traced_and_where_tables_are_read():
    whole = Bench.open("fashion-mnist")
    assert (whole.queries, whole.budget) == (1000, 12000)
    assert whole.grid == list(range(1000, 12001, 1000))
    small = Bench.open("small")
    assert (small.queries, small.budget) == (150, 150)
    assert small.grid == list(range(10, 151, 10))


def test_runs_of_another_norm_or_of_more_classes_are_left_out(tiny):
    bench = tiny(pool=("fmn", "ddn", "sigma_zero", "fmn:target5"))
    assert bench.runs("L2", 10) == ["fmn", "ddn", "fmn:target5"]
    assert bench.runs("L2", 3) == ["fmn", "ddn"]
    assert bench.runs("L0", 10) == ["fmn", "sigma_zero", "fmn:target5"]
    with pytest.raises(FrontierError, match=r"no run in Linf: found ddn; type `advfrontier pool"):
        tiny(pool=("ddn",)).runs("Linf", 10)
    with pytest.raises(FrontierError, match="nothing_like_it"):
        tiny(pool=("nothing_like_it",)).check()


def test_stages_are_chosen_by_name():
    bench = Bench.open("small")
    assert bench.chosen_stages(None) == STAGES
    assert bench.chosen_stages("evaluate, trace") == (EVALUATE, TRACE)
    with pytest.raises(FrontierError, match="small has no stage 'train': expected some of trace,"):
        bench.chosen_stages("train")


def test_autoattack_attacks_the_models_of_its_split_where_it_can(tiny):
    bench = tiny()
    assert [model.id for model in bench.models_of(BASELINE, "L2")] == ["noisy"]
    assert bench.models_of(BASELINE, "L0") == []
    assert [model.id for model in bench.models_of(TRACE, "L0")] == ["plain", "noisy"]


def test_status_counts_finished_models_and_writes_nothing(finished):
    bench, _ = finished
    before = {path: path.stat().st_mtime_ns for path in Path(bench.out).rglob("*")}
    table = status(bench, norms=["L0", "L1", "L2"])
    rows = {(row["stage"], row["norm"]): row for row in table.records()}
    assert (rows[TRACE, "L2"]["finished"], rows[TRACE, "L2"]["models"]) == (2, 2)
    assert (rows[TRACE, "L1"]["finished"], rows[TRACE, "L1"]["models"]) == (0, 2)
    assert (rows[EVALUATE, "L0"]["finished"], rows[EVALUATE, "L0"]["models"]) == (2, 2)
    assert rows[TRACE, "L1"]["missing"] == "plain noisy"
    assert rows[TRACE, "L2"]["missing"] is None
    assert (rows[BASELINE, "L2"]["finished"], rows[BASELINE, "L2"]["models"]) == (1, 1)
    assert (BASELINE, "L0") not in rows
    assert [row["stage"] for row in table.records()] == [TRACE] * 3 + [EVALUATE] * 3 + [
        BASELINE
    ] * 2
    assert "ℓ0: AutoAttack does not attack in L0" in table.notes
    assert {path: path.stat().st_mtime_ns for path in Path(bench.out).rglob("*")} == before


def test_status_of_a_folder_that_is_not_there_makes_none(tmp_path):
    bench = Bench.open(write_tiny(tmp_path), tmp_path / "nowhere")
    rows = status(bench, norms=NORMS).records()
    assert {row["finished"] for row in rows} == {0}
    assert not (tmp_path / "nowhere").exists()


def test_models_without_a_source_are_named(tmp_path):
    notes = status(Bench.open("paper", tmp_path), norms=["L2"]).notes
    assert "C8 has no source: type --source C8=file.py:factory" in notes
    assert len([note for note in notes if "has no source" in note]) == 5


def test_records_of_fewer_samples_runs_or_queries_are_not_finished(finished, tmp_path):
    bench, _ = finished
    plain = bench.benchmark["plain"]
    assert finished_trace(bench, plain, "L2") is not None

    def changed(**update):
        return Bench(bench.name, bench.benchmark.model_copy(update=update), bench.out)

    assert finished_trace(changed(samples=4), plain, "L2") is None
    assert finished_trace(changed(pool=("fmn", "pdgd")), plain, "L2") is None
    assert finished_trace(changed(pool=("fmn",)), plain, "L2") is not None
    assert finished_trace(changed(budgets=(40, 160)), plain, "L2") is None
    assert finished_evaluation(changed(budgets=(40, 160)), plain, "L2") is None
    assert finished_evaluation(changed(budgets=(40,)), plain, "L2") is not None
    assert finished_evaluation(changed(samples=2), plain, "L2") is None
    assert finished_evaluation(bench, plain, "L1") is None
