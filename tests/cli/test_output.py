"""What commands print: JSON and nothing else, exports, and streams of other encodings."""

import json
import sys
from io import BytesIO, TextIOWrapper

import pytest

from advfrontier import Evaluation
from advfrontier.cli.output import LONG, end_with, figures_first
from advfrontier.evaluation.gate import Ruling


def test_json_has_figures_first_and_ids_last():
    facts = {"model": "m", "samples": ["a"], "distances": [1.0], "aurec": 2.0, "curve": []}
    assert list(figures_first(facts)) == ["model", "aurec", "curve", "distances", "samples"]
    assert figures_first(facts) == facts
    assert LONG[-1] == "samples"


def test_json_is_all_that_is_printed(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "-o", "a", "--json", "--export", "csv") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["robust"]
    assert list(found)[-5:] == list(LONG)
    assert (folder / "a" / "report.html").exists()
    assert (folder / "a" / "Linf.csv").exists()


def test_rulings_decide_the_exit_code(capsys):
    end_with([Ruling(holds=True, text="a holds")])
    with pytest.raises(SystemExit, match="1"):
        end_with([Ruling(holds=True, text="a holds"), Ruling(holds=False, text="b fails")])
    assert capsys.readouterr().err == "a holds\na holds\nb fails\n"


def test_first_line_names_the_data_that_were_not_asked_for(folder, run, capsys):
    words = ["zoo:F5", "--samples", "3", "--queries", "20", "--workers", "0", "--no-report"]
    assert run("evaluate", *words, "-o", "a") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data: the embedded images of fashion-mnist, because --data was not given"
    assert "zoo:F5 on fashion-mnist, 3 samples" in lines[1]
    assert run("evaluate", *words, "-o", "b", "--data", "fashion-mnist") == 0
    assert "zoo:F5 on fashion-mnist, 3 samples" in capsys.readouterr().out.splitlines()[0]


def test_shape_error_names_the_data_that_were_not_asked_for(folder, run, evaluate, capsys):
    assert run("evaluate", "nets.py:net", "--queries", "20", "--workers", "0") == 2
    message = capsys.readouterr().err
    assert "the model cannot take images of shape" in message
    assert "The images are those of fashion-mnist (1×28×28, 10 classes)" in message
    assert "type --data SOURCE to use others" in message
    assert evaluate("nets.py:flat") == 2
    assert "fashion-mnist" not in capsys.readouterr().err


def test_pipe_without_greek_letters_gets_the_rest(folder, evaluate, monkeypatch):
    pipe = TextIOWrapper(BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", pipe)
    assert evaluate("nets.py:net", "-o", "a", "--radii", "0.1") == 0
    assert (folder / "a" / "report.html").exists()
    pipe.flush()
    assert b"at ?" in pipe.buffer.getvalue()


def test_report_of_somebody_else_is_refused_before_anything_is_extended(
    folder, evaluate, run, capsys
):
    assert evaluate("nets.py:net", "-o", "a", "--no-report") == 0
    (folder / "a" / "report.html").write_text("mine")
    assert run("extend", "a", "--model", "nets.py:net", "--queries", "200", "--workers", "0") == 2
    assert "was not written by advfrontier" in capsys.readouterr().err
    assert Evaluation.load("a/Linf").ensemble.total == 100


def test_arguments_that_are_not_text_are_refused(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "-o", "a", "--name", "\udcff") == 2
    assert "an argument is not UTF-8" in capsys.readouterr().err


def test_card_is_written_and_named(folder, evaluate, capsys):
    assert evaluate("nets.py:net", "-o", "a", "--export", "card", "--no-report") == 0
    assert "\ncard: a/Linf.json\n" in capsys.readouterr().out
