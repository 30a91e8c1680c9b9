"""Options in a file, and completion in shells."""

import runpy
import sys

import pytest

from advfrontier import Evaluation
from advfrontier.cli.app import app
from advfrontier.evaluation.trace import load_traces

FILE = """
model = "nets.py:net"
data = "npz:data.npz"
norm = ["L2", "Linf"]
queries = 100
out = "from-file"
report = false
workers = 0
batch_size = 4
require = ["L2@0>=0.5"]
"""


@pytest.fixture
def config(folder):
    def write(text):
        (folder / "mine.toml").write_text(text)

    write(FILE)
    return write


def test_file_holds_all_options(config, run, capsys):
    assert run("evaluate", "--config", "mine.toml") == 0
    found = Evaluation.load("from-file/L2")
    assert (found.ensemble.total, found.record.header.terms.shard) == (100, 4)
    assert found.commands == ("advfrontier evaluate --config mine.toml",)
    assert Evaluation.load("from-file/Linf").model == "nets.py:net"
    assert "L2@0>=0.5 holds" in capsys.readouterr().err


def test_command_line_overrides_the_file(config, folder, run):
    words = [
        "nets.py:weaker",
        "--norm",
        "L2",
        "--tier",
        "200",
        "-o",
        "typed",
        "--samples",
        "5",
        "--config",
        "mine.toml",
    ]
    assert run("evaluate", *words) == 0
    found = Evaluation.load("typed")  # the only norm
    assert (found.model, found.ensemble.total, len(found.samples)) == ("nets.py:weaker", 200, 5)
    assert not (folder / "from-file").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "norms = 'L2'",
            "mine.toml: unknown key 'norms': expected one of batch-size, data, data-name, ",
        ),
        ("config = 'other.toml'", "unknown key 'config'"),
        ("[evaluate]\nnorm = 'L2'", "unknown key 'evaluate'"),
        (
            "no-report = true",
            "unknown key 'no-report': expected one of",
        ),  # in a file it is report = false
        ("norm = {a = 1}", "mine.toml: norm is a table: expected a value"),
        ("norm = ", "mine.toml: not TOML"),
        ("norm = 'L7'", "unknown norm 'L7'"),
        ("seed = 'many'", "seed"),
    ],
)
def test_mistakes_in_a_file(config, run, capsys, text, words):
    config(text)
    assert (
        run(
            "evaluate",
            "nets.py:net",
            "-d",
            "npz:data.npz",
            "--config",
            "mine.toml",
            "--workers",
            "0",
        )
        == 2
    )
    printed = capsys.readouterr()
    assert words in printed.err + printed.out


def test_file_that_is_not_there(folder, run, capsys):
    assert run("evaluate", "--config", "gone.toml") == 2
    assert "gone.toml: cannot be read (No such file or directory)" in capsys.readouterr().err


def test_other_commands_take_one_too(config, run):
    config("data = 'npz:data.npz'\nnorm = 'L2'\nruns = 'fmn'\nqueries = 50\nworkers = 0\n")
    assert run("trace", "nets.py:net", "--config", "mine.toml", "-o", "t") == 0


def test_list_stands_for_an_option_that_is_repeated(config, folder, run):
    config(
        "models = ['nets.py:net', 'nets.py:weaker']\ndata = 'npz:data.npz'\nnorm = 'L2'\nruns = "
        "['fmn', 'ddn']\n"
        "queries = 20\nworkers = 0\n"
    )
    assert run("trace", "--config", "mine.toml", "-o", "t") == 0
    assert sorted(path.name for path in (folder / "t").iterdir()) == [
        "nets.py+net",
        "nets.py+weaker",
    ]
    assert load_traces("t/nets.py+net/L2").runs == ("fmn", "ddn")


def test_typed_ensemble_overrides_runs_in_the_file(config, run, capsys):
    config("data = 'npz:data.npz'\nnorm = 'L2'\nruns = 'fmn'\nworkers = 0\nreport = false\n")
    words = ("evaluate", "nets.py:net", "--config", "mine.toml", "--out", "typed")
    assert run(*words, "--ensemble", "nobody-4k") == 2
    assert "nobody-4k" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell):
    script = app.generate_completion(shell=shell)
    assert all(word in script for word in ("evaluate", "verify", "max-minutes", "require"))


def test_completion_is_installed_where_the_shell_looks(tmp_path, monkeypatch):
    """As `python -m advfrontier` does it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["advfrontier", "--install-completion", "--shell", "bash"])
    runpy.run_module("advfrontier", run_name="__main__")
    assert (
        "evaluate"
        in (tmp_path / ".local/share/bash-completion/completions/advfrontier").read_text()
    )
