"""The commands: trace, allocate, aoi, baseline, bench run, bench status."""

import json
import re

import pytest
from bench_nets import FILE
from support.nesting import contains

import advfrontier.report.benchmark as report
from advfrontier import Evaluation, evaluate
from advfrontier.cli import main
from advfrontier.evaluation.trace import load_traces
from advfrontier.frontier import aoi, contributions
from advfrontier.pool import Ensemble
from advfrontier.record import folder_name
from advfrontier.sources import load_data

FEW = ["--data", "fashion-mnist", "--samples", "8", "--workers", "0"]
PLAIN = folder_name(f"{FILE}:plain")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    main([str(word) for word in words])
    return capsys.readouterr()


def refused(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    assert stopped.value.code == 2
    return capsys.readouterr().err


def traced(capsys, *more):
    models = (f"{FILE}:plain", f"{FILE}:noisy")
    return run(
        capsys,
        "trace",
        *models,
        *FEW,
        "--norm",
        "L2",
        "--queries",
        60,
        "--runs",
        "fmn,ddn,fmn:restart1",
        *more,
    )


def test_trace_then_allocate_then_aoi(here, capsys):
    said = traced(capsys).out
    place = f"traces/{PLAIN}/L2"
    assert place in said
    found = load_traces(place)
    assert (found.runs, len(found.samples), int(found.queries[-1])) == (
        ("fmn", "fmn:restart1", "ddn"),
        8,
        60,
    )

    said = run(capsys, "allocate", "traces", "--budget", "60,120", "--out", "ensembles").out
    assert "no allocation passes" in said
    small, large = (Ensemble.load(f"ensembles/L2-{budget}.toml") for budget in (60, 120))
    assert contains(large, small)
    assert (small.total <= 60, large.total <= 120) == (True, True)
    assert f"{100 * large.aoi:.2f}" in said
    assert f"{100 * large.bound:.2f}" in said

    record = here / "mine"
    samples = load_data("fashion-mnist", samples=8)
    evaluate(f"{FILE}:plain", samples, norm="L2", ensemble=large, out=record)
    capsys.readouterr()
    (said,) = json.loads(run(capsys, "aoi", record, "--trace", "traces", "--json").out)
    evaluation = Evaluation.load(record)
    frontier = found.frontier()
    assert said["aoi"] == aoi(evaluation.distances, frontier).value
    assert said["pool"] == 3
    by_run = {entry["run"]: entry for entry in said["runs"]}
    assert set(by_run) == set(large.runs)
    last = {name: table[-1] for name, table in evaluation.trajectories.items()}
    for entry in contributions(last, E=said["E"]):
        assert by_run[entry.run]["wins"] == entry.wins
    assert "AOI" in run(capsys, "aoi", record, "--trace", "traces").out


def test_aoi_needs_the_same_model_norm_and_samples(here, capsys):
    traced(capsys)
    ensemble = Ensemble.of("short", "L2", {"fmn": 20})
    evaluate(
        f"{FILE}:plain",
        load_data("fashion-mnist", samples=4),
        norm="L2",
        ensemble=ensemble,
        out=here / "few",
    )
    assert "different samples" in refused(capsys, "aoi", here / "few", "--trace", "traces")
    samples = load_data("fashion-mnist", samples=8)
    evaluate(f"{FILE}:wide", samples, norm="L2", ensemble=ensemble, out=here / "other")
    assert "must be that of the same model" in refused(
        capsys, "aoi", here / "other", "--trace", "traces"
    )
    ensemble = Ensemble.of("short", "Linf", {"fmn": 20})
    evaluate(f"{FILE}:plain", samples, norm="Linf", ensemble=ensemble, out=here / "linf")
    assert "no trace in Linf" in refused(capsys, "aoi", here / "linf", "--trace", "traces")


def test_baseline_at_radii_and_against_a_trace(here, capsys):
    traced(capsys)
    words = ["baseline", f"{FILE}:plain", "--data", "fashion-mnist", "--samples", 2, "--workers", 0]
    said = run(capsys, *words, "--norm", "L2", "--radii", "6,8", "--out", "base", "--json").out
    found = json.loads(said)
    assert found["radii"] == [6, 8]
    assert found["accuracies"] == [0, 0]
    assert all(queries > 0 for queries in found["queries"])
    assert (
        "robust accuracy"
        in run(capsys, *words, "--norm", "L2", "--radii", "6,8", "--out", "base").out
    )
    assert "expected one norm" in refused(capsys, *words, "--norm", "all", "--radii", "6")


def test_bench_status_run_and_status_again(here, capsys, tiny):
    tiny()
    said = run(capsys, "bench", "status", "tiny.toml", "--workers", 0).out
    assert re.search(r"^in all +0/2 +8 +0 +2,560 +\d+ s +\d+ kB", said, re.MULTILINE)
    assert (here / "bench" / "tiny" / "calibration.json").exists()
    said = run(capsys, "bench", "run", "tiny.toml", "--workers", 0)
    assert "bench/tiny/results/results.md" in said.out
    assert (here / "bench" / "tiny" / "results" / "figures" / "curves.png").exists()
    found = json.loads(run(capsys, "bench", "status", "tiny.toml", "--workers", 0, "--json").out)
    assert found["left"]["queries"] == 0
    assert found["results"] is True


def test_bench_run_ends_with_what_failed(here, capsys, tiny, monkeypatch):
    monkeypatch.setattr(report, "drawable", lambda: False)  # figures take longer than all the rest
    tiny(models=("plain", "noisy", "lost"))
    said = refused(capsys, "bench", "run", "tiny.toml", "--workers", 0)
    assert "1 parts failed" in said
    assert "lost in L2, trace" in said
    assert (here / "bench" / "tiny" / "results" / "results.md").exists()
    said = run(
        capsys, "bench", "status", "tiny.toml", "--workers", 0
    ).out  # what can be loaded is measured
    assert "failed: lost in L2" in said
    assert "the time of lost cannot be measured" in said
    run(
        capsys, "bench", "run", "tiny.toml", "--workers", 0, "--cached"
    )  # tries nothing, so what failed is still told
    assert (
        "failed: lost in L2" in run(capsys, "bench", "status", "tiny.toml", "--no-calibration").out
    )
    replaced = f"lost={FILE}:wide"
    run(capsys, "bench", "run", "tiny.toml", "--workers", 0, "--source", replaced)
    assert (
        "nothing is left to run"
        in run(capsys, "bench", "status", "tiny.toml", "--source", replaced).out
    )


def test_mistakes_are_answered(here, capsys, tiny):
    tiny()
    assert "no model to trace" in refused(capsys, "trace")
    assert "no folder" in refused(capsys, "allocate", "nowhere")
    assert "expected MODEL=SOURCE" in refused(
        capsys, "bench", "run", "tiny.toml", "--source", "plain"
    )
    assert "no benchmark" in refused(capsys, "bench", "status", "nothing")


def test_bench_run_takes_a_number_of_samples_and_writes_a_page_for_a_site(
    here, capsys, tiny, monkeypatch
):
    monkeypatch.setattr(report, "drawable", lambda: False)
    tiny(models=("plain", "noisy"))
    said = run(
        capsys, "bench", "run", "tiny.toml", "--samples", 3, "--page", "docs.md", "--workers", 0
    ).out
    assert "docs.md" in said.splitlines()
    assert "samples: 3 of fashion-mnist" in (here / "docs.md").read_text(encoding="utf-8")
    assert (
        json.loads((here / "docs" / "results.json").read_text(encoding="utf-8"))["name"] == "tiny"
    )


def test_bench_run_cached_makes_tables_of_what_is_done_and_attacks_nothing(
    here, capsys, tiny, monkeypatch
):
    monkeypatch.setattr(report, "drawable", lambda: False)
    tiny()
    run(capsys, "bench", "run", "tiny.toml", "--workers", 0)
    tiny(models=("plain", "noisy", "wide"))
    said = run(capsys, "bench", "run", "tiny.toml", "--workers", 0, "--cached")
    assert "wide in L2" not in said.err
    assert not (here / "bench" / "tiny" / "traces" / "wide").exists()
    assert (
        "wide is missing: it is not done yet"
        in (here / "bench" / "tiny" / "results" / "results.md").read_text()
    )
