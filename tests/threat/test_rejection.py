"""Models that reject: decisions of the extra class, and thresholds of confidence."""

import pytest
import torch
from support.models import Answering, linear

from advfrontier import zoo
from advfrontier.errors import FrontierError
from advfrontier.threat.rejection import ConfidenceThreshold, RejectingModel, least_confidence
from advfrontier.zoo.training import other_confidence

IMAGES = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
NET = linear(6, 4, seed=1)


def test_the_extra_class_is_the_largest_where_the_score_is_above_the_threshold():
    model = RejectingModel(Answering(lambda x: (NET(x), x[:, :1])), threshold=0.4, scale=3.0)
    logits = model(IMAGES)
    assert torch.equal(logits[:, :4], NET(IMAGES))
    assert torch.equal(logits.argmax(1) == 4, IMAGES[:, 0] > 0.4)
    torch.testing.assert_close(logits[:, 4] - logits[:, :4].amax(1), 3 * (IMAGES[:, 0] - 0.4))
    assert not model.training


@pytest.mark.parametrize("least", [0.3, 0.4, 0.9])
def test_images_of_low_confidence_are_rejected(least):
    model = ConfidenceThreshold(NET, least)
    probability = NET(IMAGES).softmax(1).amax(1)
    assert torch.equal(model(IMAGES).argmax(1) == 4, probability < least)


def test_the_threshold_accepts_the_share_asked_for():
    labels = NET(IMAGES).argmax(1)
    labels[:10] = (labels[:10] + 1) % 4
    least = least_confidence(NET, IMAGES, labels, 0.8)
    accepted = NET(IMAGES[10:]).softmax(1).amax(1) >= least
    assert int(accepted.sum()) == 24


def test_the_calibrated_model_of_the_zoo_rejects_what_pgd_finds():
    """Without rejection hardly any image withstands PGD; most of its points are not confident."""
    model = zoo.load("F18")
    images, labels = zoo.images_and_labels()
    least = least_confidence(model, images[500:], labels[500:], 0.99)
    detector = ConfidenceThreshold(model, least)
    seen = detector(images[:500]).argmax(1)
    right = model(images[:500]).argmax(1) == labels[:500]
    assert (seen == labels[:500])[right].float().mean() > 0.97
    images, labels = images[:50], labels[:50]
    assert zoo.survivors(model, images, labels, "Linf", 0.1).float().mean() < 0.2
    points = zoo.pgd(
        model,
        images,
        labels,
        "Linf",
        0.1,
        steps=20,
        generator=torch.Generator().manual_seed(0),
        loss=other_confidence,
    )
    seen = detector(points).argmax(1)
    mistakes = (seen != labels) & (seen != 10)
    assert mistakes.float().mean() < 0.3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RejectingModel(NET)(IMAGES), "answers with Tensor: expected a pair"),
        (lambda: RejectingModel(NET, scale=0), "scale is 0: expected a finite number"),
        (lambda: ConfidenceThreshold(NET, 1.0), "least probability is 1.0"),
        (lambda: least_confidence(NET, IMAGES, NET(IMAGES).argmin(1), 0.9), "0 correctly class"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(make, message):
    with pytest.raises(FrontierError, match=message):
        make()
