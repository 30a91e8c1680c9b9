"""First calls of newcomers: each works as typed, or its error says what to type instead."""

import re
import shlex
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from advfrontier import Evaluation, Machine, allocate, evaluate, register, trace, zoo
from advfrontier.cli import main
from advfrontier.errors import FrontierError
from advfrontier.pool import CATALOGUE, SolverFacts
from advfrontier.solvers import FMN

ROOT = Path(__file__).parents[2]
FEW = {"norm": "Linf", "ensemble": 100}


def net(classes=10, *, size=8):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * (size - 2) ** 2, classes)
        ).eval()


MODEL = net()
IMAGES = (torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 255).round() / 255
LABELS = MODEL(IMAGES).argmax(1)


@pytest.fixture(scope="module")
def expected():
    return evaluate(MODEL, IMAGES, LABELS, **FEW).distances


def test_default_precision_of_pytorch_changes_nothing(expected):
    torch.set_default_dtype(torch.float64)
    try:
        assert (evaluate(MODEL, IMAGES, LABELS, **FEW).distances == expected).all()
        assert evaluate(MODEL, IMAGES, LABELS, norm="Linf", ensemble=20, eot=2).shares.min() > 0.5
    finally:
        torch.set_default_dtype(torch.float32)


class Pairs(Dataset):
    """8-bit pictures with the channels last, as image libraries have them."""

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, row):
        return (IMAGES[row] * 255).byte().permute(1, 2, 0).numpy(), int(LABELS[row])


@pytest.mark.parametrize(
    "data",
    [
        (IMAGES, LABELS.tolist()),
        (list(IMAGES), LABELS.numpy()),
        ((IMAGES * 255).byte().permute(0, 2, 3, 1).numpy(), LABELS.tolist()),
        (TensorDataset(IMAGES, LABELS),),
        (Subset(Pairs(), range(4)),),
        (DataLoader(TensorDataset(IMAGES, LABELS), batch_size=3),),
        (DataLoader(Pairs(), batch_size=2),),
    ],
    ids=[
        "tensors and a list",
        "lists",
        "8-bit arrays, channels last",
        "dataset",
        "pictures",
        "loader",
        "its pictures",
    ],
)
def test_data_in_common_forms(data, expected):
    assert (evaluate(MODEL, *data, **FEW).distances == expected).all()


@dataclass
class Output:
    """An answer as Hugging Face's models give it."""

    logits: torch.Tensor
    hidden_states: tuple = ()


@pytest.mark.parametrize(
    "answer",
    [Output, lambda z: OrderedDict(loss=None, logits=z), lambda z: (z,)],
    ids=["object", "dict", "tuple of one"],
)
def test_logits_inside_of_another_object(answer, expected):
    assert (evaluate(lambda x: answer(MODEL(x)), IMAGES, LABELS, **FEW).distances == expected).all()


@pytest.mark.parametrize(
    "machine", [torch.device("cpu"), "cpu", "auto", Machine(torch.device("cpu"), torch.float32)]
)
def test_devices_as_objects_and_by_name(machine, expected):
    found = evaluate(MODEL, IMAGES, LABELS, machine=machine, **FEW)
    assert found.record.header.terms.device == (
        "cpu" if machine != "auto" else found.record.header.terms.device
    )
    assert np.allclose(found.distances, expected, rtol=1e-3)


def test_model_is_attacked_in_its_own_precision(expected):
    found = evaluate(net().double(), IMAGES.double(), LABELS, **FEW)
    assert found.record.header.terms.dtype == "float64"
    assert found.adversarials.dtype == torch.float64
    assert np.allclose(found.distances, expected, rtol=0.05)
    with pytest.raises(
        FrontierError, match=r"parameters are torch\.float32: try model\.double\(\)"
    ):
        evaluate(net(), IMAGES, LABELS, machine=Machine(dtype=torch.float64), **FEW)


@pytest.mark.parametrize("classes", [2, 1000])
def test_two_classes_and_a_thousand(classes):
    model = net(classes)
    found = evaluate(model, IMAGES, model(IMAGES).argmax(1), **FEW)
    assert np.isfinite(found.distances).all()


CELL = """
import torch
from torch import nn
from advfrontier import FrontierError, Machine, evaluate

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(27, 4)
    def forward(self, x):
        return self.layer(x.flatten(1))

model, images = Net(), torch.rand(3, 3, 3, 3)
labels = model(images).argmax(1)
print(evaluate(model, images, labels, norm="L2", ensemble=100))
try:
    evaluate(model, images, labels, norm="L2", ensemble=100, machine=Machine(workers=1))
except FrontierError as error:
    print(error)
"""


def test_cell_of_a_notebook():
    """Code without a file: it works, and worker processes, which cannot import its classes, say
    what to do.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CELL], capture_output=True, text=True, timeout=300, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == "<Evaluation of Net in L2, 3 samples, 100 queries>"
    assert "put the class into a file and import it from there, or use workers=0" in second


def readme_lines():
    """Return the Python blocks and the commands of the README, in order, with fewer queries."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    python = r"```python\n(.*?)```"
    block = r"\n    (advfrontier (?:evaluate|extend|rank) [^\n]*)"
    lines = []
    for found in re.finditer(f"{python}|{block}", text, re.DOTALL):
        if found[1]:
            lines.append(("python", shorter_code(found[1])))
        else:
            lines.append(("command", shorter_command(found[2])))
    return lines


