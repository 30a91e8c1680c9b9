"""Threat models beyond one norm on the command line: what is shown, and what is refused."""

import numpy as np
import pytest


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


@pytest.mark.usefixtures("folder")
def test_there_are_no_reference_models_in_pixels(evaluate, run, capsys):
    words = ["--norm", "L0pixel", "--data", "fashion-mnist", "--samples", "2", "--out", "runs/F3"]
    assert evaluate("zoo:F3", *words) == 0
    assert "no DOI" not in capsys.readouterr().out
    assert run("rank", "runs/F3", "--reference", "fashion-mnist") == 2
    assert "no reference models in L0pixel: expected one of L0, L1" in capsys.readouterr().err


def test_criteria_are_evaluated_shown_and_verified(folder, evaluate, run, capsys):
    words = ["--norm", "L2", "--target", "3", "--out", "runs/net"]
    assert evaluate("nets.py:net", *words) == 0
    assert "success: taken for class 3" in capsys.readouterr().out
    page = (folder / "runs/net/report.html").read_text(encoding="utf-8")
    assert "success: taken for class 3" in page
    checked = ["verify", "runs/net", "--model", "nets.py:net", "--data", "npz:data.npz"]
    assert run(*checked, "--target", "3") == 0
    assert run(*checked, "--target", "4") == 2
    assert "is a record of the criterion targeted-3, not of targeted-4" in capsys.readouterr().err
    assert run(*checked) == 2
    message = "expected them too, as in criterion=Targeted(3), or --target 3"
    assert message in capsys.readouterr().err
    assert evaluate("nets.py:net", "--norm", "L2", "--out", "runs/net") == 2
    assert "criterion" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_every_class_top_k_and_rejection_on_the_command_line(evaluate, capsys):
    options = [("--target", "each:10"), ("--top-k", "2"), ("--reject-class", "9")]
    for number, words in enumerate(options):
        data = ["--norm", "L2", "--samples", "2", "--out", f"runs/{number}"]
        assert evaluate("nets.py:net", *words, *data) == 0
    out = capsys.readouterr().out
    assert "18 samples" in out
    assert "success: label not among the 2 likeliest classes" in out
    assert "success: misclassified and not rejected" in out


@pytest.mark.usefixtures("folder")
def test_traces_follow_a_criterion(run, capsys):
    words = ["nets.py:net", "--data", "npz:data.npz", "--norm", "L2", "--queries", "50"]
    assert run("trace", *words, "--runs", "fmn", "--top-k", "2", "--workers", "0") == 0
    assert run("trace", *words, "--runs", "fmn", "--workers", "0") == 2
    assert "criterion" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_criteria_that_make_no_sense_are_refused(evaluate, capsys):
    assert evaluate("nets.py:net", "--target", "cat") == 2
    message = "--target is 'cat': expected the number of a class, such as 3, or each:10"
    assert message in capsys.readouterr().err
    assert evaluate("nets.py:net", "--target", "3", "--top-k", "2") == 2
    assert "--target, --top-k and --reject-class exclude each other" in capsys.readouterr().err
    assert evaluate("nets.py:net", "--top-k", "10") == 2
    assert "the label is always among the 10 likeliest" in capsys.readouterr().err


def test_domains_are_evaluated_shown_and_verified(folder, evaluate, run, capsys):
    rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    np.savez("rows.npz", images=rows, labels=np.zeros(6, dtype=np.int64))
    np.savez("domain.npz", lower=-9.0, upper=[9.0, 9, 9, 5], changeable=[1, 0, 1, 1])
    words = ["--data", "npz:rows.npz", "--norm", "L0,L2", "--domain", "domain.npz"]
    assert evaluate("nets.py:rows", *words, "--out", "runs/rows") == 0
    text = "in a box per feature between -9 and 9 with 3 of 4 features changeable"
    assert text in capsys.readouterr().out
    assert text in (folder / "runs/rows/report.html").read_text(encoding="utf-8")
    checked = ["verify", "runs/rows", "--model", "nets.py:rows", "--data", "npz:rows.npz"]
    assert run(*checked) == 0
    assert run(*checked, "--domain", "domain.npz") == 0
    capsys.readouterr()
    np.savez("domain.npz", lower=-9.0, upper=8.0)
    assert run(*checked, "--domain", "domain.npz") == 2
    assert "is a record of the domain a box per feature" in capsys.readouterr().err
    assert evaluate("nets.py:rows", *words, "--out", "runs/rows") == 2
    assert "another domain" in capsys.readouterr().err
    assert evaluate("nets.py:rows", "--data", "npz:rows.npz", "--out", "runs/other") == 2
    assert "expected (n, h, w, channels)" in capsys.readouterr().err
    assert evaluate("nets.py:net", "--domain", "none.npz", "--out", "runs/other") == 2
    assert "none.npz does not exist: expected a file of np.savez" in capsys.readouterr().err
