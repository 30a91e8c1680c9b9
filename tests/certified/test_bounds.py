"""Certified radii hold no misclassified point, are exact for linear models, and refuse what they
cannot follow.
"""

import numpy as np
import pytest
import torch
from certified_nets import NETS, images, net
from support.models import linear
from support.oracles import linear_minimum
from torch import nn

from advfrontier.certified import certified_radius
from advfrontier.certified.bounds import Bounds
from advfrontier.certified.network import read_network
from advfrontier.errors import FrontierError
from advfrontier.threat.losses import margin
from advfrontier.threat.norms import make_norm
from advfrontier.threat.random import Draws, sample_keys

NORMS = ("L1", "L2", "Linf")


def smallest_margins(model, x, y, norm, radii):
    """The least margin that random points and gradient descent find inside the balls, in
    float64.
    """
    threat, clean = make_norm(norm, tuple(x.shape[1:])), x.double().flatten(1)
    keys, found = sample_keys(np.arange(len(x), dtype=np.uint64)), []
    for seed in range(4):
        point = threat.random_start(clean, radii, Draws(seed, keys))
        for step in range(30):
            point.requires_grad_()
            gap = margin(model(point.view_as(x)), y)
            found.append(gap.detach())
            (slope,) = torch.autograd.grad(gap.sum(), point)
            if norm == "Linf":
                slope = slope.sign()
            elif norm == "L1":
                slope = slope * (slope.abs() >= slope.abs().topk(3, dim=1).values[:, -1:])
            slope = slope / threat.size(slope).clamp(min=1e-12)[:, None]
            change = threat.project(
                point.detach() - radii[:, None] * 0.9**step * slope - clean, radii
            )
            point = (clean + change).clamp(0, 1)
        assert (threat.distance(point, clean) <= radii * (1 + 1e-9)).all()
    return torch.stack(found).amin(0)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("norm", NORMS)
def test_no_point_of_the_ball_is_below_the_bound(name, norm):
    """At any radius, certified or not: the bound on the margin is one."""
    model, x = net(name).double(), images(5)
    with torch.no_grad():
        y = model(x.double()).argmax(1)
        network = read_network(model, x)
    for radius in {"L1": (0.1, 2.0), "L2": (0.05, 0.8), "Linf": (0.005, 0.1)}[norm]:
        radii = torch.full((5,), radius, dtype=torch.float64)
        with torch.no_grad():
            bound = Bounds(network, norm, x.double().flatten(1), radii).least_margins(y)
        seen = smallest_margins(model, x, y, norm, radii)
        assert (bound <= seen + 1e-9).all()
        clean = margin(model(x.double()), y)
        assert (bound <= clean).all()


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("norm", NORMS)
def test_nothing_is_found_inside_the_radius(name, norm):
    model, x = net(name, seed=1), images(6, seed=2)
    y = model(x).argmax(1)
    y[0] = (y[0] + 1) % 3
    radii = certified_radius(model, x, y, norm)
    assert radii[0] == 0
    assert (radii[1:] > 0).all()
    assert (smallest_margins(model.double(), x[1:], y[1:], norm, radii[1:].double()) > 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_linear_model_s_radius_is_its_distance(norm):
    """Exactly, up to what was asked for: also where the box is in the way."""
    model, x = nn.Sequential(nn.Flatten(), linear(32, 4)), images(12, shape=(2, 4, 4))
    y = model(x).argmax(1)
    layer = model[1]
    truth = torch.from_numpy(
        linear_minimum(layer.weight.detach(), layer.bias.detach(), x.flatten(1), y, norm)
    )
    radii = certified_radius(model, x, y, norm, precision=1e-6)
    finite = truth.isfinite()
    assert finite.any()
    assert (radii <= truth).all()
    torch.testing.assert_close(radii[finite], truth[finite], rtol=1e-5, atol=0)
    assert radii[~finite].isinf().all()


def test_model_that_never_errs_is_certified_on_the_whole_box():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 2))
    nn.init.zeros_(model[1].weight)
    with torch.no_grad():
        model[1].bias.copy_(torch.tensor([1.0, 0.0]))
    radii = certified_radius(model, torch.rand(3, 2, 2, 2), torch.tensor([0, 0, 1]), "L2")
    assert radii.tolist() == [np.inf, np.inf, 0.0]


def test_tie_counts_as_misclassified():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 2))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    assert certified_radius(model, torch.rand(1, 2, 2, 2), torch.tensor([0]), "Linf").item() == 0


def test_neither_neighbours_nor_the_start_matter_beyond_precision():
    model, x = net("plain"), images(25)
    y = model(x).argmax(1)
    together = certified_radius(model, x, y, "Linf", precision=1e-4)
    torch.testing.assert_close(
        certified_radius(model, x[3:5], y[3:5], "Linf", precision=1e-4), together[3:5]
    )
    started = certified_radius(model, x, y, "Linf", precision=1e-4, start=together * 1.3)
    torch.testing.assert_close(started, together, rtol=2e-4, atol=0)


def test_model_is_left_as_it_was():
    model, x = net("pooled"), images(1)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    certified_radius(model, x, torch.tensor([0]), "Linf")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32


def test_wide_first_layer_takes_its_units_block_by_block(monkeypatch):
    model, x = net("plain"), images(3)
    y = model(x).argmax(1)
    whole = certified_radius(model, x, y, "L2")
    monkeypatch.setattr("advfrontier.certified.network.NUMBERS_AT_ONCE", 100)
    torch.testing.assert_close(certified_radius(model, x, y, "L2"), whole)


def test_initial_radius_of_zero_and_labels_of_8_bits():
    model, x = net("plain"), images(3)
    y = model(x).argmax(1)
    found = certified_radius(model, x, y.to(torch.uint8), "Linf", start=torch.zeros(3))
    torch.testing.assert_close(found, certified_radius(model, x, y, "Linf"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": (images(2) - 0.5) / 0.25}, r"range from .*: expected \[0, 1\]"),
        ({"images": images(2)[:0], "labels": torch.zeros(0, dtype=torch.int64)}, "at least one"),
        ({"labels": torch.tensor([0, 99])}, "99"),
        ({"precision": 0}, "precision is 0: expected a share such as 0.01"),
        ({"images": images(2).numpy()}, "must be tensors: found ndarray"),
        ({"start": torch.ones(3)}, "start has the shape .*: expected one radius for each of 2"),
    ],
)
def test_wrong_data_are_refused(changes, words):
    given = {"images": images(2), "labels": torch.tensor([0, 1]), "norm": "Linf"} | changes
    with pytest.raises(FrontierError, match=words):
        certified_radius(net("plain"), **given)


def test_l0_and_bare_functions_are_refused():
    with pytest.raises(FrontierError, match="no certificate in L0: expected one of L1, L2, Linf"):
        certified_radius(net("plain"), images(1), torch.tensor([0]), "L0")
    with pytest.raises(FrontierError, match=r"expected an nn\.Module"):
        certified_radius(lambda x: x.flatten(1), images(1), torch.tensor([0]), "L2")
