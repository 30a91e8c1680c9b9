"""The command line: a whole path through it, and mistakes that end with one message and exit code
2.
"""

import json
import re
from pathlib import Path

import pytest
import torch

from advfrontier import Evaluation
from advfrontier.cli import main


def test_evaluate_compare_rank_extend_and_report(folder, run, evaluate, capsys):
    common = [
        "--data",
        "npz:data.npz",
        "--norm",
        "l2,Linf",
        "--queries",
        "300",
        "--radii",
        "1/255,0.5",
    ]
    assert evaluate("nets.py:net", *common, "--out", "runs/a", "--name", "ours") == 0
    out = capsys.readouterr().out
    assert "ours on npz:data.npz, 8 samples, at most 300 queries per sample" in out
    assert re.search(r"L2 +\d", out)
    assert "1/255" in out
    assert "report: runs/a/report.html" in out
    assert Path("runs/a/report.html").read_text().startswith("<!")

    assert (
        evaluate(
            "nets.py:weaker", *common, "--out", "runs/b", "--json", "--no-report", "--export", "csv"
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [entry["norm"] for entry in found] == ["L2", "Linf"]
    assert list(found[0])[-2:] == ["distances", "samples"]  # figures first, ids last
    assert len(found[0]["samples"]) == 8
    assert not Path("runs/b/report.html").exists()
    assert Path("runs/b/L2.csv").read_text().startswith("row,sample,label,prediction,distance")

    assert run("compare", "runs/a", "runs/b", "--out", "both.html") == 0
    out = capsys.readouterr().out
    assert "ours" in out
    assert Path("both.html").exists()

    assert run("rank", "runs/a", "runs/b", "--csv", "table.csv", "--html", "board.html") == 0
    assert "nets.py:weaker" in capsys.readouterr().out
    assert len(Path("table.csv").read_text().splitlines()) == 1 + 2 * 2 + 2

    before = Evaluation.load("runs/a/L2")
    assert (
        run(
            "extend",
            "runs/a",
            "--model",
            "nets.py:net",
            "--queries",
            "500",
            "--workers",
            "0",
            "--no-report",
        )
        == 0
    )
    after = Evaluation.load("runs/a/L2")
    assert after.ensemble.total == 500
    assert after.counts["attack"] == 8 * 500
    assert (after.distances_at(300) == before.distances).all()

    assert run("report", "runs/a", "--out", "again.html") == 0
    assert Path("again.html").exists()


def test_same_command_again_resumes(folder, evaluate, capsys):
    words = ["nets.py:net", "--data", "npz:data.npz", "--queries", "100", "--no-report"]
    assert evaluate(*words) == 0
    first = capsys.readouterr().out
    victim = next(Path("runs/nets.py+net/Linf/units").rglob("*.safetensors"))
    kept = {
        path: path.stat().st_mtime_ns
        for path in Path("runs").rglob("*.safetensors")
        if path != victim
    }
    victim.unlink()
    assert evaluate(*words) == 0
    checked = r"\d+ checks"  # the model is recognised by a few answers
    assert re.sub(checked, "", capsys.readouterr().out) == re.sub(checked, "", first)
    assert victim.exists()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


MISTAKES = [
    (["evaluate", "gone.py:net"], "found nothing at gone.py"),
    (["evaluate", "nets.py:nothing", "-d", "npz:data.npz"], "nets.py has no 'nothing'"),
    (["evaluate", "nets.py:broken", "-d", "npz:data.npz"], "no weights today"),
    (
        ["evaluate", "nets.py:number", "-d", "npz:data.npz"],
        "is a int: expected a factory or a model",
    ),
    (["evaluate", "nets.py:net", "-d", "npz:gone.npz"], "found nothing at gone.npz"),
    (
        ["evaluate", "nets.py:net", "-d", "npz:bytes.npz"],
        r"images range from 0.08\d+ to 253.\d+: expected \[0, 1\]",
    ),
    (["evaluate", "nets.py:net", "-d", "npz:many.npz"], "labels range from 9"),
    (
        ["evaluate", "nets.py:single", "-d", "npz:data.npz"],
        r"expected logits of shape \(8, classes ≥ 2\)",
    ),
    (["evaluate", "nets.py:flat", "-d", "npz:data.npz"], r"expected logits of shape"),
    (["evaluate", "nets.py:net", "-d", "npz:data.npz", "--norm", "L3"], "unknown norm 'L3'"),
    (["evaluate", "nets.py:net", "-d", "npz:data.npz", "--tier", "5x"], "'5x' is not a budget"),
    (
        ["evaluate", "nets.py:net", "-d", "npz:data.npz", "--tier", "4k", "--queries", "9"],
        "expected one of them",
    ),
    (["evaluate", "nets.py:net", "-d", "npz:data.npz", "-n", "9"], "expected 1 to 8"),
    (["evaluate", "nets.py:net", "-d", "npz:data.npz", "--radii", "1/0"], "'1/0' is not a radius"),
    (["evaluate", "nets.py:net", "-d", "npz:data.npz", "--export", "xls"], "cannot export 'xls'"),
    (
        ["evaluate", "nets.py:net", "-d", "wherever"],
        "'wherever' is not a data set: expected fashion-mnist",
    ),
    (
        ["evaluate", "nets.py:net", "-d", "npz:data.npz", "--out", "nets.py"],
        "is a file: expected a folder",
    ),
    (["evaluate", "zoo:F99"], "the zoo has no model 'F99': expected one of F1 to F18"),
    (["extend", "runs/none", "--tier", "8k"], "no folder runs/none"),
    (["extend", "runs/none"], "no larger budget was given: expected one of --tier 8k, --queries"),
    (["compare", "runs/a", "runs/b"], "no folder runs/a"),
    (["rank"], "nothing to rank"),
    (["report"], "nothing to report on"),
    (["trace", "nets.py:net", "-d", "npz:data.npz", "--runs", ""], "--runs or --pool is empty"),
    (["pool", "--norm", "L7"], "unknown norm 'L7'"),
    (["zoo", "card", "F99"], "no model 'F99'"),
    (["frobnicate"], "Unknown command"),
    *(
        (["evaluate", "nets.py:net", "-d", "npz:data.npz", *option], message)
        for option, message in [
            (["--batch-size", "0"], "--batch-size .* is 0: expected greater than or equal to 1"),
            (
                ["--batch-size", "10000000"],
                "--batch-size .* is 10000000: expected less than or equal to 1000000",
            ),
            (["--threads", "5000"], "--threads .* is 5000: expected less than or equal to 1024"),
            (["--radii", "1e400"], "'1e400' is not a radius: expected a number such as"),
            (["--radii", "nan"], "'nan' is not a radius: expected a number such as"),
            (["--require", "Linf@ >=0.4"], "'Linf@ >=0.4' is no requirement: expected one such as"),
            (
                ["--sample-seed", str(2**64)],
                "the seed of the samples is 18446744073709551616: expected one from 0",
            ),
            (["--runs", ""], "--runs or --pool is empty: expected runs such as fmn,ddn"),
        ]
    ),
    (
        ["evaluate", "nets.py:net", "--samples", "many"],
        "Invalid value for --samples: unable to convert",
    ),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES]
)
def test_mistake_is_one_message(folder, run, capsys, words, message):
    more = (
        ["--queries", "100", "--workers", "0"]
        if words[0] == "evaluate" and "--tier" not in words
        else []
    )
    assert run(*words, *more) == 2
    printed = capsys.readouterr()
    said = printed.err + printed.out
    assert re.search(message, said), said
    assert "Traceback" not in said


def test_folder_of_another_model_is_refused_and_left_alone(folder, evaluate, capsys):
    words = ["--data", "npz:data.npz", "--queries", "100", "--out", "runs/x", "--no-report"]
    assert evaluate("nets.py:net", *words) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    capsys.readouterr()
    assert evaluate("nets.py:weaker", *words) == 2
    said = capsys.readouterr().err
    assert re.search(
        r"runs/x/Linf holds a record of another model: nets.py:net \(\w{8}\), not nets.py:weaker",
        said,
    )
    assert "Choose another folder" in said
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == before


def test_interruption_is_one_message(folder, evaluate, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("advfrontier.evaluation.evaluate.evaluate", interrupted)
    assert evaluate("nets.py:net", "--data", "npz:data.npz") == 130
    assert capsys.readouterr().err == (
        "advfrontier: Interrupted. Progress is saved; run the same command to resume.\n"
    )


def test_command_is_stored_and_threads_are_restored(folder, monkeypatch):
    words = [
        "advfrontier",
        "evaluate",
        "nets.py:net",
        "--data",
        "npz:data.npz",
        "--queries",
        "20",
        "--workers",
        "0",
    ]
    monkeypatch.setattr("sys.argv", words)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        main()
        found = Evaluation.load("runs/nets.py+net/Linf")
        assert (found.commands[-1], found.record.header.terms.threads) == (" ".join(words), 1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
