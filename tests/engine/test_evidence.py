"""What results say about themselves: chance accuracy, attacks beaten by others without gradients,
and by noise.
"""

import numpy as np
import pytest
import torch
from support.models import Answering, Watch, conv_net, samples, tanh_mlp

from advfrontier import trace, zoo
from advfrontier.engine import Oracle, accuracy_flag, beaten, noise_check
from advfrontier.flags import Kind

INF = np.inf


def right(count, of):
    return torch.arange(of) < count


@pytest.mark.parametrize(
    ("count", "of", "classes"),
    [
        (0, 5, 10),
        (0, 1000, 1000),
        (2, 20, 10),
        (100, 1000, 10),
        (110, 1000, 10),
        (11, 20, 2),
        (500, 1000, 2),
    ],
)
def test_accuracy_that_chance_explains(count, of, classes):
    flag = accuracy_flag(right(count, of), classes)
    assert flag.kind == Kind.CLEAN_ACCURACY
    assert flag.doubtful
    for word in ("labels", "channels", "normalisation", f"{classes} classes"):
        assert word in flag.text


@pytest.mark.parametrize(
    ("count", "of", "classes"),
    [
        (0, 4, 10),
        (1, 5, 10),
        (1, 19, 10),
        (6, 20, 10),
        (130, 1000, 10),
        (15, 20, 2),
        (900, 1000, 10),
        (0, 0, 10),
    ],
)
def test_accuracy_that_it_does_not_explain_or_too_few_samples(count, of, classes):
    assert accuracy_flag(right(count, of), classes) is None


def test_beaten_on_a_clear_share():
    gradient = np.array([1.0, 1, 1, 1, 1, INF, INF, 0, 0, 1])
    black_box = np.array([0.5, 2, 2, 2, 2, 3.0, INF, 0, 0, 2])
    flag = beaten(gradient, black_box, norm="Linf")
    assert flag.kind == Kind.BEATEN
    assert "on 2 of 8 samples" in flag.text


@pytest.mark.parametrize(
    ("gradient", "black_box"),
    [
        ([1.0, 1, 1, 1], [0.95, 0.92, 0.95, 0.99]),  # nearer, but not clearly
        ([1.0, 1, 1, 1], [0.5, 2, 2, 2]),  # a single one
        ([1.0] * 20, [0.5] * 3 + [2.0] * 17),  # too few
        ([INF, INF, INF], [INF, INF, INF]),
        ([0.0, 0, 0], [0.0, 0, 0]),
        ([], []),
    ],
)
def test_not_beaten(gradient, black_box):
    assert beaten(gradient, black_box, norm="Linf") is None


def test_one_feature_in_l0_is_no_clear_difference():
    gradient, black_box = np.array([2.0, 3, 4, 9]), np.array([1.0, 2, 3, 9])
    assert beaten(gradient, black_box, norm="L0") is None
    assert beaten(gradient, black_box - 1, norm="L0").kind == Kind.BEATEN


@pytest.fixture(scope="module")
def fashion():
    images, labels = zoo.images_and_labels()[:2]
    rows = torch.linspace(0, 999, 20).long()
    return images[rows], labels[rows]


RUNS = ["fmn", "apgd_min-ce"]


@pytest.mark.parametrize("name", ["F9", pytest.param("F1", marks=pytest.mark.slow)])
def test_honest_nets_are_beaten_by_nobody_and_dishonest_ones_are(name, fashion):
    net = zoo.load(name)

    def negated(x):
        return net(2 * x.detach() - x)

    for model, expected in ((net, None), (negated, Kind.BEATEN)):
        found = trace(
            model, *fashion, norm="Linf", runs=[*RUNS, "square_min"], queries=200
        ).distances[:, -1]
        flag = beaten(found[:2].min(0), found[2], norm="Linf")
        assert (flag and flag.kind) == expected
        with Oracle(model) as oracle:
            flag = noise_check(oracle, *fashion, found[:2].min(0), norm="Linf", seed=42)
        assert (flag and flag.kind) == expected


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_noise_never_breaks_distances_that_are_right_and_breaks_those_that_are_far_too_large(
    norm, fashion
):
    net = zoo.load("F3")
    run = {"L0": "sigma_zero", "L1": "fmn", "L2": "ddn", "Linf": "fmn"}[norm]
    found = trace(net, *fashion, norm=norm, runs=[run], queries=400).frontier()
    assert np.isfinite(found).all()
    with Oracle(net) as oracle:
        assert noise_check(oracle, *fashion, found, norm=norm, seed=42) is None
        flag = noise_check(oracle, *fashion, 30 * found, norm=norm, seed=42)
        assert flag.kind == Kind.BEATEN
        assert noise_check(oracle, *fashion, 30 * found, norm=norm, seed=42) == flag
        assert noise_check(oracle, *fashion, 30 * found, norm=norm, seed=42, batch_size=7) == flag


def test_noise_tells_of_samples_never_broken():
    model = conv_net((1, 8, 8), seed=1)
    images, labels = samples(model, 12, (1, 8, 8), seed=1)
    with Oracle(model) as oracle:
        flag = noise_check(oracle, images, labels, np.full(12, INF), norm="Linf", seed=0)
    assert "of 12 samples" in flag.text


def test_what_noise_costs():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 9, seed=3)
    watch = Watch.on(model)
    with Oracle(model) as oracle:
        assert noise_check(oracle, images, labels, np.zeros(9), norm="L2", seed=0) is None
        assert watch.total == 0
        noise_check(
            oracle,
            images,
            labels,
            np.array([0, 0, INF, 1e-3, 1, 1, 1, 1, 1]),
            norm="L2",
            seed=0,
            batch_size=4,
        )
        assert watch.total == watch.forward == oracle.counts.verification == 4 * 7
    assert oracle.counts.attack == oracle.counts.checks == 0


def constant(x):
    """Return four classes, the first always ahead; the gradient is exactly zero."""
    return torch.tensor([2.0, 1.0, 0.5, 0.0]).to(x) + 0 * x.sum(1, keepdim=True)


def poisoned(x):
    """Return the same logits, whose gradient is NaN: the slope of a square root at zero."""
    return constant(x) + (0 * x).sqrt().sum(1, keepdim=True)


@pytest.mark.parametrize("logits", [constant, poisoned])
def test_models_that_no_run_breaks_are_flagged(logits):
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels, runs = torch.zeros(3, dtype=torch.long), ["pdpgd", "fmn", "ddn", "fmn:restart1", "alma"]
    model = Answering(logits)
    traces = trace(model, images, labels, norm="L2", runs=runs, queries=20)
    assert (traces.distances == INF).all()
    texts = [flag.text for flag in traces.flags]
    names = "pdpgd, fmn, ddn and 2 other runs"
    assert f"{names}: up to 3 samples had no gradient on most steps" in texts
    not_finite = f"{names}: up to 3 samples had logits or gradients that are not finite"
    assert (not_finite in texts) == (logits is poisoned)
