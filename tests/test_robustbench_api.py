"""RobustBench's call shape."""

import numpy as np
import pytest
from support.models import samples, tanh_mlp

from advfrontier import Evaluation
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError
from advfrontier.robustbench_api import benchmark


@pytest.fixture
def data(tmp_path):
    model = tanh_mlp((3, 8, 8), classes=4, seed=1)
    images, labels = samples(model, 8, (3, 8, 8), seed=1)
    labels[0] = (labels[0] + 1) % 4
    path = tmp_path / "mine.npz"
    np.savez(path, images=images.numpy(), labels=labels.numpy())
    return model, f"npz:{path}"


def test_accuracies_are_those_of_the_record(data, tmp_path):
    model, source = data
    clean, robust = benchmark(
        model, 6, source, "L2", eps=0.1, ensemble="fmn@50", out=tmp_path / "out", model_name="net"
    )
    found = Evaluation.load(tmp_path / "out")
    assert clean == pytest.approx(5 / 6)
    assert robust == found.robust_accuracy(0.1) <= clean
    assert (found.model, found.radii) == ("net", (0.1,))


def test_missing_radius_and_data_are_explained(data, tmp_path):
    model, source = data
    with pytest.raises(FrontierError, match=r"no radius is usual for npz:.* as in eps=8/255"):
        benchmark(model, dataset=source, threat_model="L2")
    with pytest.raises(FrontierError, match="cifar10"):
        benchmark(model, dataset="cifar10", data_dir=tmp_path, eps=0.1)
    with pytest.raises(FrontierError, match="n_examples was given beside samples"):
        benchmark(model, 3, Samples("a", None, lambda rows: rows), eps=0.1)
