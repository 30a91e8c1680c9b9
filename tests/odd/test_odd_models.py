"""A classifier of any kind is evaluated rightly, flagged, or refused in one sentence; never
overrated in silence.
"""

import re
from functools import cache

import numpy as np
import pytest
import torch
from odd_models import FLAGGED, IMAGES, LABELS, NET, REFUSED, RIGHT, Made, int8, scripted
from torch import nn

from advfrontier import FrontierError, Machine, trace

# TorchScript and quantised tensors are on their way out of PyTorch, and still in use.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered.*:UserWarning"),
]


def distances(model, run="fmn", **options):
    return trace(model, IMAGES, LABELS, norm="Linf", runs=[run], queries=60, **options)


@cache
def honest(run):
    traces = distances(NET, run)
    assert np.isfinite(traces.frontier()).all()
    return traces


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    odd = RIGHT[name]
    traces = distances(odd.make(), odd.run)
    assert traces.flags == ()
    assert np.allclose(traces.frontier(), honest(odd.run).frontier(), rtol=0.01)


@pytest.mark.parametrize("name", FLAGGED)
def test_flagged(name):
    odd = FLAGGED[name]
    traces = distances(odd.make(), odd.run)
    assert [flag for flag in traces.flags if re.search(odd.flagged, flag.text)]


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    odd = REFUSED[name]
    with pytest.raises(FrontierError, match=odd.refused) as caught:
        distances(odd.make(), odd.run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.float16)],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_the_mode_of_the_caller_does_not_matter(mode):
    model = Made(lambda net, x: net(x))
    with mode:
        images = IMAGES + 0  # made in that mode
        traces = trace(model, images, LABELS + 0, norm="Linf", runs=["fmn"], queries=60)
    assert traces.flags == ()
    assert np.array_equal(traces.distances, honest("fmn").distances)


def test_int8_layers_can_be_attacked_without_gradients():
    """Their scale is that of the batch."""
    traces = distances(int8(), "square_min")
    assert [flag for flag in traces.flags if "other images of the batch" in flag.text] == list(
        traces.flags
    )
    assert np.allclose(traces.frontier(), honest("square_min").frontier(), rtol=0.5)


def test_pixels_rounded_to_8_bits_are_no_reason_for_doubt():
    levels = Made(lambda net, x: net(x + ((x * 255).round() / 255 - x).detach()))
    images = (IMAGES * 255).round() / 255
    assert trace(levels, images, LABELS, norm="Linf", runs=["fmn"], queries=60).flags == ()


def test_an_offset_is_no_matter_in_float64():
    traces = distances(Made(lambda net, x: net(x.double()) + 1e5, NET.double()))
    NET.float()
    assert traces.flags == ()
    assert np.allclose(traces.frontier(), honest("fmn").frontier(), rtol=0.01)


@pytest.mark.parametrize("train", [False, True])
def test_scripted_models_are_put_back_as_they_were(train):
    model = scripted(train=train)
    for parameter in model.parameters():
        parameter.requires_grad = True
    distances(model)
    assert {module.training for module in model.modules()} == {train}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_model_that_cannot_be_entered_is_put_back_too():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Linear(4, 4, device="meta")).train()
    with pytest.raises(FrontierError, match=r"2\.weight is on the device meta"):
        distances(model)
    assert model.training
    assert model[1].weight.requires_grad


def test_a_failure_in_the_middle_is_named_too():
    calls = iter(range(12))
    with pytest.raises(FrontierError, match=r"cannot take images .*StopIteration"):
        distances(Made(lambda net, x: net(x) + 0 * next(calls)))


def test_whoever_presses_control_c_is_heard():
    def stop(_net, _x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        distances(Made(stop))


def test_clean_images_without_logits_are_refused_wherever_they_are():
    images = torch.cat([IMAGES] * 20)
    images[77] = 1.0
    model = Made(
        lambda net, x: net(x) + torch.where((x.flatten(1) == 1).all(1), torch.nan, 0.0)[:, None]
    )
    with pytest.raises(
        FrontierError, match=r"not finite on clean images \(sample 77 is the first\)"
    ):
        trace(model, images, LABELS.repeat(20), norm="Linf", runs=["fmn"], queries=10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_attacks_compute_in_float32_or_float64(dtype):
    with pytest.raises(
        FrontierError, match=f"dtype is {str(dtype)[6:]}: expected float32 or float64"
    ):
        distances(NET, machine=Machine(dtype=dtype))
