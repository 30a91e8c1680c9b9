"""Images in float64: the same pictures in float32, or refused with the line that converts them."""

import numpy as np
import pytest
import torch
from torch import nn

from advfrontier import FrontierError, attack, evaluate
from advfrontier.engine.data import as_float32

LEVELS = torch.arange(256, dtype=torch.float64).view(1, 1, 16, 16)
MESSAGE = (
    r"images are float64, and float32, .*would round them.*"
    r"type images\.float\(\) \(of an array images\.astype\('float32'\)\)"
)


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_images_that_float32_holds(dtype):
    images = torch.rand(4, 1, 5, 5).to(dtype).float().to(dtype)
    assert torch.equal(as_float32(images), images.float())
    assert as_float32(images).dtype == torch.float32


def test_pictures_of_8_bits_are_the_same_in_float32():
    pictures = LEVELS / 255
    assert torch.equal(as_float32(pictures), LEVELS.float() / 255)
    assert torch.equal(as_float32(LEVELS * (1 / 255)), LEVELS.float() / 255)


def test_images_that_float32_would_round_are_refused():
    images = LEVELS / 255
    images[0, 0, 3, 3] += 1e-7
    with pytest.raises(FrontierError, match=f"^{MESSAGE}"):
        as_float32(images)
    with pytest.raises(FrontierError, match=f"^npz:a: {MESSAGE}"):
        as_float32(images, "npz:a")


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_evaluate_refuses_to_round(kind):
    images = LEVELS.expand(4, 1, 16, 16) / 255 + 1e-7
    images = images.clamp(0, 1)
    given = images if kind == "tensor" else np.asarray(images)
    labels = net()(images.float()).argmax(1)
    with pytest.raises(FrontierError, match=MESSAGE):
        evaluate(net(), given, labels, norm="L2", ensemble=20)
    assert len(evaluate(net(), images.float(), labels, norm="L2", ensemble=20).distances) == 4


def test_attack_takes_float64_where_the_model_does():
    images = (LEVELS.expand(4, 1, 16, 16) / 255 + 1e-7).clamp(0, 1)
    labels = net(torch.float64)(images).argmax(1)
    points, distances = attack(
        net(torch.float64), images, labels, solver="fmn", norm="L2", queries=100
    )
    assert points.dtype == torch.float64
    exact = (points - images).flatten(1).norm(dim=1)
    assert torch.allclose(distances, exact, rtol=1e-12)
    with pytest.raises(FrontierError, match=MESSAGE):
        attack(net(), images, labels, solver="fmn", norm="L2", queries=100)
