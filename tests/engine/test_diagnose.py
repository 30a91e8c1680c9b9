"""Gradients that mislead are flagged, those of honest networks never are; so are distances that
searches or noise beat.
"""

import numpy as np
import pytest
import torch
from support.models import Answering, Watch, conv_net, samples, tanh_mlp
from support.nets import NAMES, needs_nets, net

from advfrontier import attack, trace, zoo
from advfrontier.engine import Oracle, Stretch, beaten, check_model, noise_check
from advfrontier.engine.diagnose import BEFORE, Slope, diagnose_points, mismatch
from advfrontier.engine.diagnose import _draws_for as draws_for
from advfrontier.flags import Kind

INF = np.inf


def shattered(model, frequency=1e4):
    def logits(x):
        s = 0.3 * torch.sin(frequency * x)
        return model(x + s - s.detach())

    return logits


def random_slope(model):
    def logits(x):
        noise = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0))
        z = model(x.detach())
        slope = ((x - x.detach()) * noise).flatten(1).sum(1, keepdim=True)
        return z + slope * torch.linspace(-1, 1, z.shape[1])

    return logits


def rounded(model, levels=255):
    return lambda x: model(x + ((x * levels).round() / levels - x).detach())


DISHONEST = {
    "negated": lambda model: lambda x: model(2 * x.detach() - x),
    "shattered": shattered,
    "shattered slowly": lambda model: shattered(model, 50.0),
    "random": random_slope,
}
HONEST = {
    "plain": lambda model: model,
    "rounded to 8 bits": rounded,
    "half precision": lambda model: lambda x: model(x).bfloat16(),
    "half precision, widened": lambda model: lambda x: model(x).bfloat16().float(),
    "kinked": lambda model: lambda x: model((x - 0.5).abs() + 0.5),
    "flat": lambda model: lambda x: 1e-3 * model(x),
    "steep": lambda model: lambda x: 1e3 * model(x),
}


def kinds(model, images, labels):
    with Oracle(model) as oracle:
        return {flag.kind for flag in check_model(oracle, images, labels)}


def few(images, labels, count=16):
    rows = torch.linspace(0, len(images) - 1, count).long()
    return images[rows], labels[rows]


# Before any attack


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name != "F16"])
def test_no_model_of_the_zoo_is_suspected(name):
    assert kinds(zoo.load(name), *few(*zoo.images_and_labels()[:2])) == set()


def test_the_masked_model_of_the_zoo_is():
    assert kinds(zoo.load("F16"), *few(*zoo.images_and_labels()[:2])) == {Kind.NO_GRADIENTS}


@needs_nets
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i % 2)) for i, name in enumerate(NAMES)]
)
def test_real_nets(name):
    model, images, labels = net(name, 200)
    model.requires_grad_(requires_grad=False)
    images, labels = few(images, labels)
    assert kinds(model, images, labels) == set()
    for make in DISHONEST.values():
        assert kinds(make(model), images, labels) == {Kind.MISLEADING_GRADIENTS}


@pytest.mark.parametrize("name", ["F1", "F4", "F9", "F13"])
@pytest.mark.parametrize("how", DISHONEST)
def test_dishonest_gradients_are_flagged(name, how):
    images, labels = few(*zoo.images_and_labels()[:2])
    assert kinds(DISHONEST[how](zoo.load(name)), images, labels) == {Kind.MISLEADING_GRADIENTS}


@pytest.mark.parametrize("name", ["F1", "F4", "F9", "F13"])
@pytest.mark.parametrize("how", HONEST)
def test_honest_gradients_are_not(name, how):
    images, labels = few(*zoo.images_and_labels()[:2])
    assert kinds(HONEST[how](zoo.load(name)), images, labels) <= {Kind.PRECISION}


def test_a_share_of_the_samples_is_enough():
    """Half of the images, here the brighter ones, have their gradient negated."""
    model = conv_net((1, 8, 8), seed=1)
    images, labels = samples(model, 20, (1, 8, 8), seed=1)
    middle = images.mean((1, 2, 3)).median()

    def logits(x):
        bright = x.mean((1, 2, 3), keepdim=True) > middle
        return model(torch.where(bright, 2 * x.detach() - x, x))

    with Oracle(logits) as oracle:
        (flag,) = check_model(oracle, images, labels)
    assert flag.kind == Kind.MISLEADING_GRADIENTS
    assert "on 50% of the checked samples" in flag.text


def on_levels(x):
    """Tell which images have 8-bit values only."""
    return ((x * 255 - (x * 255).round()).abs().flatten(1) < 1e-3).all(1)[:, None, None, None]


