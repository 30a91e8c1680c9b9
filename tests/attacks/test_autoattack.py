"""AutoAttack at one radius against AutoAttack called directly, on a model that counts for
itself.
"""

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from torch import nn

from advfrontier.attacks.autoattack import attack_at
from advfrontier.errors import FrontierError

pyautoattack = pytest.importorskip(
    "pyautoattack", reason="needs pip install 'advfrontier[autoattack]'"
)
COUNT = 5
RADIUS = {"Linf": 0.008, "L2": 0.05, "L1": 0.14}  # at which some hold


class Signed(nn.Module):
    """Every image carries its number in a second channel, so that the model itself knows who
    passes.
    """

    def __init__(self, classes=10):
        super().__init__()
        self.net = conv_net((1, 8, 8), classes=classes, seed=1)
        self.forwards, self.backwards = np.zeros((2, COUNT), dtype=int)

    def forward(self, images):
        who = (images[:, 1].mean((1, 2)) * COUNT).detach().floor().long().numpy()
        logits = self.net(images[:, :1])
        np.add.at(self.forwards, who, 1)
        if logits.requires_grad:
            logits.register_hook(lambda _: np.add.at(self.backwards, who, 1))
        return logits


def task(classes=10):
    model = Signed(classes).eval()
    images, labels = samples(model.net, COUNT, (1, 8, 8), seed=2, low=0.3, high=0.7)
    labels[1] = (labels[1] + 1) % classes
    signature = ((torch.arange(COUNT) + 0.5) / COUNT).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    return model, torch.cat((images, signature), 1), labels


class Brief(pyautoattack.AutoAttack):
    """The standard version with three targets and a short Square, which otherwise takes most of the
    time.
    """

    def __init__(self, *args, version, **options):
        assert version == "standard"
        super().__init__(*args, version=version, **options)
        self.apgd_targeted.n_target_classes = self.fab.n_target_classes = 3
        self.square.n_queries = 400


@pytest.fixture(
    params=[Brief, pytest.param(pyautoattack.AutoAttack, marks=pytest.mark.slow)],
    ids=["brief", "whole"],
)
def direct_attack(request, monkeypatch):
    """What everybody takes for AutoAttack in this test."""
    monkeypatch.setattr(pyautoattack, "AutoAttack", request.param)
    return request.param


@pytest.mark.parametrize(
    "norm",
    [
        "Linf",
        pytest.param("L2", marks=pytest.mark.slow),
        pytest.param("L1", marks=pytest.mark.slow),
    ],
)
def test_it_is_autoattack(norm, direct_attack, capfd):
    model, images, labels = task()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    result = attack_at(model, images, labels, norm=norm, radius=RADIUS[norm], seed=7, batch_size=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")

    direct_model, *_ = task()
    direct = direct_attack(direct_model, norm=norm, eps=RADIUS[norm], seed=7, version="standard")
    _, predictions = direct.run_standard_evaluation(images, labels, batch_size=3)
    assert (predictions == labels).tolist() == result.robust.tolist()
    assert 0 < result.robust.sum() < COUNT - 1
    assert sum(result.counts.values()) == model.forwards.sum() + model.backwards.sum()
    model.forwards[0] -= 1  # `attack_at` asks once how many classes there are
    assert np.array_equal(model.forwards, direct_model.forwards)
    assert np.array_equal(model.backwards, direct_model.backwards)
    # What passed, as the ledger has it: the model saw the same, and AutoAttack's own checks
    # besides.
    assert result.backwards == direct_model.backwards.sum()
    checks = direct_model.forwards.sum() - result.forwards
    assert checks == result.counts["checks"] - 1
    assert 0 < checks < 15 * COUNT
    targets, queries = direct.fab.n_target_classes, direct.square.n_queries
    least = (
        queries + 200 * targets
    )  # of each robust sample: Square, and two passes of every FAB step
    assert result.forwards > least * result.robust.sum()
    assert result.counts["attack"] == result.forwards + result.backwards


@pytest.mark.slow
def test_fewer_classes_have_fewer_targets():
    model, images, labels = task(classes=5)
    result = attack_at(model, images, labels, norm="Linf", radius=1e-4)
    assert result.robust.sum() == COUNT - 1
    assert result.backwards == (COUNT - 1) * (101 + 4 * 101 + 4 * 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "L0"}, "does not attack in L0"),
        ({"radius": float("inf")}, "finite and above 0"),
        ({"radius": -1}, "above 0"),
    ],
)
def test_what_it_refuses(options, message):
    with pytest.raises(FrontierError, match=message):
        attack_at(*task(), **{"norm": "L2", "radius": 0.1} | options)


def test_three_classes_are_too_few():
    with pytest.raises(FrontierError, match="has 3 classes"):
        attack_at(*task(classes=3), norm="L2", radius=0.1)
