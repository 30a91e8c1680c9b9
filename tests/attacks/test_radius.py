"""A radius that is searched for every sample: to one percent, and counted."""

import numpy as np
import pytest
import torch
from support.models import samples, tanh_mlp
from torch.nn import functional

from advfrontier import evaluate
from advfrontier.pool import Ensemble

SHAPE = (3, 4, 4)


NAME = "callable:attack"


@pytest.fixture
def task():
    model = tanh_mlp(SHAPE, seed=1)
    images, labels = samples(model, 6, SHAPE, seed=1, low=0.3, high=0.7)
    labels[2] = (labels[2] + 1) % 10
    return model, images, labels


def run(attack, model, images, labels, *, norm, queries=1000, name=NAME, out=None):
    """Evaluate with one function as the only run."""
    return evaluate(
        model,
        images,
        labels,
        norm=norm,
        ensemble=Ensemble.of("one", norm, {name: queries}),
        solvers={name: attack},
        out=out,
    )


def at_radius(model, x, y, eps):
    """One signed gradient step of length eps."""
    point = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        functional.cross_entropy(model(point), y, reduction="sum"), point
    )
    return (x + eps * slope.sign()).clamp(0, 1)


def test_radius_is_searched_to_one_percent(task):
    model, images, labels = task
    found = run(at_radius, *task, norm="Linf")
    attacked = [0, 1, 3, 4, 5]
    with torch.enable_grad():
        point = images.clone().requires_grad_()
        loss = functional.cross_entropy(model(point), labels, reduction="sum")
        (slope,) = torch.autograd.grad(loss, point)
    radii = np.geomspace(1e-3, 1, 4000)
    for sample in attacked:
        with torch.no_grad():
            steps = torch.from_numpy(radii).float().view(-1, 1, 1, 1)
            points = (images[sample] + steps * slope[sample].sign()).clamp(0, 1)
            broken = (model(points).argmax(1) != labels[sample]).numpy()
        exact = radii[broken][0]
        assert exact * 0.998 <= found.distances[sample] <= exact * 1.013
    assert found.counts["attack"] < 5 * 3 * 20
    once = run(at_radius, *task, norm="Linf", name=f"{NAME}?eps=8/255")
    assert once.counts["attack"] == 5 * 3
    assert np.nanmax(once.distances[np.isfinite(once.distances)]) == pytest.approx(8 / 255)
