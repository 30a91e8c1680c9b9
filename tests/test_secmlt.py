"""The bridge to secml-torch."""

import numpy as np
import pytest
from support.models import samples, tanh_mlp
from torch.utils.data import DataLoader, TensorDataset

from advfrontier import evaluate as plain
from advfrontier.errors import FrontierError
from advfrontier.secmlt import evaluate


class Wrapped:
    """What the bridge uses of `BasePyTorchClassifier`: preprocessing before the network."""

    def __init__(self, model):
        self.model = model

    def decision_function(self, x):
        return self.model(1 - x)


def test_models_and_loaders_of_secml_torch_are_evaluated():
    net = tanh_mlp((1, 4, 4), classes=4, seed=1)
    images, labels = samples(lambda x: net(1 - x), 6, (1, 4, 4), seed=1)
    loader = DataLoader(TensorDataset(images, labels), batch_size=2)
    found = evaluate(Wrapped(net), loader, norm="L2", ensemble="fmn@50")
    expected = plain(lambda x: net(1 - x), images, labels, norm="L2", ensemble="fmn@50")
    assert np.array_equal(found.distances, expected.distances)
    assert found.model == "Sequential"
    several = evaluate(Wrapped(net), loader, norm=["L2", "Linf"], ensemble="fmn@20")
    assert list(several) == ["L2", "Linf"]
    with pytest.raises(FrontierError, match="Sequential is no model of secml-torch"):
        evaluate(net, loader)


@pytest.mark.filterwarnings("ignore")  # other libraries warn as they are imported
def test_classifier_of_the_library_is_evaluated(monkeypatch):
    from support.peers import need_library  # noqa: PLC0415 - needed here only

    need_library("secmlt", monkeypatch)
    from secmlt.models.pytorch.base_pytorch_nn import (  # noqa: PLC0415 - installed apart
        BasePyTorchClassifier,
    )

    net = tanh_mlp((1, 4, 4), classes=4, seed=1)
    images, labels = samples(net, 6, (1, 4, 4), seed=1)
    loader = DataLoader(TensorDataset(images, labels), batch_size=3)
    runs = "fmn,secmlt:FMN?num_steps=25&step_size=1.0&backend=native@150"
    found = evaluate(BasePyTorchClassifier(net), loader, norm="L2", ensemble=runs)
    assert np.isfinite(found.distances).all()
