"""Certified radii of an evaluation: which model they need, and what contradicts them."""

import pytest
import torch

from advfrontier import Evaluation, certify, evaluate, zoo
from advfrontier.errors import FrontierError
from advfrontier.solvers import PUBLISHED


@pytest.fixture
def records(tmp_path):
    images, labels = (tensor[:12] for tensor in zoo.images_and_labels())
    for norm in ("L0", "Linf"):
        evaluate("zoo:F17", images, labels, norm=norm, ensemble=200, out=tmp_path / "runs" / norm)
    return tmp_path / "runs"


def test_evaluation_in_hand_and_one_of_published_solvers_are_certified_too(tmp_path):
    images, labels = (tensor[:4] for tensor in zoo.images_and_labels())
    found = evaluate(
        "zoo:F17",
        images,
        labels,
        norm="Linf",
        ensemble="paper-100",
        solvers=PUBLISHED,
        out=tmp_path / "runs",
    )
    assert found.certified is None
    radii = certify(Evaluation.load(tmp_path / "runs"), model="zoo:F17")
    assert found.certified.tolist() == radii.tolist()


def test_model_given_as_an_object_is_needed_again(tmp_path):
    images, labels = (tensor[:4] for tensor in zoo.images_and_labels())
    model = zoo.load("F17")
    evaluate(model, images, labels, norm="L2", ensemble=100, out=tmp_path / "mine")
    loaded = Evaluation.load(tmp_path / "mine")
    with pytest.raises(FrontierError, match=r"as in certify\(evaluation, model=model\)"):
        certify(loaded)
    assert (certify(loaded, model=model) <= loaded.distances).all()


def test_radius_beyond_what_was_found_is_refused(records, monkeypatch):
    evaluation = Evaluation.load(records / "Linf")
    monkeypatch.setattr(
        "advfrontier.evaluation.certify.certified_radius",
        lambda _model, images, *_rest, **_more: torch.full((len(images),), 9.0),
    )
    with pytest.raises(
        FrontierError, match="is certified up to 9, yet a misclassified point was found"
    ):
        certify(evaluation)
    assert evaluation.record.read_certified() is None
