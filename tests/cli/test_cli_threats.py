"""Threat models beyond one norm on the command line: what is shown, and what is refused."""


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
