"""`load_model`, `load_data` and `runs_code`: what is common to all sources."""

import pickle

import pytest
import torch

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.sources import load_data, load_model, runs_code


def test_load_data_unknown():
    for spec in ("cifar", "mnist:here", "npz", "npz:", "fashion", "fashion-mnist:here"):
        with pytest.raises(
            FrontierError, match="is not a data set: expected fashion-mnist, cifar10:DIR"
        ):
            load_data(spec)


def test_load_data_embedded():
    images, labels = zoo.images_and_labels()
    samples = load_data("fashion-mnist", samples=40)
    assert len(samples) == 40
    assert not torch.equal(load_data("fashion-mnist", samples=40, seed=1).labels, labels[:40])
    rows = torch.tensor([20, 0])
    assert torch.equal(samples.read(rows), images[rows])
    assert torch.equal(samples.labels, labels[:40])
    assert samples.class_names == tuple(zoo.CLASS_NAMES)
    content = pickle.dumps(samples)
    assert len(content) < 2000
    assert torch.equal(pickle.loads(content).read(rows), images[rows])  # noqa: S301


def test_load_model_sets_eval_mode(tmp_path):
    (tmp_path / "dropout.py").write_text("from torch import nn\nmodel = nn.Dropout(0.5).train()\n")
    model = load_model(f"{tmp_path / 'dropout.py'}:model")
    assert not model.training
    assert torch.equal(model(torch.ones(9)), torch.ones(9))


def test_load_model_of_the_zoo():
    model = load_model("zoo:f17")
    images = zoo.images_and_labels()[0]
    assert not model.training
    assert torch.equal(model(images[:9]), zoo.load("F17")(images[:9]))
    with pytest.raises(FrontierError, match="the zoo has no model 'F99'"):
        load_model("zoo:F99")


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ("mine.py:factory", True),
        ("mine.py", True),
        ("package.module:factory", True),
        ("./zoo:F3", True),
        ("ZOO:F3", True),
        ("nothing", True),
        ("", True),
        ("zoo:F3", False),
        ("robustbench:cifar10/Linf/Name", False),
        ("timm:resnet18?checkpoint=file.pth", False),
        ("hf:org/name", False),
        ("onnx:net.onnx", False),
        ("net.onnx", False),
        ("folder/net.ONNX", False),
        ("mine.onnx:factory", True),
        ("export:net.pt2", True),
    ],
)
def test_runs_code(spec, answer):
    assert runs_code(spec) is answer
