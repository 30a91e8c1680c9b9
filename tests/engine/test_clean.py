"""The clean pass: what one query of the unperturbed samples tells."""

import pytest
import torch
from support.models import linear, samples, tanh_mlp
from torch import nn

from advfrontier.engine import Oracle, clean_pass
from advfrontier.engine.clean import CleanPass
from advfrontier.threat.norms import make_norm

SHAPE = (3, 4, 4)


def clean_of(model, images, labels, norm="L2", **options):
    with Oracle(model) as oracle:
        return clean_pass(
            oracle, images, labels, make_norm(norm, SHAPE), **{"batch_size": 4} | options
        )


def test_targets_are_the_likeliest_wrong_classes_in_order():
    """All samples are misclassified: the label is left out, and not the prediction."""
    model = tanh_mlp(hidden=8)
    images, _ = samples(model, 6)
    logits = model(images).detach()
    labels = logits.topk(2, dim=1).indices[:, 1]
    clean = clean_of(model, images, labels)
    for row, label, targets in zip(logits, labels.tolist(), clean.targets, strict=True):
        order = [k for k in row.argsort(descending=True).tolist() if k != label]
        assert targets.tolist() == order
    assert not clean.correct.any()


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
def test_of_many_classes_the_targets_are_the_nearest(norm):
    """On a linear model, the boundary of a class is as far as its hyperplane."""
    layer = linear(48, 24)
    with torch.no_grad():
        layer.weight.mul_(torch.linspace(0.3, 3, 24)[:, None])
    model = nn.Sequential(nn.Flatten(), layer)
    images, labels = samples(model, 6, SHAPE)
    with Oracle(model) as oracle:
        clean = clean_pass(oracle, images, labels, make_norm(norm, SHAPE), batch_size=4)
        assert oracle.counts.setup == 6 * (2 + 2 * 20)
        assert oracle.counts.attack == 0
    dual = {"L1": torch.inf, "L2": 2, "Linf": 1}[norm]
    reordered = False
    answers = model(images).detach()
    for logits, label, targets in zip(answers, labels.tolist(), clean.targets, strict=True):
        slopes = (layer.weight[label] - layer.weight).detach()
        distances = (logits[label] - logits) / torch.linalg.vector_norm(slopes, dual, dim=1)
        likeliest = [k for k in logits.argsort(descending=True).tolist() if k != label][:20]
        assert targets.tolist() == sorted(likeliest, key=lambda k: float(distances[k]))[:9]
        reordered = reordered or targets.tolist() != likeliest[:9]
    assert reordered


def test_rows_and_joined_parts_are_the_same_samples():
    model = tanh_mlp(hidden=8)
    images, labels = samples(model, 7)
    labels[3] = (labels[3] + 1) % 10
    whole = clean_of(model, images, labels)
    assert whole.correct.tolist() == [True] * 3 + [False] + [True] * 3
    assert whole.attacked(2, 3).tolist() == [2, 4]
    parts = [whole.rows(torch.arange(3)), whole.rows(torch.arange(3, 7))]
    joined = CleanPass.join(parts)
    assert joined.names == whole.names
    for name in ("labels", "logits", "correct", "targets", "boundary"):
        assert torch.equal(getattr(joined, name), getattr(whole, name))


def test_copies_of_an_image_get_numbered_names():
    model = tanh_mlp(hidden=8)
    images, labels = samples(model, 2)
    names = clean_of(model, images[[0, 1, 0, 0]], labels[[0, 1, 0, 0]]).names
    assert names[2:] == (f"{names[0]}-2", f"{names[0]}-3")
    assert names[0] != names[1]


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_boundary_is_the_first_order_distance_or_without_gradients_the_largest(norm):
    model = tanh_mlp(hidden=8)
    images, labels = samples(model, 5)
    measure = make_norm(norm, SHAPE)
    largest = measure.largest(images.flatten(1))
    boundary = clean_of(model, images, labels, norm).boundary
    assert ((boundary > 0) & (boundary <= largest)).all()
    assert (boundary < largest).any()
    assert torch.equal(clean_of(model, images, labels, norm, gradients=False).boundary, largest)
