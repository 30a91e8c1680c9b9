"""The examples run."""

import runpy
from pathlib import Path

import pytest
import torch

from advfrontier.pool import CATALOGUE

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_example_of_a_solver_runs(capsys):
    try:
        *newton, ddn = run("plugin_solver.py", capsys)
    finally:
        CATALOGUE.pop("newton", None)
    assert [line.split()[0] for line in (*newton, ddn)] == ["newton", "newton:target1", "ddn"]
    assert all(float(line.split()[-1]) < 1.5 * float(ddn.split()[-1]) for line in newton)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # foolbox's
def test_example_of_external_runs_runs(capsys):
    pytest.importorskip(
        "foolbox", reason="a dev dependency: pip install foolbox", exc_type=ImportError
    )
    best, spent = run("external_runs.py", capsys)
    assert "L2DeepFoolAttack" in best
    assert 100 <= int(spent.split()[0]) <= 1000


def test_example_of_a_quick_start_runs(capsys):
    state = torch.get_rng_state()
    lines = run("quickstart.py", capsys)
    torch.set_rng_state(state)
    assert lines[0] == "median distance after 100 300 1000 queries"
    medians = [[float(number) for number in line.split()[1:]] for line in lines[1:5]]
    for first, second, last in medians:
        assert first >= second >= last > 0
    assert lines[-1].startswith("passes through the model: {")
