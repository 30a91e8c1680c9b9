"""Options: their meaning, units and conflicts, their help, and that none is ignored."""

import re
import subprocess
import sys
import time
from inspect import getdoc
from types import SimpleNamespace

import pytest
import torch
from cyclopts import App

from advfrontier import Evaluation
from advfrontier.cli.app import COMMANDS, app
from advfrontier.cli.options import Attacks, Budget, Machine, Source, Workers, norms
from advfrontier.errors import FrontierError
from advfrontier.execution import local
from advfrontier.pool import MAX_QUERIES
from advfrontier.record import Terms
from advfrontier.solvers import PUBLISHED


def test_norms_are_read_in_any_spelling():
    assert norms("all") == ("L0", "L1", "L2", "Linf")
    assert norms("inf,2,linf") == ("Linf", "L2")


def test_budget_is_one_of_three_options():
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


def test_max_minutes_counts_minutes(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert Workers(max_minutes=0.5).until == 1030.0  # half a minute
    assert Workers(max_minutes=90).until == 1000.0 + 90 * 60
    assert Workers().until is None
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(
            FrontierError, match=f"--max-minutes is {wrong:g}: expected more than 0"
        ):
            _ = Workers(max_minutes=wrong).until


def test_runs_and_pool_exclude_each_other():
    assert Attacks().chosen() is None
    assert Attacks(runs="fmn, ddn").listed() == ["fmn", "ddn"]
    assert Attacks(pool="extended").listed() == "extended"
    with pytest.raises(FrontierError, match="--runs and --pool were given together: expected one"):
        Attacks(runs="fmn", pool="paper").chosen()


def test_published_solvers_are_used_on_demand():
    assert Attacks().solvers is None
    assert Attacks(published=True).solvers == PUBLISHED


def test_data_is_named_where_the_command_does_not():
    assert Source("npz:a.npz").notice == ""
    assert Source().name == "fashion-mnist"
    assert Source().notice == (
        "data: the embedded images of fashion-mnist, because --data was not given"
    )


def test_samples_are_the_first_or_random_ones():
    whole = Source().load()
    first = Source(samples=5).load()
    drawn = Source(samples=5, sample_seed=1).load()
    assert torch.equal(first.labels, whole.labels[:5])
    assert len(drawn) == 5
    assert not torch.equal(drawn.read(torch.arange(5)), whole.read(torch.arange(5)))


def test_workers_on_a_cpu_fill_the_cores(monkeypatch):
    monkeypatch.setattr(local, "cores", lambda: 8)
    assert Machine().resolved() == (8, 1)
    assert Machine(threads=3).resolved() == (2, 3)
    assert Machine(threads=8).resolved() == (
        0,
        8,
    )  # one worker would only be this process once more
    assert Machine(ray="auto").resolved() == (0, 1)  # a cluster knows its slots
    assert Machine(workers=3, threads=2).resolved() == (3, 2)
    assert Machine(workers=0).resolved() == (0, 1)
    monkeypatch.setattr(local, "cores", lambda: 1)
    assert Machine().resolved() == (0, 1)
    with pytest.raises(FrontierError, match="--workers is -1"):
        Machine(workers=-1).resolved()
    with pytest.raises(FrontierError, match="--threads is 0"):
        Machine(threads=0).resolved()


@pytest.mark.parametrize(
    ("device", "gpus", "workers"), [("cuda", 1, 0), ("cuda", 4, 4), ("cuda:1", 4, 0), ("mps", 0, 0)]
)
def test_workers_on_accelerators_are_one_for_each(monkeypatch, device, gpus, workers):
    monkeypatch.setattr(local, "cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert Machine(device=device).resolved() == (workers, 1)
    assert Workers(workers=2).count(device) == 2


def test_device_that_is_not_available(folder, run, capsys):
    for device, reason in (("abacus", "Expected one of cpu"), ("cuda:77", r"")):
        assert run("evaluate", "nets.py:net", "-d", "npz:data.npz", "--device", device) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"advfrontier: the device {device} cannot be used here ({reason}")
        assert said.count("\n") == 1


def test_extend_takes_workers_for_the_device_of_the_record(run, monkeypatch):
    """The workers follow from the device and the threads of the record, not from options it would
    have to ignore.
    """
    monkeypatch.setattr(local, "cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("advfrontier.engine.find_device", lambda _: None)
    monkeypatch.setattr("advfrontier.cli.output.show_evaluations", lambda *_: None)
    asked = []

    def found(device, threads):
        header = SimpleNamespace(terms=Terms(norm="Linf", device=device, threads=threads))
        extend = lambda far, **more: asked.append((far, more["machine"].workers))  # noqa: E731
        return [SimpleNamespace(norm="Linf", record=SimpleNamespace(header=header), extend=extend)]

    for device, threads in (("cpu", 1), ("cpu", 4), ("cuda", 1), ("mps", 1)):
        monkeypatch.setattr(
            "advfrontier.evaluation.compare.find_evaluations",
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


def paths(parent, *before):
    """Yield the words of every command and subcommand."""
    for name in parent:
        if not name.startswith("-"):
            yield [*before, name]
            if parent[name].default_command is None:
                yield from paths(parent[name], *before, name)


def commands(parent):
    for name in parent:
        if name.startswith("-"):
            continue
        command = parent[name]
        if command.default_command is None:
            yield from commands(command)
        else:
            yield command


SENTENCE_STARTS = re.compile(r"(What|How|Whether|Where|When|Which|Who|A|An|Of|If|So|That)\b")


def test_every_option_is_explained_by_a_noun_phrase():
    """Its first word is no question word or preposition, and it ends with a full stop."""
    for command in commands(app):
        for argument in command.assemble_argument_collection(parse_docstring=True):
            if not argument.show or argument.children:
                continue
            text = argument.parameter.help
            assert text, (command.name, argument.name)
            assert not SENTENCE_STARTS.match(text), (command.name, argument.name, text)
            assert text.rstrip().endswith("."), (command.name, argument.name, text)


def test_options_without_a_default_say_what_happens_then():
    command = app["evaluate"]
    unsaid = []
    for argument in command.assemble_argument_collection(parse_docstring=True):
        named = {"--tier", "--queries", "--ensemble", "--runs", "--pool", "--config"}
        if argument.children or argument.name in named or argument.field_info.is_positional_only:
            continue
        default = argument.field_info.default
        if (
            default in {None, argument.field_info.empty}
            and "default:" not in argument.parameter.help
        ):
            unsaid.append(argument.name)
    assert unsaid == []


def test_trace_spends_the_longest_schedule_by_default():
    arguments = app["trace"].assemble_argument_collection(parse_docstring=True)
    (queries,) = [argument for argument in arguments if argument.name == "--queries"]
    assert queries.field_info.default == MAX_QUERIES


def test_every_command_of_the_list_is_there():
    found = list(commands(app))
    assert len(found) == len(COMMANDS) - 2 + 3 + 3  # bench has three commands, the zoo three


def test_summary_of_each_command_is_that_of_the_list():
    for name, (_, summary) in COMMANDS.items():
        command = app[name]
        text = command.help if command.default_command is None else getdoc(command.default_command)
        assert isinstance(command, App)
        assert text.split("\n\n")[0].replace("\n", " ") == summary


HELP = """
import resource, sys
from advfrontier.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code
heavy = {"torch", "scipy", "numpy", "plotly", "matplotlib", "bokeh", "pandas", "jinja2"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
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


@pytest.mark.parametrize("words", [[], *paths(app)], ids=" ".join)
def test_help_imports_nothing_heavy(words):
    """Torch alone takes more than a second, and a reader of the help needs none of them."""
    command = [sys.executable, "-c", HELP, *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    assert done.stderr == "[]\n"
    assert done.stdout.startswith("Usage: advfrontier")


def test_interruption_while_importing_is_one_message():
    command = [sys.executable, "-c", INTERRUPTED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (ended.returncode, ended.stderr.count("\n")) == (130, 1)
    assert "Interrupted. Progress is saved; run the same command to resume." in ended.stderr


def test_record_of_another_device_says_which_options_resume_it(
    folder, evaluate, capsys, monkeypatch
):
    words = ["nets.py:net", "--queries", "20", "--out", "runs/x", "--no-report"]
    assert evaluate(*words, "--seed", "7") == 0
    with monkeypatch.context() as here:
        here.setattr(
            "advfrontier.engine.find_device", lambda _: torch.device("cuda")
        )  # what `auto` picks
        capsys.readouterr()
        assert evaluate(*words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "another device: cpu, not cuda" in said
    advice = re.search(r"add (--.*) \(in Python", said)[1]
    assert advice == "--seed 7 --batch-size 50 --device cpu"
    assert evaluate(*words, *advice.split()) == 0
