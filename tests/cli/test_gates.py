"""Gates on the command line: exit code 1, and one sentence."""

import json


def test_requirement_is_met_or_not(folder, evaluate, capsys):
    words = ["nets.py:net", "--no-report", "-o", "a", "--json"]
    assert evaluate(*words, "--require", "Linf@0>=0.5") == 0  # all eight are right
    printed = capsys.readouterr()
    assert json.loads(printed.out)[0]["norm"] == "Linf"
    assert "Linf@0>=0.5 holds: robust accuracy is 100.0 % (67.6–100.0 %" in printed.err
    assert evaluate(*words, "--require", "Linf@0>=0.5,Linf@1>=0.5", "--require", "Linf@0>=80%") == 1
    said = capsys.readouterr().err
    assert "Linf@1>=0.5 fails: robust accuracy is 0.0 %" in said
    assert "Linf@0>=0.8 fails, because 8 samples are too few to decide" in said


def test_mistakes_cost_no_query(folder, evaluate, capsys):
    for words, message in (("L2@1>=0.5", "L2 is not evaluated"), ("Linf=0.5", "is no requirement")):
        assert evaluate("nets.py:net", "-o", "a", "--require", words) == 2
        assert message in capsys.readouterr().err
    assert not (folder / "a").exists()


def test_compare_fails_if_worse(folder, run, evaluate, capsys):
    for model in ("net", "weaker"):
        assert evaluate(f"nets.py:{model}", "--norm", "L2,Linf", "--no-report", "-o", model) == 0
    capsys.readouterr()
    assert run("compare", "net", "net", "--fail-if-worse") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{norm} holds: no sample is nearer to an error than before" for norm in ("L2", "Linf")
    ]
    assert run("compare", "weaker", "net", "--norm", "L2", "--fail-if-worse") == 1
    assert capsys.readouterr().err.startswith("L2 fails")
    assert run("compare", "weaker", "net", "--norm", "L2") == 0
    assert run("compare", "weaker", "net", "--norm", "L0") == 2
    said = capsys.readouterr().err
    assert (
        "not both in L0: L2, Linf in weaker and L2, Linf in net; evaluate both with --norm L0"
        in said
    )
