"""A record is of one model: another one is refused, whatever it has in common with the first."""

import os
from pathlib import Path

import pytest
import torch
from record_cases import LARGER, OPTIONS, refused, same
from support.models import SHAPE, conv_net
from torch import nn

from advfrontier import Evaluation, FrontierError, Machine, evaluate
from advfrontier.record import Record
from advfrontier.sources import load_model

NETS = """
import sys
sys.path.insert(0, {tests!r})
import torch
from torch import nn
from support.models import conv_net

def function():
    net = conv_net({shape}, classes=10, seed=5)
    return lambda x: net(x)

def another_function():
    net = conv_net({shape}, classes=10, seed=6)
    return lambda x: net(x)

def unseeded():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 10))

class Scaled(nn.Module):
    def __init__(self, process):
        super().__init__()
        self.net = conv_net({shape}, classes=10, seed=5)
        self.scale = 1.0 if process == {process} else 0.3

    def forward(self, x):
        return self.net(self.scale * x)

def other_elsewhere():
    import os
    return Scaled(os.getpid())

def buffered():
    net = conv_net({shape}, classes=10, seed=5)
    net.register_buffer("mean", torch.tensor(0.1, dtype=torch.float64))
    return net

class Exhausted(Scaled):
    def forward(self, x):
        if self.scale != 1.0:
            raise RuntimeError("out of memory")
        return super().forward(x)

def exhausted():
    import os
    return Exhausted(os.getpid())
"""


@pytest.fixture
def nets(tmp_path):
    tests = str(Path(__file__).parent.parent)
    (tmp_path / "nets.py").write_text(NETS.format(tests=tests, shape=SHAPE, process=os.getpid()))
    return f"{tmp_path}/nets.py"


def test_a_function_is_recognised_by_its_answers(problem, tmp_path):
    model, images, labels = problem
    other = conv_net(SHAPE, classes=10, seed=6)

    def wrapped(inner):
        return lambda x: inner(x) + 0

    one = evaluate(wrapped(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    two = evaluate(wrapped(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    same(one, two)
    assert one.counts["checks"] == 8 * (2 + 36) + 4 + 8 * 14
    assert (
        two.counts["checks"] == one.counts["checks"] + 8
    )  # looked at again when the record was opened
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(wrapped(other), images, labels, out=tmp_path / "a" / "L2", **OPTIONS),
    )


def test_a_function_that_a_source_names_is_recognised_too(problem, nets, tmp_path):
    _, images, labels = problem
    one = evaluate(f"{nets}:function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    same(one, evaluate(f"{nets}:function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS))
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(
            f"{nets}:another_function", images, labels, out=tmp_path / "a" / "L2", **OPTIONS
        ),
    )


class Scaled(nn.Module):
    def __init__(self, net, scale):
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x):
        return self.net(self.scale * x)


def test_a_module_that_does_something_else_with_the_same_numbers_is_refused(problem, tmp_path):
    model, images, labels = problem
    evaluate(Scaled(model, 1.0), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: evaluate(Scaled(model, 0.3), images, labels, out=tmp_path / "a" / "L2", **OPTIONS),
    )
    refused(
        "another model, which answers differently",
        tmp_path / "a" / "L2",
        lambda: Evaluation.load(tmp_path / "a" / "L2").extend(LARGER, model=Scaled(model, 0.3)),
    )


def test_double_precision_goes_on(problem, tmp_path):
    _, images, labels = problem
    double = conv_net(SHAPE, classes=10, seed=5).double()
    options = {"out": tmp_path / "a" / "L2", "machine": Machine(dtype="float64"), **OPTIONS}
    one = evaluate(lambda x: double(x) + 0, images, labels, **options)
    two = evaluate(lambda x: double(x) + 0, images, labels, **options)
    assert one.adversarials.dtype == torch.float64
    same(one, two)


class Noisy(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x) + 3 * torch.randn(len(x), 10)


def test_a_random_model_can_be_gone_on_with(problem, tmp_path):
    model, images, labels = problem
    torch.manual_seed(0)
    evaluate(Noisy(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS)
    assert evaluate(Noisy(model), images, labels, out=tmp_path / "a" / "L2", **OPTIONS).finished


@pytest.mark.parametrize("factory", ["unseeded", "other_elsewhere"])
def test_workers_that_load_another_model_say_so(problem, nets, tmp_path, factory):
    _, images, _ = problem
    torch.manual_seed(0)
    labels = load_model(f"{nets}:{factory}")(images).argmax(1)
    torch.manual_seed(0)
    message = (
        rf"2 of 2 units failed.*nets.py:{factory} is another model in this worker "
        r"process.*set its seed"
    )
    with pytest.raises(FrontierError, match=message):
        evaluate(
            f"{nets}:{factory}",
            images,
            labels,
            out=tmp_path / "a" / "L2",
            machine=Machine(workers=1, threads=1),
            **OPTIONS,
        )
    assert Record.find(tmp_path / "a" / "L2").units() == {}


def test_a_number_of_another_precision_is_no_other_model_in_a_worker(problem, nets, tmp_path):
    options = {**OPTIONS, "machine": Machine(threads=1, workers=1)}
    found = evaluate(f"{nets}:buffered", *problem[1:], out=tmp_path / "a", **options)
    assert (found.distances >= 0).all()


def test_a_worker_says_what_fails_there(problem, nets, tmp_path):
    options = {**OPTIONS, "machine": Machine(threads=1, workers=1)}
    with pytest.raises(FrontierError, match="out of memory"):
        evaluate(f"{nets}:exhausted", *problem[1:], out=tmp_path / "a", **options)


def test_the_same_contents_in_another_shape_are_other_images(problem):
    model, images, labels = problem
    first = evaluate(model, images, labels, **OPTIONS)
    flat = nn.Sequential(nn.Unflatten(1, images.shape[1:]), model)
    evaluate(flat, images.flatten(1), labels, **OPTIONS)
    assert first.images().shape == images.shape
    assert first.extend(LARGER).finished
