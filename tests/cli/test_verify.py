"""`verify` on the command line, and the leaderboard that demands it."""

import json
import re
from pathlib import Path

from advfrontier import Evaluation


def test_verified_records_are_ranked(folder, run, evaluate, capsys):
    for model in ("net", "weaker"):
        words = [
            "--norm",
            "L2,Linf",
            "--runs",
            "fmn",
            "--queries",
            "100",
            "--no-report",
            "-o",
            f"runs/{model}",
        ]
        assert evaluate(f"nets.py:{model}", *words) == 0
    capsys.readouterr()
    common = ["--data", "npz:data.npz", "--out", "proved.json"]
    assert run("verify", "runs/net", "--model", "nets.py:net", *common, "--rerun", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[: line.index(";")] for line in lines[:2]] == [
        f"{norm}: 8 of 8 points proved: inside the box, at their distance, misclassified"
        for norm in ("L2", "Linf")
    ]
    assert all("; 1 of 1 units reproduced bit for bit" in line for line in lines[:2])
    assert lines[2:] == ["verified: proved.json"]

    assert run("rank", "runs/net", "runs/weaker", "--verified", "proved.json", "--json") == 0
    printed = capsys.readouterr()
    assert {
        row["model"] for table in json.loads(printed.out)["norms"] for row in table["rows"]
    } == {"nets.py:net"}
    assert printed.err.count("note: left out, not on proved.json: nets.py:weaker in L") == 2
    assert run("rank", "runs/weaker", "--verified", "proved.json") == 2
    assert "none of these records is on proved.json" in capsys.readouterr().err

    assert run("verify", "runs/net", "--model", "nets.py:weaker", *common, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["norm"] for each in found] == ["L2", "Linf"]
    assert all("another model" in each["false"][0] for each in found)
    assert run("verify", "runs/net", "--model", "nets.py:weaker", *common) == 1
    out = capsys.readouterr().out
    assert re.search(r"^L2: \d+ false, \d of 8 points proved", out)
    assert "\nno record was added to proved.json" in out
    assert (
        len(json.loads(Path("proved.json").read_text())["verified"]) == 2
    )  # the true ones of before

    words = ["--model", "nets.py:weaker", "--queries", "150", "--no-report", "--workers", "0"]
    assert run("extend", "runs/weaker", *words) == 0
    assert Evaluation.load("runs/weaker/L2").ensemble.total == 150


def test_verify_mistakes(folder, run, evaluate, capsys):
    assert evaluate("nets.py:net", "--no-report", "-o", "a") == 0
    assert (
        run("verify", "a", "--model", "nets.py:net", "-d", "npz:data.npz", "--rerun", "some") == 2
    )
    assert "cannot do 'some' of the units again" in capsys.readouterr().err
    assert run("verify", "a", "-d", "npz:data.npz") == 2
    assert run("verify", "gone", "--model", "nets.py:net") == 2
    assert run("rank", "a", "--verified", "gone.json") == 2
    assert "no file gone.json" in capsys.readouterr().err
    Path("list.json").write_text("[]")
    assert run("rank", "a", "--verified", "list.json") == 2
    assert "is no list of verified records" in capsys.readouterr().err
