"""What is refused, what is flagged, and that the messages say what to do."""

import re

import numpy as np
import pytest
import torch
from support.models import Answering, Watch, conv_net, samples, tanh_mlp
from torch import nn
from torch.nn.functional import dropout

from advfrontier import FrontierError, trace
from advfrontier.engine import Oracle, accuracy_flag, check_data, check_model
from advfrontier.flags import Kind

IMAGES = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (IMAGES.numpy(), LABELS, "must be tensors: found ndarray, Tensor"),
        (IMAGES, LABELS.tolist(), "must be tensors: found Tensor, list"),
        ((IMAGES * 255).to(torch.uint8), LABELS, r"torch.uint8.*type images / 255"),
        (IMAGES.flatten(), LABELS, r"shape \(96,\).*samples, channels, height, width"),
        (IMAGES[:0], LABELS[:0], r"shape \(0, 1, 4, 4\)"),
        (IMAGES, LABELS[:5], r"6 images but labels of shape \(5,\).*one label per image"),
        (IMAGES, nn.functional.one_hot(LABELS), r"labels of shape \(6, 4\)"),
        (IMAGES, LABELS.float(), "labels are torch.float32.*integers"),
        (IMAGES, LABELS > 1, "labels are torch.bool"),
        (IMAGES * 255, LABELS, r"to 25\d.*expected \[0, 1\]; if they are 8-bit, divide by 255"),
        (
            IMAGES * 3 - 1.5,
            LABELS,
            r"range from -1.*normalisation inside the model.*Normalised\(model, mean, std\)",
        ),
        (
            IMAGES * 3.2 - 0.4,
            LABELS,
            r"range from -0.*to 2\.\d+: expected \[0, 1\]; if they are normalised",
        ),
        (
            IMAGES - 2e-6 * (IMAGES.min() == IMAGES) - IMAGES.min(),
            LABELS,
            r"range from -2.*e-06 to .*expected \[0, 1\]",
        ),
        (
            IMAGES.masked_fill(IMAGES > 0.9, torch.nan),
            LABELS,
            r"to nan: expected \[0, 1\]; leave out those that hold .* not finite",
        ),
        (
            IMAGES.masked_fill(IMAGES > 0.9, torch.inf),
            LABELS,
            r"to inf: expected \[0, 1\]; leave out those that hold .* not finite",
        ),
    ],
)
def test_data_that_cannot_be_evaluated(images, labels, words):
    with pytest.raises(FrontierError, match=words):
        check_data(images, labels)


def test_rounding_outside_the_box_is_clamped():
    images = IMAGES.double()
    images[0, 0, 0, :2] = torch.tensor([-1e-7, 1 + 1e-7], dtype=torch.float64)
    checked = check_data(images, LABELS)
    assert checked.min() == 0
    assert checked.max() == 1
    assert images.min() < 0  # the caller's own are left alone
    inside = (images >= 0) & (images <= 1)
    assert torch.equal(checked[inside], images[inside])
    assert check_data(IMAGES, LABELS) is IMAGES


def test_clamped_images_can_be_traced():
    model = conv_net((1, 4, 4), classes=4)
    images, labels = samples(model, 6, (1, 4, 4))
    images[:, :, 0, 0] = 1 + 1e-7
    images[:, :, 0, 1] = -1e-7
    labels = model(images.clamp(0, 1)).argmax(1)
    traces = trace(model, images, labels, norm="L2", runs=["fmn"], queries=20)
    assert (traces.distances > 0).all()


def checked(function, *, classes=4, gradients=True):
    with Oracle(Answering(function)) as oracle:
        return check_model(oracle, IMAGES, LABELS % classes, gradients=gradients)


WEIGHT = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def sound(x):
    return x @ WEIGHT


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda x: sound(x)[:, 0],
            r"returned \(6,\) for 6 images: expected logits of shape \(6, classes",
        ),
        (lambda x: sound(x)[:, :1], r"returned \(6, 1\) for 6 images"),
        (lambda x: sound(x)[:3], r"returned \(3, 4\) for 6 images"),
        (lambda x: sound(x)[..., None], r"returned \(6, 4, 1\) for 6 images"),
        (
            lambda x: (sound(x), x),
            r"returned tuple of 2: .*hand over lambda images: model\(images\)\[0\]",
        ),
        (
            lambda x: {"a": sound(x), "b": x},
            r"returned dict of a, b: .*hand over lambda images: model\(images\)\['KEY'\]",
        ),
        (lambda _: "logits", "returned str: .*hand over a function of images"),
        (lambda x: sound(x) / 0, "not finite on clean images"),
        (
            lambda x: sound(x).index_fill(0, torch.tensor([4]), torch.nan),
            "not finite on clean images",
        ),
        (
            lambda x: sound(x)[:, :3],
            "labels range from 0 to 3, but the model has 3 classes: 0 to 2",
        ),
        (lambda x: sound(x).detach(), r"no gradient.*detach.*--pool black-box"),
        (
            lambda x: x.flatten(1) @ torch.ones(3, 4),
            r"cannot take images of shape \(6, 1, 4, 4\) \(RuntimeError: mat1",
        ),
    ],
)
def test_models_that_cannot_be_evaluated(function, words):
    with pytest.raises(FrontierError, match=words):
        checked(function)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_devices_that_are_not_there(device):
    with pytest.raises(
        FrontierError,
        match=rf"the device {device} cannot be used here .*: expected one such as cpu",
    ):
        Oracle(sound, device=device)


