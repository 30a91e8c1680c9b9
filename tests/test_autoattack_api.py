"""The drop-in for AutoAttack: its call shape, with the results of an evaluation."""

import io

import numpy as np
import pytest
import torch
from support.models import conv_net, samples

from advfrontier import Ensemble, FrontierError, autoattack_api, evaluate
from advfrontier.autoattack_api import AutoAttack
from advfrontier.pool import find_ensemble


@pytest.fixture(scope="module")
def attacked():
    model = conv_net()
    images, labels = samples(model, 6, (1, 8, 8))
    labels[0] = (labels[0] + 1) % 4  # misclassified anyway
    adversary = AutoAttack(model, norm="Linf", eps=0.05, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(autoattack_api.VERSIONS, "standard", "300")
        found = adversary.run_standard_evaluation_individual(images, labels, return_labels=True)
    return model, adversary.eps, found, images, labels


def test_precision_of_the_images_is_kept(tmp_path):
    model = conv_net()
    images, labels = samples(model, 2, (1, 8, 8))
    model, images = model.double(), images.double()
    adversary = AutoAttack(
        model,
        "Linf",
        0.05,
        None,
        False,  # noqa: FBT003
        None,
        "standard",
        False,  # noqa: FBT003
        None,
        str(tmp_path / "log"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(autoattack_api.VERSIONS, "standard", "100")
        points = adversary.run_standard_evaluation(images, labels)
    assert points.dtype == torch.float64
    assert model(points).shape == (2, 4)
    assert "robust accuracy" in (tmp_path / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"log_path": "nowhere/log.txt"}, "cannot write log_path=nowhere/log.txt"),
        ({"is_tf_model": True}, "PyTorch"),
        ({"eps": "8 of 255"}, "'8 of 255' is not a radius: expected a number such as 0.5 or 8/255"),
        ({"norm": "L7"}, "unknown norm 'L7'"),
    ],
)
def test_wrong_options_are_refused_before_any_query(given, message):
    with pytest.raises(FrontierError, match=message):
        AutoAttack(conv_net(), **given)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((2, 1, 8, 8), 200).byte(), "torch.uint8: expected floats"),
        (np.zeros((2, 1, 8, 8)), "be tensors"),
    ],
    ids=["bytes", "array"],
)
def test_images_that_no_points_could_come_back_for_are_refused(images, message):
    """Points between 0 and 1 would be no bytes."""
    with pytest.raises(FrontierError, match=message):
        AutoAttack(conv_net(), verbose=False).run_standard_evaluation(images, torch.zeros(2).long())


def test_accuracy_of_images_that_are_none():
    with pytest.raises(FrontierError, match="expected at least one"):
        AutoAttack(conv_net(), verbose=False).clean_accuracy(
            torch.rand(0, 1, 8, 8), torch.zeros(0).long()
        )


def test_every_run_has_its_points_within_eps(attacked):
    model, eps, found, images, labels = attacked
    ensemble = find_ensemble("paper-300", "Linf", 4)
    assert tuple(found) == ensemble.runs
    moved = 0
    for run, (points, classes) in found.items():
        alone = Ensemble.of(run, "Linf", {run: ensemble.queries[run]})
        expected = evaluate(model, images, labels, norm="Linf", ensemble=alone, batch_size=250)
        near = (expected.distances <= eps) & (expected.distances > 0)
        moved += int(near.sum())
        assert (points != images).flatten(1).any(1).tolist() == near.tolist()
        assert ((points - images).abs().amax() <= eps * (1 + 1e-6)).all()
        with torch.no_grad():
            assert torch.equal(model(points).argmax(1), classes)
    assert moved


