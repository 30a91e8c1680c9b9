"""The calls that people type, as they know them from other tools."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from support.models import samples, tanh_mlp
from torch import nn
from torch.nn.functional import one_hot

from advfrontier import attack, evaluate
from advfrontier.errors import FrontierError
from advfrontier.execution import Machine

SHAPE = (1, 4, 4)
FEW = {"ensemble": "fmn@20"}


@pytest.fixture(scope="module")
def task():
    model = tanh_mlp(SHAPE, classes=4, seed=1)
    return model, *samples(model, 6, SHAPE, seed=1)


@pytest.fixture(scope="module")
def one_logit():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 1)).eval()


def test_several_norms_are_a_mapping(task, tmp_path):
    found = evaluate(*task, norm=["L2", "linf"], out=tmp_path, **FEW)
    assert list(found) == ["L2", "Linf"]
    assert [evaluation.norm for evaluation in found.values()] == ["L2", "Linf"]
    alone = evaluate(*task, norm="Linf", **FEW)
    assert np.array_equal(found["Linf"].distances, alone.distances)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["L2", "Linf"]
    with pytest.raises(FrontierError, match="no norm was named"):
        evaluate(*task, norm=[], **FEW)


def test_eps_is_where_accuracy_is_read(task):
    assert evaluate(*task, norm="Linf", eps=8 / 255, **FEW).radii == (8 / 255,)
    assert evaluate(*task, norm="Linf", eps="4/255,8/255", **FEW).radii == (4 / 255, 8 / 255)
    sizes = {"L2": [0.5, 1], "linf": "8/255"}
    found = evaluate(*task, norm=("L2", "Linf"), eps=sizes, **FEW)
    assert (found["L2"].radii, found["Linf"].radii) == ((0.5, 1.0), (8 / 255,))
    assert "8/255" in evaluate(*task, norm="Linf", eps=8 / 255, **FEW).summary()
    with pytest.raises(FrontierError, match=r"'-1\.0' is not a radius"):
        evaluate(*task, norm="Linf", eps=-1, **FEW)


def test_device_and_dtype_are_those_of_the_machine(task):
    double = (deepcopy(task[0]).double(), *task[1:])
    found = evaluate(*double, norm="L2", device="cpu", dtype=torch.float64, **FEW)
    assert found.adversarials.dtype == torch.float64
    same = evaluate(*double, norm="L2", machine=Machine("cpu", dtype="float64"), **FEW)
    assert np.array_equal(found.distances, same.distances)
    with pytest.raises(FrontierError, match=r"Its parameters are torch.float32: try model.double"):
        evaluate(*task, norm="L2", dtype="float64", **FEW)
    with pytest.raises(FrontierError, match="machine='cpu' and device='cpu' were given together"):
        evaluate(*task, norm="L2", machine="cpu", device="cpu", **FEW)
    with pytest.raises(FrontierError, match="dtype is float16: expected float32 or float64"):
        evaluate(*task, norm="L2", dtype=torch.float16, **FEW)


def test_half_precision_model_is_attacked(task):
    model, images, labels = task
    found = evaluate(lambda x: model(x).half(), images, labels, norm="L2", **FEW)
    assert np.isfinite(found.distances).any()


def test_line_that_mends_a_model_with_one_logit_mends_it(task, one_logit):
    _, images, _ = task
    with torch.no_grad():
        labels = (one_logit(images)[:, 0] > 0).long()
    expected = r"over lambda images: torch.nn.functional.pad\(model\(images\), \(1, 0\)\)"
    with pytest.raises(FrontierError, match=expected):
        evaluate(one_logit, images, labels, norm="L2", **FEW)
    with pytest.raises(FrontierError, match=r"pad\(model\(images\)\[:, None\], \(1, 0\)\)"):
        evaluate(lambda x: one_logit(x)[:, 0], images, labels, norm="L2", **FEW)
    mended = evaluate(
        lambda x: nn.functional.pad(one_logit(x), (1, 0)), images, labels, norm="L2", **FEW
    )
    assert mended.robust_accuracy(0) == 1


def test_line_that_mends_classes_and_labels_mends_them(task):
    model, images, labels = task
    with pytest.raises(FrontierError, match=r"it seems to return classes: remove \.argmax\(1\)"):
        evaluate(lambda x: model(x).argmax(1), images, labels, norm="L2", **FEW)
    with pytest.raises(FrontierError, match=r"one-hot labels do: .* give labels\.argmax\(1\)"):
        evaluate(model, images, one_hot(labels), norm="L2", **FEW)
    with pytest.raises(FrontierError, match=r"labels\.argmax\(1\) of one-hot labels"):
        evaluate(model, images, one_hot(labels).float(), norm="L2", **FEW)
    with pytest.raises(FrontierError, match=r"labels are torch.float32: .* labels\.long\(\)"):
        evaluate(model, images, labels.float(), norm="L2", **FEW)
    found = evaluate(model, images, one_hot(labels).argmax(1), norm="L2", **FEW)
    assert found.robust_accuracy(0) == 1


def test_attack_takes_names_and_functions(task):
    model, images, labels = task
    points, distances = attack(model, images, labels)
    assert points.shape == images.shape
    assert torch.isfinite(distances).all()

    def white(_model, x, _labels):
        return torch.ones_like(x)

    points, distances = attack(model, images, labels, solver=white, norm="Linf", queries=20)
    expected = (1 - images).flatten(1).amax(1).double()
    broken = distances < torch.inf
    with torch.no_grad():
        assert torch.equal(broken, model(torch.ones_like(images)).argmax(1) != labels)
    assert torch.allclose(distances[broken], expected[broken])


@pytest.mark.filterwarnings("ignore")  # foolbox's
def test_attack_takes_a_run_of_a_library(task):
    pytest.importorskip("foolbox", reason="a dev dependency", exc_type=ImportError)
    _, found = attack(*task, solver="foolbox:DDNAttack?steps=50", norm="L2", queries=200)
    _, known = attack(*task, solver="ddn", norm="L2", queries=200)
    assert torch.median(found) < 1.5 * torch.median(known)
