"""Small real evaluations for the tests of this room: tiny nets, 100 queries per sample."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import torch
from support.models import Answering, conv_net

from advfrontier import evaluate
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.summary import summarise
from advfrontier.frontier import ReferencePool
from advfrontier.pool import Ensemble

NORMS = ("L0", "L1", "L2", "Linf")
RUNS = {
    "L0": {"sigma_zero": 60, "fmn": 40},
    "L1": {"fmn": 60, "pdpgd": 40},
    "L2": {"fmn": 60, "ddn": 40},
    "Linf": {"fmn": 60, "apgd_min-dlr": 40},
}
RADII = {
    "L0": (("1", 1.0), ("3", 3.0)),
    "L1": (("0.2", 0.2), ("0.5", 0.5)),
    "L2": (("0.1", 0.1), ("0.2", 0.2)),
    "Linf": (("2/255", 2 / 255), ("8/255", 8 / 255)),
}
SAMPLES, WRONG = 24, 2
REFERENCES = ("A", "B", "C")
CLASSES = ("cat", "dog", "frog", "ship")


def net(seed: int = 0) -> torch.nn.Module:
    """Return a convolutional net for four classes of images 1 x 8 x 8.

    Nets of other seeds are the first one with noise on its weights: they mostly agree.
    """
    model = conv_net()
    if seed:
        model = copy.deepcopy(model)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weights in model.parameters():
                noise = torch.randn(weights.shape, generator=generator)
                weights.add_(0.1 * weights.std() * noise)
    return model


def constant() -> torch.nn.Module:
    """Return a model that no perturbation inside the box can change."""
    return Answering(lambda flat: 1e-4 * flat[:, :4] + torch.tensor([9.0, 3.0, 2.0, 1.0]))


def images_and_labels(count: int = SAMPLES) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images with the labels of the first net, the first `WRONG` of which are others."""
    images = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = net()(images).argmax(1)
    labels[:WRONG] = (labels[:WRONG] + 1) % 4
    return images, labels


@cache
def evaluation(name: str = "net", norm: str = "Linf", *, count: int = SAMPLES) -> Evaluation:
    """Return an evaluation of `net`, `other`, a reference, `safe` (never broken) or `wrong`."""
    images, labels = images_and_labels(count)
    if name == "safe":
        model, labels = constant(), torch.zeros_like(labels)
    elif name == "wrong":
        model, labels = constant(), torch.ones_like(labels)
    else:
        model = net(["net", "other", *REFERENCES].index(name))
    ensemble = Ensemble.of("tiny", norm, RUNS[norm])
    return evaluate(model, images, labels, norm=norm, ensemble=ensemble, name=name)


@cache
def reference_pool(norm: str = "Linf") -> ReferencePool:
    """Return three nets with their distances; the last was never broken on one sample."""
    records = [evaluation(name, norm) for name in REFERENCES]
    distances = {record.model: record.distances.copy() for record in records}
    distances[REFERENCES[-1]][-1] = float("inf")
    first = records[0]
    return ReferencePool(norm, "noise", first.ensemble.total, first.samples, distances)


@cache
def summary(name: str = "net", norm: str = "Linf"):
    """Return the figures of an evaluation, ranked among the references."""
    return summarise(
        evaluation(name, norm), radii=RADII[norm], reference=reference_pool(norm), gallery=2
    )


@cache
def alone(name: str = "net", norm: str = "Linf"):
    """Return the figures of an evaluation without reference models, radii and pictures."""
    return summarise(evaluation(name, norm), radii=(), gallery=0)


def all_norms(name: str = "net") -> list:
    """Return the summaries of a model in every norm."""
    return [summary(name, norm) for norm in NORMS]


def with_class_names(found):
    """Return a summary whose data source knows the names of its classes."""
    items = []
    for item in found.gallery:
        names = CLASSES[item.label], CLASSES[item.prediction]
        items.append(replace(item, label_name=names[0], prediction_name=names[1]))
    return replace(found, gallery=tuple(items))