def test_gradients_that_are_right_at_8_bit_images_alone_are_flagged():
    model = conv_net((1, 8, 8), seed=1)
    images, _ = samples(model, 20, (1, 8, 8), seed=1)
    images = (images * 255).round() / 255
    labels = model(images).argmax(1)
    with Oracle(lambda x: model(torch.where(on_levels(x), x, 2 * x.detach() - x))) as oracle:
        (flag,) = check_model(oracle, images, labels)
    assert flag.kind == Kind.MISLEADING_GRADIENTS
    assert "on 100% of the points near the checked samples" in flag.text


def test_gradients_that_lack_a_part_of_the_image_are_flagged():
    model = conv_net((1, 8, 8), seed=1)
    images, labels = samples(model, 20, (1, 8, 8), seed=1)
    part = torch.zeros(8, 8, dtype=torch.bool)
    part[:, 6:] = True
    assert kinds(lambda x: model(torch.where(part, x.detach(), x)), images, labels) == {
        Kind.MISLEADING_GRADIENTS
    }


def at(oracle, images, labels, gradient=None):
    slope = Slope.at(oracle, images, labels)
    if gradient is not None:
        length = gradient.flatten(1).norm(dim=1)
        slope = Slope(slope.points, slope.pair, slope.logits, gradient, length)
    return mismatch(oracle, slope, slope.reach, BEFORE, draws_for(images))


WEIGHT = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
INSIDE = 0.3 + 0.4 * torch.rand(6, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("factor", "expected"), [(1, 0.0), (-1, 2.0), (0.5, 0.2), (2, 0.2)])
def test_mismatch_of_a_linear_model_is_exact(factor, expected):
    labels = (INSIDE @ WEIGHT).argmax(1)
    with Oracle(Answering(lambda x: x @ WEIGHT)) as oracle:
        gradient = factor * Slope.at(oracle, INSIDE, labels).gradient
        found = at(oracle, INSIDE, labels, gradient)
    torch.testing.assert_close(
        found, torch.full_like(found, expected), rtol=0, atol=0.05, equal_nan=True
    )
    assert found.isfinite().any()


def test_mismatch_of_a_linear_model_is_zero_at_ends_of_the_box_too():
    images = (INSIDE - 0.4).mul(8).clamp(0, 1)
    assert (images == 0).any()
    assert (images == 1).any()
    labels = (images @ WEIGHT).argmax(1)
    with Oracle(Answering(lambda x: x @ WEIGHT)) as oracle:
        gradient = Slope.at(oracle, images, labels).gradient
        right = at(oracle, images, labels, gradient)
        negated = at(oracle, images, labels, -gradient)
    assert right[0].nan_to_num(0).amax() < 1e-3
    assert negated[0].nanmedian() > 0.3


def test_mismatch_is_unknown_where_rounding_hides_every_change():
    images = torch.rand(3, 16)
    still = Answering(lambda x: torch.tensor([[2.0, 1.0]]) + 1e-9 * (x - x.detach())[:, :2])
    with Oracle(still) as oracle:
        found = at(oracle, images, torch.zeros(3).long())
    assert found.isnan().all()


def test_mismatch_is_one_where_logits_move_and_the_gradient_says_nothing():
    images = torch.rand(3, 16) * 0.5 + 0.25
    labels = torch.zeros(3).long()
    function = Answering(lambda x: torch.stack((4 - x.sum(1).detach(), 1e-9 * x.sum(1)), 1))
    with Oracle(function) as oracle:
        found = at(oracle, images, labels)
    torch.testing.assert_close(found, torch.ones_like(found), rtol=0, atol=0.05)


def test_it_is_not_asked_of_models_that_vary_and_costs_36_queries_of_others():
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, 8, seed=3)
    watch = Watch.on(model)
    with Oracle(model) as oracle:
        check_model(oracle, images, labels)
    assert watch.total == oracle.counts.checks == (1 + 1 + 0.5 + 36) * 8
    assert kinds(
        lambda x: model(2 * x.detach() - x) + 0.1 * torch.randn(len(x), 10), images, labels
    ) == {Kind.RANDOM}


# At the points found


def test_gradients_that_are_wrong_at_the_points_found_are_flagged():
    model = conv_net((1, 8, 8), seed=1)
    images, labels = samples(model, 12, (1, 8, 8), seed=1)
    points, distances = attack(model, images, labels, solver="fmn", norm="L2", queries=100)
    assert distances.isfinite().all()

    def wrong_at_points(x):
        far = (x.detach().flatten(1)[:, None] - images.flatten(1)).norm(dim=2).amin(1) > 1e-3
        return model(torch.where(far[:, None, None, None], 2 * x.detach() - x, x))

    watch = Watch.on(model)
    for function, expected in ((model, []), (wrong_at_points, [Kind.MISLEADING_GRADIENTS])):
        with Oracle(function) as oracle:
            flags = diagnose_points(oracle, images, labels, points)
        assert [flag.kind for flag in flags] == expected
        assert oracle.counts.checks == 14 * 12
    assert watch.total == 2 * 14 * 12
    assert "of the points found" in flags[0].text


