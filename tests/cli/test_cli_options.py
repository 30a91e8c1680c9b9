"""Options: what they mean, that each is explained, and that none is taken and then ignored."""

import re
import subprocess
import sys
from inspect import getdoc
from types import SimpleNamespace

import pytest
import torch
from cyclopts import App

from advfrontier import Evaluation
from advfrontier.cli import options
from advfrontier.cli.app import COMMANDS, app
from advfrontier.cli.options import Budget, Machine, Workers, norms
from advfrontier.errors import FrontierError
from advfrontier.record import Terms


def test_norms():
    assert norms("all") == ("L0", "L1", "L2", "Linf")
    assert norms("inf,2,linf") == ("Linf", "L2")


def test_a_budget_is_one_of_three():
    assert Budget().chosen() is None
    assert [
        Budget("8k").chosen(),
        Budget(queries=70).chosen(),
        Budget(ensemble="a.toml").chosen(),
    ] == [
        "8k",
        70,
        "a.toml",
    ]
    with pytest.raises(
        FrontierError, match=r"--tier and --ensemble were given together: expected one of them"
    ):
        Budget("4k", ensemble="a.toml").chosen()


def test_workers_on_a_cpu_fill_the_cores(monkeypatch):
    monkeypatch.setattr(options, "cores", lambda: 8)
    assert Machine().resolved() == (8, 1)
    assert Machine(threads=3).resolved() == (2, 3)
    assert Machine(threads=8).resolved() == (
        0,
        8,
    )  # one worker would only be this process once more
    assert Machine(ray="auto").resolved() == (0, 1)  # a cluster knows its slots
    assert Machine(workers=3, threads=2).resolved() == (3, 2)
    assert Machine(workers=0).resolved() == (0, 1)
    monkeypatch.setattr(options, "cores", lambda: 1)
    assert Machine().resolved() == (0, 1)
    with pytest.raises(FrontierError, match="--workers is -1"):
        Machine(workers=-1).resolved()
    with pytest.raises(FrontierError, match="--threads is 0"):
        Machine(threads=0).resolved()


@pytest.mark.parametrize(
    ("device", "gpus", "workers"), [("cuda", 1, 0), ("cuda", 4, 4), ("cuda:1", 4, 0), ("mps", 0, 0)]
)
def test_workers_on_accelerators_are_one_for_each(monkeypatch, device, gpus, workers):
    monkeypatch.setattr(options, "cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert Machine(device=device).resolved() == (workers, 1)
    assert Workers(workers=2).count(device) == 2


def test_a_device_that_is_not_there(folder, run, capsys):
    for device, reason in (("abacus", "Expected one of cpu"), ("cuda:77", r"")):
        assert run("evaluate", "nets.py:net", "-d", "npz:data.npz", "--device", device) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"advfrontier: the device {device} cannot be used here ({reason}")
        assert said.count("\n") == 1


def test_extend_works_as_the_record_says(run, monkeypatch):
    """The workers follow from the device and the threads of the record, not from options it would have to ignore."""
    monkeypatch.setattr(options, "cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("advfrontier.cli.evaluating.find_device", lambda _: None)
    monkeypatch.setattr("advfrontier.cli.evaluating.show_evaluations", lambda *_: None)
    asked = []

    def found(device, threads):
        header = SimpleNamespace(terms=Terms(norm="Linf", device=device, threads=threads))
        extend = lambda far, **more: asked.append((far, more["machine"].workers))  # noqa: E731
        return [SimpleNamespace(norm="Linf", record=SimpleNamespace(header=header), extend=extend)]

    for device, threads in (("cpu", 1), ("cpu", 4), ("cuda", 1), ("mps", 1)):
        monkeypatch.setattr(
            "advfrontier.cli.evaluating.find_evaluations",
            lambda _, d=device, t=threads: found(d, t),
        )
        assert run("extend", "a", "--queries", "200", "--no-report") == 0
    assert asked == [(200, 8), (200, 2), (200, 0), (200, 0)]


@pytest.mark.parametrize("option", [["--device", "cpu"], ["--threads", "7"], ["--batch-size", "3"]])
def test_extend_refuses_what_the_record_decides(folder, run, evaluate, capsys, option):
    assert evaluate("nets.py:net", "-o", "a", "--no-report") == 0
    assert run("extend", "a", "--queries", "200", *option) == 2
    assert f"Unknown option: {option[0]}." in capsys.readouterr().err
    assert Evaluation.load("a/Linf").ensemble.total == 100


def commands(parent):
    for name in parent:
        if name.startswith("-"):
            continue
        command = parent[name]
        if command.default_command is None:
            yield from commands(command)
        else:
            yield command


def test_every_option_is_explained():
    found = list(commands(app))
    assert len(found) == len(COMMANDS) - 2 + 3 + 3  # bench has three commands, the zoo three
    for command in found:
        arguments = command.assemble_argument_collection(parse_docstring=True)
        unexplained = [
            a.name for a in arguments if a.show and not a.children and not a.parameter.help
        ]
        assert unexplained == [], command.name


def test_the_list_of_commands_says_what_each_does():
    for name, (_, summary) in COMMANDS.items():
        command = app[name]
        text = command.help if command.default_command is None else getdoc(command.default_command)
        assert isinstance(command, App)
        assert text.split("\n\n")[0].replace("\n", " ") == summary


QUICK = """
import sys
from advfrontier.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules
"""
INTERRUPTED = """
import sys
from advfrontier.cli import main
class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
main(["evaluate", "zoo:F1"])
"""


def test_help_is_quick():
    subprocess.run([sys.executable, "-c", QUICK], check=True, capture_output=True, timeout=60)  # noqa: S603


def test_an_interruption_in_the_first_second_is_not_a_traceback():
    command = [sys.executable, "-c", INTERRUPTED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (ended.returncode, ended.stderr.count("\n")) == (130, 1)
    assert "the same command goes on" in ended.stderr


def test_a_record_begun_elsewhere_says_which_options_go_on_with_it(
    folder, evaluate, capsys, monkeypatch
):
    words = ["nets.py:net", "--queries", "20", "--out", "runs/x", "--no-report"]
    assert evaluate(*words, "--seed", "7") == 0
    with monkeypatch.context() as here:
        here.setattr(
            "advfrontier.cli.options.find_device", lambda _: torch.device("cuda")
        )  # what `auto` picks
        capsys.readouterr()
        assert evaluate(*words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "another device: cpu, not cuda" in said
    advice = re.search(r"to go on with it, add (--.*) \(in Python", said)[1]
    assert advice == "--seed 7 --batch-size 50 --device cpu"
    assert evaluate(*words, *advice.split()) == 0
