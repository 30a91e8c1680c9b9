"""The model inside an oracle: its modes, its precision, its memory format, and how it is put
back.
"""

import numpy as np
import pytest
import torch
from support.models import Answering, conv_net, samples, tanh_mlp
from torch import nn

from advfrontier import FrontierError, attack, evaluate, trace
from advfrontier.engine import Oracle, find_device, own_device, own_dtype
from advfrontier.engine.oracle import half_precision, logits_of
from advfrontier.flags import Kind

SHAPE = (3, 8, 8)
NORMS = ("L0", "L1", "L2", "Linf")


class Modes(nn.Module):
    """Modules in several modes, parameters of which some are frozen; fails after so many calls."""

    def __init__(self, calls=10**9):
        super().__init__()
        self.net, self.drop = tanh_mlp(hidden=16, seed=3), nn.Dropout(0.5)
        self.calls = calls
        self.train()
        self.net[2].eval()
        self.net[1].weight.requires_grad = False

    def forward(self, images):
        assert not self.drop.training
        assert not any(parameter.requires_grad for parameter in self.parameters())
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("out of memory")
        return self.drop(self.net(images))

    def condition(self):
        modes = {name: module.training for name, module in self.named_modules()}
        return modes, {name: parameter.requires_grad for name, parameter in self.named_parameters()}


@pytest.mark.parametrize("calls", [0, 3, 9, 10**9])
def test_model_is_put_back_as_it_was(calls):
    model = Modes(calls)
    images, labels = samples(tanh_mlp(hidden=16, seed=3), 5, seed=3)
    before = model.condition()
    assert len(set(before[0].values())) == len(set(before[1].values())) == 2
    options = {"norm": "L2", "runs": ["fmn"], "queries": 50}
    if calls < 100:
        with pytest.raises((RuntimeError, FrontierError), match="out of memory"):
            trace(model, images, labels, **options)
    else:
        trace(model, images, labels, **options)
    assert model.condition() == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_no_grad_mode_of_the_caller_changes_no_bit():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 5, seed=3)
    options = {"norm": "L2", "runs": ["fmn", "alma:target1"], "queries": 60}
    expected = trace(model, images, labels, **options)
    with torch.no_grad():
        traces = trace(model, images, labels, **options)
    assert np.array_equal(traces.distances, expected.distances)
    assert torch.is_grad_enabled()


def test_images_of_the_caller_are_left_alone():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 5, seed=3)
    copy, runs = images.clone(), ["fmn", "fmn:restart1", "apgd_min-ce"]
    trace(model, images, labels, norm="L2", runs=runs, queries=100)
    assert torch.equal(images, copy)
    assert not images.requires_grad


# Precision


def problem(**changes):
    """Return a convolutional net with images that it classifies by a clear margin."""
    model = conv_net(SHAPE, classes=10, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.25, high=0.75)
    return model.to(**changes), images, labels


@pytest.mark.parametrize("norm", NORMS)
def test_half_precision_model_is_evaluated_near_the_distances_of_the_float32_one(norm):
    """In float16, without casts by the caller; the flag says that its logits are rounded."""
    model, images, labels = problem()
    expected = evaluate(model, images, labels, norm=norm, ensemble="fmn,pdpgd@200")
    half = evaluate(model.half(), images, labels, norm=norm, ensemble="fmn,pdpgd@200")
    assert half.adversarials.dtype == torch.float32
    broken = half.distances > 0
    assert np.isfinite(half.distances).all()
    seen = model(half.adversarials.half()).argmax(1)
    assert (seen != labels).numpy()[broken].all()
    assert 0.7 < np.median(half.distances / expected.distances) < 1.5
    assert Kind.PRECISION in {flag.kind for flag in half.flags}


def test_half_precision_is_the_models_own():
    model, _, _ = problem()
    assert half_precision(model) is None
    assert half_precision(model.half()) == torch.float16
    assert own_dtype(model) == torch.float32
    assert own_dtype(model.double()) == torch.float64
    assert half_precision(lambda x: x) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channels_last_model_ends_at_the_distances_of_the_plain_one(dtype):
    model, images, labels = problem(dtype=dtype)
    options = {"norm": "L2", "queries": 60}
    expected = attack(model, images, labels, **options)
    model.to(memory_format=torch.channels_last)
    for given in (images, images.to(memory_format=torch.channels_last)):
        found = attack(model, given, labels, **options)
        close = {"rtol": 1e-2 if dtype == torch.float32 else 1e-8, "atol": 0}
        torch.testing.assert_close(found.distances, expected.distances, **close)


# While it traces, torch looks at the gradient of a copy, which pytest turns into an error.
LOOKS_AT_COPIES = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@LOOKS_AT_COPIES
@pytest.mark.parametrize("norm", ["L2", "Linf"])
def test_compiled_model_ends_at_the_distances_of_the_plain_one(norm):
    model, images, labels = problem()
    options = {"norm": norm, "queries": 40}
    expected = attack(model, images, labels, **options)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    found = attack(compiled, images, labels, **options)
    torch.testing.assert_close(found.distances, expected.distances, rtol=1e-5, atol=0)


@LOOKS_AT_COPIES
def test_compiled_model_can_be_evaluated():
    model, images, labels = problem()
    options = {"norm": "Linf", "ensemble": "fmn,square_min@200"}
    expected = evaluate(model, images, labels, **options)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    found = evaluate(compiled, images, labels, **options)
    assert np.allclose(found.distances, expected.distances, rtol=1e-5)


# What a model may return, and where it is


def test_logits_are_found_in_usual_answers():
    z = torch.rand(2, 3)

    class Output:
        logits = z

    for answer in (z, {"logits": z, "loss": 0}, Output(), (z,), [z]):
        assert logits_of(answer) is z


def test_device_and_precision_are_the_models_own():
    model = tanh_mlp(hidden=8)
    assert own_device(model) == torch.device("cpu") == own_device(lambda x: x)
    assert Oracle(model.double()).dtype == torch.float64
    assert find_device("cpu") == torch.device("cpu")
    with pytest.raises(FrontierError, match="the device meta computes no numbers"):
        find_device("meta")
    with pytest.raises(FrontierError, match=r"cannot attack in torch\.float16"):
        Oracle(model, dtype=torch.float16)


def test_failure_in_the_model_is_named_with_what_to_do():
    model = Answering(lambda x: x @ torch.ones(5, 3))
    with Oracle(model) as oracle, pytest.raises(FrontierError, match=r"cannot take images .*mat1"):
        oracle.logits(torch.rand(2, 1, 4, 4))
