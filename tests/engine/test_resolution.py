"""Distances near the resolution of float32, against linear models with known distances."""

import numpy as np
import pytest
import torch
from torch import nn

from advfrontier import evaluate
from advfrontier.engine.resolution import PERCENT, possible_excess, resolution_flag
from advfrontier.flags import Kind

SHAPE = (1, 8, 8)
DUAL = {"Linf": 1, "L2": 2, "L1": torch.inf}  # the norm that measures gradients


def gaps(weight, images, labels, norm):
    """Return the exact distance to the nearest boundary of a linear model, and of which class."""
    logits = images.flatten(1) @ weight.T
    slopes = (weight[labels][:, None] - weight[None]).norm(DUAL[norm], dim=2)
    distances = (logits.gather(1, labels[:, None]) - logits) / slopes.clamp(min=1e-30)
    distances.scatter_(1, labels[:, None], torch.inf)
    return distances.min(1)


def near_the_boundary(norm, distance, dtype=torch.float32, count=4):
    """Return a linear model, images at about this distance with labels, and the exact one."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(10, 64, generator=generator).double() / 4
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)).to(dtype)
    with torch.no_grad():
        net[1].weight.copy_(weight)
    images = torch.rand(count, 64, generator=generator).double() * 0.5 + 0.25
    labels = (images @ weight.T).argmax(1)
    for _ in range(3):  # along the gradient to the nearest boundary, and about so far before it
        found, other = gaps(weight, images, labels, norm)
        gradient = weight[labels] - weight[other]
        excess = (found - distance) * gradient.norm(DUAL[norm], dim=1)
        images -= excess[:, None] * gradient / gradient.square().sum(1, keepdim=True)
    images = images.float()
    exact = gaps(weight, images.double(), labels, norm).values
    assert (exact > 0).all()
    return net, images.view(-1, *SHAPE), labels, exact.numpy()


def evaluated(norm, distance, dtype=torch.float32):
    net, images, labels, exact = near_the_boundary(norm, distance, dtype)
    found = evaluate(net, images, labels, norm=norm, ensemble="4k", batch_size=8)
    assert (found.distances >= exact * (1 - 1e-5)).all()
    return found, found.distances / exact - 1


def coarse(found):
    return [flag.text for flag in found.flags if flag.kind is Kind.RESOLUTION]


@pytest.mark.parametrize(("norm", "distance"), [("Linf", 1e-5), ("L2", 1e-4), ("L1", 1e-4)])
def test_distances_that_read_too_large_are_flagged(norm, distance):
    found, excess = evaluated(norm, distance)
    assert excess.max() > PERCENT
    (text,) = coarse(found)
    assert text.startswith("4 of 4 distances are near the resolution of float32")
    assert text.endswith("model.double() resolves smaller ones")


def test_larger_distances_are_not():
    found, excess = evaluated("L2", 1e-2)
    assert excess.max() < PERCENT
    assert coarse(found) == []


def test_double_precision_resolves_them():
    found, excess = evaluated("L2", 1e-4, torch.float64)
    assert excess.max() < PERCENT
    assert coarse(found) == []


def test_counts_are_exact():
    logits = torch.tensor([[1.0, 1.0 - 1e-6]])
    excess = possible_excess(logits, torch.tensor([0]), np.array([3.0]), norm="L0", shape=SHAPE)
    assert excess.tolist() == [0.0]


def test_samples_without_a_distance_do_not_count():
    logits = torch.tensor([[1.0, 1.0 - 1e-6]] * 2)
    labels = torch.tensor([0, 1])
    excess = possible_excess(logits, labels, np.array([np.inf, 0.0]), norm="L2", shape=SHAPE)
    assert excess.tolist() == [0.0, 0.0]


def test_excess_by_hand():
    """A margin of 1e-3 of the spread needs 1e-5 of it twice, and 64 values are rounded by 2^-25."""
    logits = torch.tensor([[1.0, 0.999, 0.0]])
    excess = possible_excess(logits, torch.tensor([0]), np.array([1e-4]), norm="L2", shape=SHAPE)
    assert excess[0] == pytest.approx(2e-5 / 1e-3 + 8 * 2.0**-25 / 1e-4, rel=1e-3)


def test_a_few_samples_are_no_reason_for_a_flag():
    excess = np.zeros(200)
    excess[:2] = 0.5
    assert resolution_flag(excess, 200, torch.float32) is None
    excess[2] = 0.02
    flag = resolution_flag(excess, 200, torch.float32)
    assert flag.kind is Kind.RESOLUTION
    assert not flag.doubtful
    assert "3 of 200 distances" in flag.text
    assert "up to 50%" in flag.text