def test_points_of_all_runs_can_be_saved(attacked):
    *_, found, _, _ = attacked
    file = io.BytesIO()
    torch.save(found, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert isinstance(loaded, dict)
    for run, (points, _) in found.items():
        assert torch.equal(loaded[run][0], points)


def test_standard_evaluation_is_an_evaluation_at_one_eps(capsys, monkeypatch):
    monkeypatch.setitem(autoattack_api.VERSIONS, "standard", "500")  # in place of 4k
    model = conv_net()
    images, labels = samples(model, 6, (1, 8, 8))
    labels[0] = (labels[0] + 1) % 4
    whole = evaluate(model, images, labels, norm="Linf", ensemble=500, batch_size=250)
    eps = float(np.median(whole.distances[whole.distances > 0]))
    adversary = AutoAttack(model, norm="Linf", eps=eps, version="standard")
    points, classes = adversary.run_standard_evaluation(images, labels, bs=250, return_labels=True)
    assert ((points - images).abs().flatten(1).amax(1) <= eps * (1 + 1e-6)).all()
    with torch.no_grad():
        assert torch.equal(model(points).argmax(1), classes)
    assert int((classes == labels).sum()) == int((whole.distances > eps).sum())
    assert f"robust accuracy at Linf {eps:g}" in capsys.readouterr().out
    assert adversary.clean_accuracy(images, labels) == 5 / 6


class Misleading(torch.nn.Module):
    """A net whose gradient points the wrong way."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(2 * images.detach() - images)


def test_failed_gradients_add_black_box_runs_and_print_all_flags(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(autoattack_api.VERSIONS, "standard", "300")
    net = conv_net()
    images, labels = samples(net, 6, (1, 8, 8), seed=3)
    model = Misleading(net)
    labels = model(images).argmax(1)
    adversary = AutoAttack(model, norm="Linf", eps=0.2)
    with pytest.warns(UserWarning, match="the margin does not move as its gradient says"):
        points = adversary.run_standard_evaluation(
            images, labels, state_path=str(tmp_path / "state")
        )
    told = capsys.readouterr().out
    assert "the margin does not move as its gradient says" in told
    assert "and 6000 of black-box runs, because gradients failed a check" in told
    by_gradients, by_search = adversary.evaluation.distances, adversary.black_box.distances
    assert (by_search <= 0.2).all()
    robust = (by_gradients > 0.2) & (by_search > 0.2)
    with torch.no_grad():
        assert (model(points).argmax(1) == labels).tolist() == robust.tolist()
    assert f"robust accuracy at Linf 0.2: {robust.mean():.2%}" in told
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"standard", "black-box"}


def test_honest_model_is_not_run_twice_and_warns_of_nothing(capsys, monkeypatch, recwarn):
    assert autoattack_api.VERSIONS["standard"] == "4k"
    monkeypatch.setitem(autoattack_api.VERSIONS, "standard", "600")
    net = conv_net()
    images, labels = samples(net, 6, (1, 8, 8))
    adversary = AutoAttack(net, norm="Linf", eps=0.05)
    adversary.run_standard_evaluation(images, labels)
    assert adversary.evaluation.ensemble.total == 600
    assert adversary.black_box is None
    assert "note" not in capsys.readouterr().out
    assert not recwarn.list


class Noisy(Misleading):
    """The net on images with noise."""

    def forward(self, images):
        return self.net(images + 0.05 * torch.randn_like(images))


def test_version_for_random_models_averages_over_20_passes(capsys, monkeypatch, recwarn):
    monkeypatch.setitem(autoattack_api.VERSIONS, "rand", "30")
    net = conv_net()
    images, labels = samples(net, 4, (1, 8, 8))
    adversary = AutoAttack(Noisy(net).eval(), norm="Linf", eps=0.15, version="rand")
    points = adversary.run_standard_evaluation(images, labels)
    found = adversary.evaluation
    assert found.eot == 20
    assert "600 queries per sample" in capsys.readouterr().out
    assert not recwarn.list  # that the model is random is told, but no reason for doubt
    broken = torch.from_numpy(found.distances <= 0.15)
    assert broken.any()
    torch.manual_seed(0)
    with torch.no_grad():
        share = sum((adversary.model(points).argmax(1) != labels).float() for _ in range(300)) / 300
    assert (share[broken] > 0.5).all()
    assert adversary.clean_accuracy(images, labels) == 1


def test_versions_that_there_are_not():
    with pytest.raises(FrontierError, match=r"version 'fast': .*'standard' .*'plus' .*'rand'"):
        AutoAttack(conv_net(), version="fast")


def test_attacks_to_run_may_be_set_later(monkeypatch):
    monkeypatch.setitem(autoattack_api.VERSIONS, "standard", "160")
    model = conv_net()
    images, labels = samples(model, 4, (1, 8, 8))
    adversary = AutoAttack(model, eps=0.05, version="custom", verbose=False)
    with pytest.raises(FrontierError, match="version='custom' without attacks_to_run: expected"):
        adversary.run_standard_evaluation(images, labels)
    adversary.attacks_to_run = ["apgd-ce", "square"]
    adversary.run_standard_evaluation(images, labels)
    assert set(adversary.evaluation.queries_by_run) == {"apgd_min-ce", "square_min"}
    assert adversary.evaluation.ensemble.total == 160
    adversary.attacks_to_run = ["apgd"]
    with pytest.raises(FrontierError, match="names 'apgd': expected some of apgd-ce"):
        adversary.run_standard_evaluation(images, labels)
    given = AutoAttack(model, eps=0.05, attacks_to_run=["fab-t"], version="custom", verbose=False)
    assert given.attacks_to_run == ["fab-t"]


def test_cheap_spends_a_quarter_of_the_queries():
    adversary = AutoAttack(conv_net(), eps=0.05, verbose=False)
    adversary.cheap()
    images, labels = samples(conv_net(), 2, (1, 8, 8))
    adversary.run_standard_evaluation(images, labels)
    assert adversary.evaluation.ensemble.total == 1000
