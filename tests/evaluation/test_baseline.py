"""AutoAttack through `baseline` against AutoAttack called directly, on a model that counts for itself."""

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from torch import nn

from advfrontier.errors import FrontierError
from advfrontier.evaluation.baseline import baseline

pyautoattack = pytest.importorskip("pyautoattack", reason="needs pip install 'advfrontier[autoattack]'")
COUNT = 5
RADIUS = {"Linf": 0.008, "L2": 0.05, "L1": 0.14}  # at which some hold


class Signed(nn.Module):
    """Every image carries its number in a second channel, so that the model itself knows who passes."""

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


@pytest.mark.parametrize(
    "norm", ["Linf", pytest.param("L2", marks=pytest.mark.slow), pytest.param("L1", marks=pytest.mark.slow)]
)
def test_it_is_autoattack(norm, capfd):
    model, images, labels = task()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    found = baseline(model, images, labels, norm=norm, radii=[RADIUS[norm]], seed=7, batch_size=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")

    direct_model, *_ = task()
    direct = pyautoattack.AutoAttack(direct_model, norm=norm, eps=RADIUS[norm], seed=7, version="standard")
    _, predictions = direct.run_standard_evaluation(images, labels, batch_size=3)
    (result,) = found.results
    assert (predictions == labels).tolist() == result.robust.tolist()
    assert 0 < result.robust.sum() < COUNT - 1
    assert sum(result.counts.values()) == model.forwards.sum() + model.backwards.sum()
    model.forwards[0] -= 1  # `baseline` asks once how many classes there are
    assert np.array_equal(model.forwards, direct_model.forwards)
    assert np.array_equal(model.backwards, direct_model.backwards)
    # Who passed, as the ledger has it: the model saw the same, and AutoAttack's own checks besides.
    assert np.array_equal(result.backwards, direct_model.backwards)
    assert (direct_model.forwards - result.forwards).sum() == result.counts["checks"] - 1
    assert (direct_model.forwards - result.forwards > 0).all()
    assert (direct_model.forwards - result.forwards < 15).all()
    assert result.forwards[result.robust].min() > 5000 + 1800  # Square and the two passes of a FAB step ran in full
    assert found.average_queries == (result.forwards.sum() + result.backwards.sum()) / COUNT


@pytest.mark.slow
def test_fewer_classes_have_fewer_targets():
    model, images, labels = task(classes=5)
    (result,) = baseline(model, images, labels, norm="Linf", radii=[1e-4]).results
    assert result.robust.sum() == COUNT - 1
    assert result.backwards.max() == 101 + 4 * 101 + 4 * 100


def test_it_goes_on_where_it_stopped():
    model, images, labels = task()
    told = []
    first = baseline(model, images, labels, norm="linf", radii=[0.6], done=told.append)
    assert told == list(first.results)
    assert first.accuracies.tolist() == [0.0]
    spent = model.forwards.sum()
    both = baseline(
        model, images, labels, norm="Linf", radii=[0.7, 0.6], finished={0.6: first.results[0]}, done=told.append
    )
    assert both.results[0] is first.results[0]
    assert [result.radius for result in told] == [0.6, 0.7]
    assert model.forwards.sum() < 2 * spent + COUNT
    frontier = [0.1, 0, 0.2, 0.3, 0.4]
    assert both.aoi(frontier).high == pytest.approx(0.8 * 0.4 / ((0.3 + 0.2 + 0.1) / 5))
    assert both.aoi(frontier).low == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "L0"}, "does not attack in L0"),
        ({"radii": []}, "expected at least one"),
        ({"radii": [0.1, -1]}, "above 0"),
    ],
)
def test_what_it_refuses(options, message):
    with pytest.raises(FrontierError, match=message):
        baseline(*task(), **{"norm": "L2", "radii": [0.1]} | options)


def test_three_classes_are_too_few():
    with pytest.raises(FrontierError, match="has 3 classes"):
        baseline(*task(classes=3), norm="L2", radii=[0.1])
