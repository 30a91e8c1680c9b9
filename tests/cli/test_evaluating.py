"""`evaluate` with attacks, passes and radii of one's own, and `rank`."""

from pathlib import Path

import pytest

from advfrontier import Ensemble, Evaluation
from advfrontier.pool import make_ensemble
from advfrontier.record import Record
from advfrontier.solvers import PUBLISHED


def test_runs_are_named_and_published_solvers_used(folder, evaluate, run, capsys):
    words = [
        "nets.py:net",
        "--norm",
        "L2",
        "--runs",
        "fmn,ddn",
        "--published",
        "-o",
        "a",
        "--no-report",
    ]
    assert evaluate(*words, "--queries", "300") == 0
    done = Evaluation.load("a")
    assert done.ensemble.queries == {"fmn": 200, "ddn": 100}
    assert done.record.header.solvers["fmn"]["alpha"] == "1.0"
    steps = [{"run": "fmn", "queries": 100}, {"run": "ddn", "queries": 100}]
    steps += [{"run": "fmn", "queries": 220}, {"run": "ddn", "queries": 120}]
    make_ensemble(name="larger", norm="L2", steps=steps).save("larger.toml")
    assert (
        run(
            "extend",
            "a",
            "--ensemble",
            "larger.toml",
            "--model",
            "nets.py:net",
            "--workers",
            "0",
            "--no-report",
        )
        == 0
    )
    assert Evaluation.load("a").ensemble.total == 340
    for mistake, said in (
        (["--pool", "paper"], "--runs and --pool were given together"),
        (["--ensemble", "larger.toml"], "--ensemble was given together with --runs or --pool"),
    ):
        assert evaluate(*words, *mistake) == 2
        assert said in capsys.readouterr().err


def test_black_box_runs_alone_need_no_gradient(folder, evaluate):
    assert evaluate("nets.py:net", "--pool", "black-box", "-o", "a", "--no-report") == 0
    done = Evaluation.load("a")
    assert done.ensemble.queries == {"square_min": 100}
    assert done.record.header.gradients == "none"


def test_passes_per_query_are_stored_and_printed(folder, evaluate, run, capsys):
    words = ["nets.py:net", "--runs", "fmn", "-o", "a", "--no-report"]
    assert evaluate(*words, "--queries", "10", "--eot", "2") == 0
    assert "each the mean of 2 passes" in capsys.readouterr().out
    assert evaluate(*words, "--queries", "20") == 2
    told = capsys.readouterr().err
    assert "another number of passes per query: 2, not 1" in told
    assert "add --eot 2" in told
    Ensemble.of("larger", "Linf", {"fmn": 20}).save("larger.toml")
    assert (
        run("extend", "a", "--ensemble", "larger.toml", "--model", "nets.py:net", "--workers", "0")
        == 0
    )
    assert Evaluation.load("a").eot == 2
    assert (
        run(
            "trace",
            "nets.py:net",
            "--data",
            "npz:data.npz",
            "--runs",
            "fmn",
            "--eot",
            "2",
            "--queries",
            "10",
            "--workers",
            "0",
        )
        == 0
    )
    assert Record.find("traces/nets.py+net/Linf").header.terms.eot == 2


def test_radii_are_stored_with_the_record(folder, evaluate, run, capsys):
    assert (
        evaluate(
            "nets.py:net", "-o", "a", "--norm", "L2,Linf", "--eps", "Linf=8/255,0.2", "--no-report"
        )
        == 0
    )
    assert Record.find("a/Linf").header.radii == (8 / 255, 0.2)
    assert Record.find("a/L2").header.radii == ()
    capsys.readouterr()
    assert run("report", "a") == 0
    said = capsys.readouterr().out
    assert "8/255" in said
    assert said.count("0.2 ") >= 1
    assert "no radius is customary" not in said  # in L2 quartiles are shown


def test_rank_skips_folders_without_a_record(folder, evaluate, run, capsys):
    assert evaluate("nets.py:net", "-o", "runs/a", "--no-report") == 0
    assert evaluate("nets.py:weaker", "-o", "runs/b", "--no-report") == 0
    Path("runs/board.html").write_text("notes")
    Path("runs/empty").mkdir()
    capsys.readouterr()
    everything = sorted(map(str, Path("runs").iterdir()))
    assert (
        run("rank", *everything, "--radii", "Linf=1/255,L2=1", "--csv", "t.csv", "--html", "t.html")
        == 0
    )
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "note: no evaluation in runs/board.html",
        "note: no evaluation in runs/empty",
    ]
    assert "at 1/255 %" in printed.out
    robust = [Evaluation.load(f"runs/{name}").robust_accuracy(1 / 255) for name in "ab"]
    header, *rows = Path("t.csv").read_text().splitlines()
    assert header.endswith(",robust_accuracy_Linf_1/255")
    assert sorted(float(row.rpartition(",")[2]) for row in rows) == pytest.approx(sorted(robust))
    assert "Robust % at 1/255" in Path("t.html").read_text()


def test_published_solvers_are_refused_beside_others(folder, evaluate, run, capsys):
    for words, said in (
        (["--tier", "4k"], "no paper has these searches of advfrontier"),
        (
            ["--runs", "fmn,fab_min,square_min", "--queries", "300"],
            "fab_min, square_min: no paper has these searches of advfrontier",
        ),
    ):
        assert evaluate("nets.py:net", "--norm", "L2", "--published", "-o", "a", *words) == 2
        assert said in (printed := capsys.readouterr().err)
        assert "--ensemble paper-4k" in printed
    trace = [
        "trace",
        "nets.py:net",
        "--data",
        "npz:data.npz",
        "--norm",
        "L2",
        "--published",
        "--workers",
        "0",
    ]
    assert run(*trace, "--pool", "extended") == 2
    assert run(*trace, "--runs", "fmn,ddn", "--queries", "100", "-o", "t") == 0
    assert run("allocate", "t", "--budget", "100", "--plain", "-o", "e") == 0
    assert 'solvers = { "' in Path("e/L2-100.toml").read_text()
    assert (
        evaluate(
            "nets.py:net", "--norm", "L2", "--ensemble", "e/L2-100.toml", "-o", "b", "--no-report"
        )
        == 0
    )
    done = Evaluation.load("b")
    assert set(done.solvers) == set(PUBLISHED)


def test_extend_writes_the_exports_again_that_are_beside_the_record(folder, run, evaluate, capsys):
    words = ["nets.py:net", "--norm", "L2", "--runs", "fmn", "-o", "a", "--no-report"]
    assert evaluate(*words, "--queries", "40", "--export", "csv,sentence") == 0
    before = {name: Path("a", name).read_text() for name in ("L2.csv", "sentence.txt")}
    Path("a/L2-notes.csv").write_text("mine")
    capsys.readouterr()
    more = ["extend", "a", "--queries", "400", "--model", "nets.py:net", "--workers", "0"]
    assert run(*more, "--no-report") == 0
    printed = capsys.readouterr().out
    for name, content in before.items():
        assert f"a/{name}" in printed
        assert Path("a", name).read_text() != content
    assert Path("a/L2-notes.csv").read_text() == "mine"
