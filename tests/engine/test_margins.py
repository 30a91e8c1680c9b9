"""A point counts by the spread of the logits and their rounding, whatever offset they share."""

import numpy as np
import pytest
import torch
from support.models import conv_net, samples, tanh_mlp
from torch import nn

from advfrontier import trace
from advfrontier.engine.margins import margin_to_go, robustly_misclassified, safety, spread

EPS = torch.finfo(torch.float32).eps
OFFSETS = (0.0, 1e4, 1e6)


class Offset(nn.Module):
    def __init__(self, net, offset):
        super().__init__()
        self.net, self.offset = net, offset
        self.eval()

    def forward(self, images):
        return self.net(images) + self.offset


def test_logits_of_both_signs_are_judged_by_their_size():
    z = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(safety(z), 1e-5 * z.abs().amax(1))
    assert torch.equal(safety(z.double()), 1e-12 * z.double().abs().amax(1))


@pytest.mark.parametrize("offset", [-1e6, -1e3, 30.0, 1e3, 1e4, 1e6])
def test_an_offset_adds_its_rounding_and_no_more(offset):
    z = torch.randn(50, 10, generator=torch.Generator().manual_seed(0)) * 3
    moved = z + offset
    assert (safety(moved) <= 1e-5 * spread(z) * 1.01 + EPS * moved.abs().amax(1)).all()
    assert (safety(moved) >= EPS * moved.abs().amax(1)).all()
    exact = safety(z.double() + offset)
    assert (exact <= 1e-12 * spread(z).double() * 1.01 + 3e-16 * abs(offset)).all()


def test_two_logits_on_the_boundary_are_judged_by_the_clean_image():
    """There they are equal, and their spread says nothing; with opposite logits not even their size
    does.
    """
    clean = spread(torch.tensor([[3.0, -1.0]] * 3))
    z = torch.tensor([[5.0, 5.00002], [5.0, 5.0001], [1.0, 1.00002]])
    assert robustly_misclassified(z, z[:, 0] - z[:, 1], clean).tolist() == [False, True, True]
    assert safety(z, clean)[0] == 1e-5 * 4


def test_how_far_the_margin_has_to_fall_on_a_tie():
    z = torch.tensor([[1.0, 1.0, 0.0], [4.0, 1.0, 0.0]])
    assert margin_to_go(z, torch.tensor([0, 0])).tolist() == pytest.approx([2e-5, 3.0])


@pytest.mark.parametrize("make", [tanh_mlp, conv_net])
@pytest.mark.parametrize("classes", [2, 10])
def test_distances_grow_only_by_the_rounding_of_an_offset(make, classes):
    shape = (3, 4, 4)
    net = make(shape, classes=classes, seed=3)
    net[-1].weight.data *= 8
    images, labels = samples(net, 8, shape, seed=3)
    found = {}
    for offset in OFFSETS:
        traces = trace(
            Offset(net, offset), images, labels, norm="L2", runs=["fmn", "ddn"], queries=200
        )
        found[offset] = traces.frontier()
        assert any("share a large offset" in flag.text for flag in traces.flags) == (offset > 0)
        assert not any("another batch" in flag.text for flag in traces.flags)
    with torch.no_grad():
        ranked = net(images).topk(2, dim=1).values
    gap = (ranked[:, 0] - ranked[:, 1]).numpy()
    for offset in OFFSETS[1:]:
        forced = (
            EPS * 2 * offset / gap
        )  # a margin of two roundings, where the logits fall about evenly
        growth = found[offset] / found[0] - 1
        assert np.median(growth / forced) < 1.5


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_no_success(bad):
    z = torch.tensor([[0.0, 5, 1]]).repeat(4, 1)
    for row in range(3):
        z[row, row] = bad
    gap = z[:, 0] - z[:, 1:].amax(1)
    assert robustly_misclassified(z, gap).tolist() == [False, False, False, True]


def test_success_must_survive_another_batch_layout():
    """A margin below 1e-5 of the largest logit is none in float32, and below 1e-12 in float64."""
    z = torch.tensor([[10.0, 10.00005, -4.0], [10.0, 10.0002, -4.0], [0.0, 2e-5, -1.0]])
    assert robustly_misclassified(z, z[:, 0] - z[:, 1]).tolist() == [False, True, True]
    rows = [[10.0, 10.0 + 5e-12, -4.0], [10.0, 10.0 + 5e-11, -4.0]]
    fine = torch.tensor(rows, dtype=torch.float64)
    assert robustly_misclassified(fine, fine[:, 0] - fine[:, 1]).tolist() == [False, True]
