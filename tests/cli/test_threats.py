"""Threat models beyond one norm on the command line: what is shown, and what is refused."""

import json


def test_pixels_are_evaluated_reported_and_ranked(folder, evaluate, run, capsys):
    assert evaluate("nets.py:net", "--norm", "L0pixel,L0", "--out", "runs/net") == 0
    out = capsys.readouterr().out
    assert out.index("\nL0 ") < out.index("\nL0pixel ")
    page = (folder / "runs/net/report.html").read_text(encoding="utf-8")
    assert "ℓ<sub>0</sub> pixels" in page
    assert run("rank", "runs/net") == 0
    out = capsys.readouterr().out
    assert out.index("\nL0 on ") < out.index("\nL0pixel on ")


def test_all_norms_leave_pixels_out(folder, evaluate, run, capsys):
    assert evaluate("nets.py:net", "--norm", "all", "--samples", "2", "--out", "runs/all") == 0
    assert not (folder / "runs/all/L0pixel").exists()
    assert "L0pixel" not in capsys.readouterr().out


def test_there_are_no_reference_models_in_pixels(evaluate, run, capsys):
    words = ["--norm", "L0pixel", "--data", "fashion-mnist", "--samples", "2", "--out", "runs/F3"]
    assert evaluate("zoo:F3", *words) == 0
    assert "no DOI" not in capsys.readouterr().out
    assert run("rank", "runs/F3", "--reference", "fashion-mnist") == 2
    assert "no reference models in L0pixel: expected one of L0, L1" in capsys.readouterr().err


def test_a_union_is_printed_compared_and_written(folder, evaluate, run, capsys):
    for model in ("net", "weaker"):
        words = ["--norm", "L1,Linf", "--out", f"runs/{model}"]
        assert evaluate(f"nets.py:{model}", *words) == 0
    capsys.readouterr()
    words = ["--radii", "L1=2,Linf=8/255", "--at", "0.5,1"]
    assert (
        run("union", "runs/net", "runs/weaker", *words, "--html", "u.html", "--csv", "u.csv") == 0
    )
    out = capsys.readouterr().out
    assert "nets.py:net on npz:data.npz against L1=2,Linf=8/255 at once: 8 samples" in out
    assert "broken by" in out
    rows = (folder / "u.csv").read_text().splitlines()
    assert rows[0] == "model,sample,t,weakest,L1,Linf"
    assert len(rows) == 1 + 2 * 8
    for row in rows[1:]:
        t, first, second = (float(row.split(",")[k]) for k in (2, 4, 5))
        assert t == min(first / 2, second / (8 / 255))
    assert "min(ℓ" in (folder / "u.html").read_text(encoding="utf-8")
    assert run("union", "runs/net/L1", "runs/net/Linf", "--radii", "2,8/255", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"][0]["radii"] == {"L1": 2.0, "Linf": 8 / 255}


def test_a_union_without_records_or_norms_is_refused(folder, evaluate, run, capsys):
    assert run("union", "--radii", "L1=2,Linf=1") == 2
    assert "expected folders of evaluations" in capsys.readouterr().err
    assert evaluate("nets.py:net", "--norm", "L1", "--out", "runs/net") == 0
    assert run("union", "runs/net", "--radii", "L1=2,Linf=1") == 2
    assert "has no evaluation in Linf" in capsys.readouterr().err
    assert run("union", "runs/net", "--radii", "L1=2,Linf=1", "--at", "L1=3") == 2
    assert "expected numbers such as 0.5,1,2" in capsys.readouterr().err