def test_a_sound_model_gets_no_flag():
    assert checked(sound) == []
    model = tanh_mlp((1, 4, 4), classes=4)
    with Oracle(model) as oracle:
        assert check_model(oracle, IMAGES, LABELS) == []


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (
            lambda x: sound(x).softmax(1),
            "probabilities",
            "probabilities, not logits.*remove the softmax",
        ),
        (
            lambda x: sound(dropout(x, 0.2)),
            "random",
            "random: two passes over the same images differ",
        ),
        (lambda x: sound(x - x.mean(0)), "batch", "depends on the other images of the batch"),
        (
            lambda x: sound(x * (x[:, :1] > 0.5)),
            "zero-gradients",
            "no gradient on 67% of the checked samples",
        ),
        (
            lambda x: sound(x) + (0 * x[:, :1]).sqrt(),
            "bad-gradients",
            "not finite on 100% of the checked",
        ),
        (
            lambda x: sound(x) + 1e5,
            "precision",
            "rounded to 0.01 where the margin is .* share a large offset",
        ),
        (lambda x: sound(x).half(), "precision", "torch.float16 logits, rounded to .* float32"),
    ],
)
def test_models_in_doubt_are_flagged(function, kind, words):
    flags = checked(function)
    assert len(flags) == 1
    assert flags[0].kind == kind
    assert re.search(words, flags[0].text)


def test_shares_of_samples_without_gradient():
    dead = int((IMAGES.flatten(1)[:, 0] <= 0.5).sum())
    assert 0 < dead < 6
    (flag,) = checked(lambda x: sound(x * (x[:, :1] > 0.5)) + torch.eye(4)[0])
    assert f"{dead / 6:.0%} of the checked samples" in flag.text


def test_random_weights_are_flagged_once_and_not_as_batch_dependence():
    (flag,) = checked(lambda x: sound(x) + 0.1 * torch.randn(len(x), 4))
    assert "random" in flag.text


def test_train_mode_is_flagged_and_undone():
    model = nn.Sequential(tanh_mlp((1, 4, 4), classes=4), nn.Dropout(0.9)).train()
    images, labels = samples(model.eval(), 5, (1, 4, 4))
    traces = trace(model.train(), images, labels, norm="L2", runs=["fmn"], queries=10)
    assert [flag for flag in traces.flags if "train mode" in flag.text]
    assert not [flag for flag in traces.flags if "random" in flag.text]
    assert model.training


def test_flags_reach_the_result():
    images, _ = samples(tanh_mlp((1, 4, 4), classes=4), 5, (1, 4, 4))
    labels = sound(images.flatten(1)).argmax(1)
    traces = trace(
        Answering(lambda x: sound(x).softmax(1)),
        images,
        labels,
        norm="L2",
        runs=["fmn"],
        queries=10,
    )
    assert any("probabilities" in flag.text for flag in traces.flags)


@pytest.mark.parametrize("place", [0, 1, 34])
@pytest.mark.parametrize("label", [-1, 10])
def test_labels_out_of_range_are_found_wherever_they_are(place, label):
    model = tanh_mlp(hidden=16)
    images, labels = samples(model, 40)
    labels[place] = label
    with pytest.raises(
        FrontierError, match=r"labels range from .* but the model has 10 classes: 0 to 9"
    ):
        trace(model, images, labels, norm="L2", runs=["fmn"], queries=10)


def outside(images):
    """A callable without gradients, such as a service or an exported model."""
    weight = WEIGHT.numpy().repeat(3, axis=0)
    return torch.from_numpy(
        (images.detach().numpy().reshape(len(images), -1) @ weight).astype(np.float32)
    )


def test_black_box_runs_need_no_gradient():
    images = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = outside(images).argmax(1)
    with pytest.raises(
        FrontierError, match=r"no gradient with respect to the images.*--pool black-box"
    ):
        trace(outside, images, labels, norm="Linf", runs=["square_min", "fmn"], queries=10)
    traces = trace(
        outside,
        images,
        labels,
        norm="Linf",
        runs=["square_min", "square_min:restart2"],
        queries=200,
    )
    assert np.isfinite(traces.distances[:, -1]).all()
    assert traces.counts["setup"] == 5
    assert traces.flags == ()


def test_checks_look_at_samples_from_all_over_the_data():
    """A flaw in the last images is seen too."""
    model = tanh_mlp(hidden=16)
    images, labels = samples(model, 60)
    images[59] = 1.0
    broken = Answering(lambda x: model(x) + torch.where((x == 1).all(1), torch.nan, 0.0)[:, None])
    watch = Watch.on(broken)
    with pytest.raises(FrontierError, match="not finite on clean images"):
        trace(broken, images, labels, norm="L2", runs=["fmn"], queries=10)
    assert watch.total < 60


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
