"""One solver on tensors: points, distances, and what is refused."""

import pytest
import torch
from support.models import Watch, conv_net, samples, tanh_mlp
from support.runs import Bench, catalogue
from torch import nn

from advfrontier import FrontierError, attack
from advfrontier.pool import Run
from advfrontier.solvers import FMN, SquareMin, solver_of

ORDERS = {"L0": 0, "L1": 1, "L2": 2, "Linf": torch.inf}


def problem(count=6, *, wrong=(2,)):
    """Return a model and samples, some of which it misclassifies."""
    model = tanh_mlp(hidden=16, seed=3)
    images, labels = samples(model, count, seed=3)
    for row in wrong:
        labels[row] = (labels[row] + 1) % 10
    return model, images, labels


@pytest.mark.parametrize(("norm", "run"), catalogue("restart1", "target1"))
def test_points_are_misclassified_and_at_their_distances(norm, run):
    model, images, labels = problem()
    points, distances = attack(model, images, labels, solver=run, norm=norm, queries=100)
    assert points.shape == images.shape
    assert distances[2] == 0
    assert torch.equal(points[2], images[2])
    broken = distances.isfinite()
    assert broken.sum() >= 3
    assert (model(points).argmax(1) != labels)[broken].all()
    delta = (points.double() - images.double()).flatten(1)
    again = torch.stack([torch.linalg.vector_norm(row, ORDERS[norm]) for row in delta])
    torch.testing.assert_close(distances[broken], again[broken], rtol=1e-14, atol=0)
    assert (again[~broken] == 0).all()


def test_solver_and_name_of_a_run_are_the_same_attack():
    model, images, labels = problem()
    options = {"norm": "L2", "queries": 60}
    named = attack(model, images, labels, solver="fmn", **options)
    given = attack(model, images, labels, solver=solver_of(Run("fmn")), **options)
    other = attack(model, images, labels, solver=FMN(alpha=0.1), **options)
    assert torch.equal(named.distances, given.distances)
    assert torch.equal(named.points, given.points)
    assert not torch.equal(named.distances, other.distances)


def test_attack_is_a_run_whose_schedule_ends_with_its_queries():
    model, images, labels = problem()
    bench = Bench.of(model, images, labels, "L2")
    expected = bench.finished("fmn", 60, horizon=60).distances
    found = attack(model, images, labels, norm="L2", queries=60).distances
    assert torch.equal(found[[0, 1, 3, 4, 5]], expected)


def test_every_query_is_counted_at_the_model():
    """Two for the clean pass of each sample, and 40 on the five that are attacked."""
    model, images, labels = problem()
    watch = Watch.on(model)
    attack(model, images, labels, norm="L2", queries=40)
    assert watch.total == 2 * 6 + 5 * 40


def test_black_box_solver_asks_for_no_gradient():
    model, images, labels = problem()

    def closed(x):
        with torch.no_grad():
            return model(x)

    found = attack(closed, images, labels, solver=SquareMin(), norm="Linf", queries=200)
    assert found.distances.isfinite().all()
    with pytest.raises(FrontierError, match="no gradient with respect to the images"):
        attack(closed, images, labels, norm="Linf", queries=20)


def test_batches_give_the_distances_of_one_batch():
    model, images, labels = problem(7)
    options = {"norm": "L2", "queries": 60}
    one = attack(model.double(), images, labels, **options)
    many = attack(model, images, labels, batch_size=3, **options)
    torch.testing.assert_close(many.distances, one.distances, rtol=1e-6, atol=0)


@pytest.mark.parametrize("wrong", [range(4), (0, 1)])
def test_batch_of_misclassified_samples_alone_has_distance_zero(wrong):
    model, images, labels = problem(4, wrong=wrong)
    found = attack(model, images, labels, norm="L2", queries=20, batch_size=2)
    assert (found.distances[list(wrong)] == 0).all()
    assert torch.equal(found.points[list(wrong)], images[list(wrong)])


def test_seed_decides_the_random_start():
    model, images, labels = problem()
    options = {"solver": "fmn:restart1", "norm": "L2", "queries": 20}
    first, again, other = (
        attack(model, images, labels, seed=seed, **options).points for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_model_and_images_of_the_caller_are_left_as_they_were():
    model, images, labels = problem()
    model.train()
    copy = images.clone()
    points, _ = attack(model, images, labels, norm="L2", queries=20)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(images, copy)
    assert not points.requires_grad


class Half(nn.Module):
    """A model that computes in float16, as `model.half()` makes it."""

    def __init__(self):
        super().__init__()
        self.net = conv_net((3, 8, 8), classes=10, seed=1).half()

    def forward(self, images):
        assert images.dtype == torch.float16
        return self.net(images)


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_half_precision_models_are_attacked_near_the_distances_of_the_float32_one(norm):
    single = conv_net((3, 8, 8), classes=10, seed=1)
    images, labels = samples(single, 5, (3, 8, 8), seed=1, low=0.25, high=0.75)
    half = Half()
    points, distances = attack(half, images, labels, norm=norm, queries=100)
    assert points.dtype == torch.float32
    assert distances.isfinite().all()
    assert (half(points.half()).argmax(1) != labels)[distances > 0].all()
    expected = attack(single, images, labels, norm=norm, queries=100).distances
    near = (distances / expected).median()
    assert 0.7 < near < 1.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": 95}, "cannot stop after 95 queries: expected a multiple of 10"),
        ({"queries": 0}, "queries"),
        ({"norm": "L7"}, "unknown norm"),
        ({"solver": "ddn", "norm": "Linf"}, "ddn does not run in Linf"),
        ({"solver": "nothing"}, "unknown solver in run nothing"),
        ({"solver": "fmn:restart9"}, "no run fmn:restart9"),
        ({"device": "abacus"}, "the device abacus cannot be used"),
    ],
)
def test_attack_refuses_what_cannot_be_run(options, message):
    model, images, labels = problem(2, wrong=())
    with pytest.raises(FrontierError, match=message):
        attack(model, images, labels, **{"norm": "L2", "queries": 20} | options)


def test_attack_refuses_targets_that_the_model_does_not_have():
    model = tanh_mlp(hidden=8, classes=3)
    images, labels = samples(model, 2)
    with pytest.raises(FrontierError, match=r"no fmn:target3 with 3 classes.*target2"):
        attack(model, images, labels, solver="fmn:target3", queries=20)