def shorter_code(code):
    """Return a block of Python with 3 samples and 100 queries in place of many."""
    return code.replace('"4k"', "200").replace("[:50]", "[:3]")


def shorter_command(line):
    """Return the words of a command for 3 samples, with 100 queries, or 200 to extend to."""
    line = re.sub(r" --samples \d+", " --samples 3", re.sub(r" --tier \w+", "", line))
    name, *words = shlex.split(line)[1:]
    if name in {"evaluate", "extend"}:
        words += ["--queries", "100" if name == "evaluate" else "200", "--workers", "0"]
    return [name, *words]


def test_readme_lines_work_in_one_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from advfrontier import zoo\ndef factory():\n    return zoo.load('F8')\n"
    )
    images, labels = (tensor[:3].numpy() for tensor in zoo.images_and_labels())
    np.savez("images.npz", images=images, labels=labels)
    commands = []
    for kind, line in readme_lines():
        if kind == "python":
            exec(line, {})  # noqa: S102
            continue
        words = []
        for word in line:
            words += sorted(map(str, Path().glob(word))) if "*" in word else [word]
        main(words)
        commands.append(words[0])
    assert commands == ["evaluate", "extend", "rank"]
    assert {"L2", "Linf", "report.html"} <= {path.name for path in Path("runs/mine").iterdir()}
    assert Path("F3.html").is_file()
    assert Path("board.html").is_file()
    assert Evaluation.load("runs/mine/Linf").ensemble.total == 200
    shown = capsys.readouterr().out
    assert "mine.py:factory on npz:images.npz, 3 samples, at most 200 queries" in shown


@pytest.fixture
def newton(monkeypatch):
    """Return the module of the example; its solver is not in the catalogue afterwards."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import plugin_solver  # noqa: PLC0415

    yield plugin_solver
    CATALOGUE.pop("newton", None)


def test_own_solver_is_registered_traced_and_run_by_workers(newton):
    model = net()
    register(newton.FACTS)
    register(SolverFacts("newton", "plugin_solver:Newton", norms=("L2",)))  # replaces it
    traces = trace(model, IMAGES, LABELS, norm="L2", runs=["newton", "ddn"], queries=100)
    (small,) = allocate(traces, budgets=("100",))
    assert small.total <= 100
    options = {"norm": "L2", "ensemble": "newton@100", "solvers": {"newton": newton.Newton(0.1)}}
    here = evaluate(model, IMAGES, LABELS, machine=Machine(threads=1), **options)
    there = evaluate(model, IMAGES, LABELS, machine=Machine(threads=1, workers=1), **options)
    assert (here.distances == there.distances).all()
    parameters = there.record.header.solvers["newton"]
    assert parameters == {"class": "Newton", "overshoot": "0.1", "retreat": "0.1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (MODEL, (IMAGES - 0.5) / 0.25, LABELS),
            r"normalised, undo it \(images \* std \+ mean\).*Normalised\(model, mean",
        ),
        ((MODEL, IMAGES * 255, LABELS), "divide by 255"),
        ((lambda x: (MODEL(x), x), IMAGES, LABELS), r"lambda images: model\(images\)\[0\]"),
        ((MODEL, IMAGES), r"type the labels behind them, as in \(model, images, labels\)"),
        (
            (MODEL, TensorDataset(IMAGES, LABELS), LABELS),
            "a TensorDataset has its own: leave them out",
        ),
        ((net(), IMAGES[:, 0], LABELS), r"channel axis, give images\[:, None\]"),
        ((MODEL, IMAGES.long(), LABELS), "type images / 255"),
        (
            ("zoo:F1", "fashion-mnist", LABELS),
            "fashion-mnist comes with labels, and others were given beside it",
        ),
        (("zoo:F99", IMAGES, LABELS), "expected one of F1 to F18"),
    ],
)
def test_wrong_inputs_say_what_to_type(arguments, message):
    with pytest.raises(FrontierError, match=message):
        evaluate(*arguments, **FEW)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ensemble": 400.0}, r"ensemble is 400\.0: expected a whole number"),
        ({"ensemble": -4000}, "'-4000' is not a budget"),
        ({"seed": None}, "seed is None: expected a whole number"),
        ({"batch_size": "x"}, "batch_size is 'x': expected a whole number"),
        ({"ensemble": {"fmn": 200}}, r"\{'fmn': 200\} is no ensemble: .* as in Ensemble\.of"),
        ({"ensemble": Path("mine.toml")}, "no ensemble file mine.toml"),
        ({"solvers": {"fnm": FMN()}}, "fnm"),
        (
            {"solvers": {"fmn:restart1": FMN()}},
            "a solver for fmn:restart1: expected one for all runs of the attack",
        ),
        ({"solvers": {"fmn": FMN}}, r"is no solver of fmn: expected one such as FMN\(alpha=1\)"),
    ],
)
def test_wrong_options_say_what_was_expected(given, message):
    with pytest.raises(FrontierError, match=message):
        evaluate(MODEL, IMAGES, LABELS, **(FEW | given))


def test_whole_numbers_of_any_type():
    found = evaluate(MODEL, IMAGES, LABELS, norm="Linf", ensemble=np.int64(100), seed=np.int32(3))
    assert (found.seed, found.ensemble.total) == (3, 100)