# Searches without gradients


def stretches(*steps):
    """Make stretches of (kind, queries, distances afterwards); the samples begin unbroken."""
    before = np.where(np.asarray(steps[0][2]) > 0, INF, 0.0)
    for kind, queries, reached in steps:
        after = np.asarray(reached, dtype=float)
        yield Stretch(kind == "search", queries, np.ones(len(after), dtype=bool), before, after)
        before = after


REACHED = [1.0, 1, 1, 1, 1, INF, INF, 0, 0, 1]
LOWERED = [0.5, 1, 1, 1, 1, 3.0, INF, 0, 0, 1]


def test_beaten_on_a_clear_share():
    flag = beaten(stretches(("attack", 300, REACHED), ("search", 100, LOWERED)), norm="Linf")
    assert flag.kind == Kind.BEATEN
    assert "on 2 of 8 samples" in flag.text


def test_beaten_stays_when_more_queries_are_spent():
    later = [d / 10 for d in LOWERED]
    steps = [("attack", 300, REACHED), ("search", 100, LOWERED), ("attack", 900, later)]
    more = [d / 100 for d in LOWERED]
    assert beaten(stretches(*steps), norm="Linf") == beaten(stretches(*steps[:2]), norm="Linf")
    assert beaten(stretches(*steps, ("search", 10, more)), norm="Linf") is not None


def test_beaten_adds_up_what_searches_lowered():
    steps = [("attack", 300, [1.0, 1, 1]), ("search", 100, [0.94, 0.94, 1])]
    assert beaten(stretches(*steps), norm="L2") is None
    steps.append(("attack", 100, [0.5, 0.5, 0.5]))
    steps.append(("search", 100, [0.47, 0.47, 0.5]))
    assert "on 2 of 3 samples" in beaten(stretches(*steps), norm="L2").text


@pytest.mark.parametrize(
    ("spent", "reached", "lowered"),
    [
        (300, [1.0, 1, 1, 1], [0.95, 0.92, 0.95, 0.99]),  # nearer, but not clearly
        (300, [1.0, 1, 1, 1], [0.5, 1, 1, 1]),  # a single one
        (300, [1.0] * 20, [0.5] * 3 + [1.0] * 17),  # too few
        (300, [INF, INF, INF], [INF, INF, INF]),
        (300, [0.0, 0, 0], [0.0, 0, 0]),
        (300, [], []),
        (290, [1.0, 1, 1], [0.5, 0.5, 0.5]),  # attacks have hardly begun
    ],
)
def test_not_beaten(spent, reached, lowered):
    steps = ("attack", spent, reached), ("search", 100, lowered)
    assert beaten(stretches(*steps), norm="Linf") is None


def test_beaten_in_l0_takes_half_of_the_distance_and_two_features():
    one = ("attack", 300, [2.0, 3, 4, 9]), ("search", 100, [1.0, 2, 3, 9])
    few = ("attack", 300, [9.0, 9, 9, 9]), ("search", 100, [5.0, 5, 5, 9])
    two = ("attack", 300, [4.0, 5, 7, 9]), ("search", 100, [1.0, 2, 3, 9])
    assert beaten(stretches(*one), norm="L0") is None
    assert beaten(stretches(*few), norm="L0") is None  # by less than half
    assert beaten(stretches(*two), norm="L0").kind == Kind.BEATEN


# Noise


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

    for model, expected in ((net, set()), (negated, {Kind.BEATEN, Kind.NOISE})):
        found = trace(
            model, *fashion, norm="Linf", runs=[*RUNS, "square_min"], queries=200
        ).distances[:, -1]
        attacks = found[:2].min(0)
        steps = ("attack", 400, attacks), ("search", 200, found.min(0))
        flags = [beaten(stretches(*steps), norm="Linf")]
        with Oracle(model) as oracle:
            flags.append(noise_check(oracle, *fashion, attacks, norm="Linf", seed=42))
        assert {flag.kind for flag in flags if flag} == expected


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
        assert flag.kind == Kind.NOISE
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
    names = "pdpgd, fmn, ddn and 2 others"
    assert f"{names}: up to 3 samples had no gradient on most steps" in texts
    not_finite = f"{names}: up to 3 samples had logits or gradients that are not finite"
    assert (not_finite in texts) == (logits is poisoned)
