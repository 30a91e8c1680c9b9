"""The example that asks the published results questions, on tables written by hand and on the real
ones.
"""

import runpy
import sys
from pathlib import Path

import pytest
from bench_tiny import rows_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "results.py"


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *map(str, words)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


def test_example_names_the_runs_that_are_nearest_alone(monkeypatch, capsys, tmp_path, results_of):
    found = {("greedy", 40): [2, 2, 2], ("fmn", 80): [1, 1, 2], ("fmn:restart1", 80): [2, 2, 1]}
    results_of(rows_of("L2", "m", "train", found)).save(tmp_path)
    said = run(monkeypatch, capsys, tmp_path)
    lines = said.partition("most often the only nearest in L2\n")[2].splitlines()
    assert lines[2].split()[:2] == ["fmn", "2"]
    assert lines[3].split()[:2] == ["fmn:restart1", "1"]
    rises = said.partition("without parts of the pool (%)\n")[2]
    assert "restarts  33.33" in rises
    assert "black-box" not in rises


@pytest.mark.slow  # ten seconds
def test_example_reads_the_published_results(monkeypatch, capsys):
    said = run(monkeypatch, capsys)
    assert said.count("Runs that are most often the only nearest in") == 4
    assert "sparse_min" in said
