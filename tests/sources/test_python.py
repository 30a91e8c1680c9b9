"""Models of the user's own Python: modules, factories, classes and functions."""

import sys

import pytest
import torch
from support.nets import FOLDER, NAMES, needs_nets
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.sources import load_data, load_model

MODULE = """
import functools
import torch
from torch import nn

WIDTH = 5

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, WIDTH)
    def forward(self, x):
        return self.layer(x.flatten(1))

class Wide(Net):
    def __init__(self, width):
        super().__init__()

def factory():
    return Net()

def function():
    return lambda x: x.flatten(1) * 2

def broken():
    raise ValueError("no such weights")

def quits():
    raise SystemExit(0)

def number():
    return 7

def with_arguments(width, depth=2):
    return Net()

class Detector:
    def __call__(self, images):
        return images.flatten(1) + 1

class TwoInputs:
    def __call__(self, images, labels):
        return images

two_inputs = TwoInputs()
instance = Net()
detector = Detector()
bound = functools.partial(with_arguments, 3)
"""
IMAGES = torch.rand(3, 1, 2, 2)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "mymodel.py"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize("name", ["factory", "Net", "instance", "bound"])
def test_load_factory_class_and_instance(module, name):
    model = load_model(f"{module}:{name}")
    assert isinstance(model, nn.Module)
    assert not model.training
    assert model(IMAGES).shape == (3, 5)


def test_load_plain_function(module):
    assert torch.equal(load_model(f"{module}:function")(IMAGES), IMAGES.flatten(1) * 2)
    assert torch.equal(load_model(f"{module}:detector")(IMAGES), IMAGES.flatten(1) + 1)


def test_load_module_of_the_current_folder(module, monkeypatch, tmp_path):
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    assert load_model("mypackage.inner:factory")(IMAGES).shape == (3, 5)


def test_file_can_import_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_model.py").write_text(MODULE)
    (tmp_path / "main.py").write_text("from neighbour_of_model import factory")
    assert load_model(f"{tmp_path / 'main.py'}:factory")(IMAGES).shape == (3, 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{folder}/absent.py:factory", "found nothing at"),
        (
            "{module}:missing",
            r"has no 'missing': expected a factory or a model; it has Net, Wide, factory",
        ),
        ("{module}", "names no factory.*it has Net"),
        ("{module}:broken", "the factory raised ValueError: no such weights"),
        ("{module}:quits", "the factory raised SystemExit"),
        ("{module}:number", "returned int: expected an nn.Module"),
        ("{module}:WIDTH", "is a int: expected a factory"),
        (
            "{module}:with_arguments",
            "needs the arguments width: expected a factory that takes none",
        ),
        ("{module}:Wide", "needs the arguments width"),
        ("{module}:two_inputs", "needs the arguments images, labels"),
        ("no_such_package.models:factory", "no module 'no_such_package'"),
        ("resnet", "is not a model: expected file.py:factory"),
        ("zoo:", "names no model"),
    ],
)
def test_wrong_factory_is_refused(module, spec, message):
    with pytest.raises(FrontierError, match=message):
        load_model(spec.format(folder=module.parent, module=module))


def test_module_that_fails(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(FrontierError, match="raised ZeroDivisionError"):
        load_model(f"{tmp_path / 'bad.py'}:factory")
    (tmp_path / "quits.py").write_text("import sys; sys.exit(0)")
    with pytest.raises(FrontierError, match=r"running .*quits.py raised SystemExit: 0"):
        load_model(f"{tmp_path / 'quits.py'}:factory")
    (tmp_path / "lacking.py").write_text("import a_package_nobody_has")
    with pytest.raises(
        FrontierError, match="needs the module a_package_nobody_has, which is not installed"
    ):
        load_model(f"{tmp_path / 'lacking.py'}:factory")


# What these nets are known to score on the first 1000 test images.
KNOWN = dict(
    zip(NAMES, [0.702, 0.664, 0.693, 0.630, 0.611, 0.915, 0.994, 0.982, 0.956, 0.983], strict=True)
)


@needs_nets
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name.startswith("mnist") else pytest.mark.slow)
        for name in NAMES
    ],
)
def test_real_nets_have_their_known_accuracy(name):
    samples = load_data(
        f"npz:{FOLDER}/{'cifar10' if name.startswith('cifar') else 'mnist'}_test_1000.npz"
    )
    model = load_model(f"{FOLDER}/nets.py:{name}")
    with torch.no_grad():
        predicted = model(samples.read(torch.arange(len(samples)))).argmax(1)
    assert len(samples) == 1000
    assert round(float((predicted == samples.labels).float().mean()), 3) == KNOWN[name]
