"""The solvers in the pixel-wise ℓ0: closed form, brute force, budgets of queries and operations."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from support.device import count_device_work
from support.models import linear, samples, tanh_mlp
from support.nets import needs_nets, net
from support.runs import Bench, runs_of, same
from torch import nn

from advfrontier import attack, evaluate
from advfrontier.solvers.sparse_min import other_end
from advfrontier.threat.norms import make_norm

NORM, SHAPE = "L0pixel", (3, 2, 3)
RUNS = [str(run) for run in runs_of(NORM, "restart1", "target1")]


class Convex(nn.Module):
    """A net whose margin is largest at corners of the box: the other class is a convex function."""

    def __init__(self, seed):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(18, 8, generator=rng))
        self.second = nn.Parameter(torch.rand(8, generator=rng))
        self.plane = nn.Parameter(torch.randn(18, generator=rng) / 4)
        self.offset = nn.Parameter(torch.tensor(0.0))

    def forward(self, images):
        flat = images.flatten(1)
        other = (flat @ self.first).relu() @ self.second
        return torch.stack([flat @ self.plane + self.offset, other], 1)


def convex_problem(seed):
    """Return a net and inputs of class 0, at a middling distance."""
    model = Convex(seed)
    images = torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        gap = model(images)[:, 1] - model(images)[:, 0]
        model.offset += gap.amax() + 1.5
    return model, images, torch.zeros(6, dtype=torch.long)


def fewest_pixels(model, images):
    """Return the least number of pixels, by trying every set of pixels at every corner."""
    found = []
    for image in images:
        found.append(next(k for k in range(1, 7) if _breaks(model, image, k)))
    return found


def _breaks(model, image, count):
    corners = torch.tensor(list(product([0.0, 1.0], repeat=3 * count)))
    for chosen in combinations(range(6), count):
        points = image.flatten(1).repeat(len(corners), 1, 1)
        points[:, :, list(chosen)] = corners.view(-1, 3, count)
        with torch.no_grad():
            logits = model(points)
        if bool((logits[:, 1] - logits[:, 0] > 1e-4).any()):
            return True
    return False


def fewest_on_a_plane(weight, bias, inputs, labels):
    """Return the closed form for linear logits: pixels in the order of their gains."""
    found = []
    for x, y in zip(inputs.double(), labels, strict=True):
        best = np.inf
        for other in range(len(weight)):
            if other == y:
                continue
            slope = weight[y] - weight[other]
            gap = slope @ x + bias[y] - bias[other]
            gains = (torch.where(slope > 0, x, 1 - x) * slope.abs()).view(3, -1).sum(0)
            reached = gains.sort(descending=True).values.cumsum(0) > gap
            if reached.any():
                best = min(best, int(reached.int().argmax()) + 1)
        found.append(best)
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_ensemble_finds_the_fewest_pixels_of_a_convex_net(seed):
    model, images, labels = convex_problem(seed)
    found = evaluate(model, images, labels, norm=NORM, ensemble="4k")
    assert found.distances.tolist() == fewest_pixels(model, images)


@pytest.mark.parametrize("shape", [(3, 4, 4), pytest.param((3, 8, 8), marks=pytest.mark.slow)])
def test_the_default_ensemble_finds_the_fewest_pixels_of_a_plane(shape):
    features = shape[0] * shape[1] * shape[2]
    layer = linear(features, 4)
    model = nn.Sequential(nn.Flatten(), layer)
    images, labels = samples(model, 10, shape)
    weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
    found = evaluate(model, images, labels, norm=NORM, ensemble="4k")
    least = fewest_on_a_plane(weight, bias, images.flatten(1), labels)
    assert found.distances.tolist() == least


@pytest.mark.parametrize("run", RUNS)
def test_points_change_as_many_pixels_as_they_say(run):
    model = tanh_mlp((3, 4, 4), hidden=16, seed=3)
    images, labels = samples(model, 6, (3, 4, 4), seed=3)
    points, distances = attack(model, images, labels, solver=run, norm=NORM, queries=200)
    changed = (points != images).any(1).flatten(1).sum(1)
    assert changed.tolist() == distances.tolist()
    assert ((points >= 0) & (points <= 1)).all()
    assert (model(points).argmax(1) != labels).all()


@pytest.mark.parametrize("run", RUNS)
def test_runs_resume_bit_for_bit_and_their_steps_wait_for_nothing(run):
    model = tanh_mlp((3, 4, 4), hidden=16, seed=3)
    bench = Bench.of(model, *samples(model, 5, (3, 4, 4), seed=3), NORM)
    whole = bench.search(run, horizon=200)
    expected = bench.go(whole, 200)
    first, second = bench.search(run, horizon=200), bench.search(run, horizon=200)
    before = bench.go(first, 90)
    second.restore(first.tensors(), 90)
    assert torch.equal(torch.cat([before, bench.go(second, 200)]), expected)
    assert same(second.tensors(), whole.tensors())
    again = bench.search(run, horizon=200)
    bench.go(again, 10)
    with count_device_work() as work:
        bench.go(again, 18)
    assert work.waits == 0, work.where


def test_other_ends_of_a_pixel_are_taken_where_it_is_there_already():
    norm = make_norm(NORM, (3, 1, 2))
    inputs = torch.tensor([[0.0, 0.5, 1.0, 1.0, 0.0, 0.0]])  # pixels (0, 1, 0) and (0.5, 1, 0)
    signs = torch.tensor([[-1.0, -1.0, 1.0, 1.0, -1.0, -1.0]])  # ends (0, 1, 0) for both
    assert other_end(norm, inputs, signs).tolist() == [[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]]


# --------------------------------------------------------------------- beside Sparse-RS, slow

_SHARES = ((10, 1), (50, 2), (200, 4), (500, 5), (1000, 6), (2000, 8), (4000, 10), (6000, 12))
_SHARES += ((8000, 15), (10_000, 20))


def share_at(i, queries, first=0.3):
    """Return the share of pixels that Sparse-RS exchanges at a step."""
    place = 10_000 * i // queries
    return first / next(divisor for last, divisor in _SHARES if place <= last)


@torch.no_grad()
def sparse_rs(model, images, labels, pixels, queries=5000):
    """Return which images Sparse-RS (Croce et al., AAAI 2022) breaks with so many pixels."""
    rng = torch.Generator().manual_seed(0)
    broken = torch.zeros(len(images), dtype=torch.bool)
    size, flat = images[0, 0].numel(), images.flatten(2)

    def loss(points, rows):
        logits = model(points.view(-1, *images.shape[1:]))
        own = logits.gather(1, labels[rows, None])
        return (
            own - logits.scatter(1, labels[rows, None], -torch.inf).amax(1, keepdim=True)
        ).squeeze(1)

    mask = torch.rand(len(images), size, generator=rng).topk(pixels).indices
    mask = torch.zeros(len(images), size).scatter_(1, mask, 1).bool()
    colours = torch.randint(0, 2, flat.shape, generator=rng).float()
    best = torch.where(mask[:, None], colours, flat)
    rows = torch.arange(len(images))
    lowest = loss(best, rows)
    for i in range(1, queries):
        broken[rows[lowest < 0]] = True
        left = lowest >= 0
        rows, mask, best, lowest = rows[left], mask[left], best[left], lowest[left]
        if not len(rows):
            break
        count = max(int(share_at(i, queries) * pixels), 1)
        order = torch.rand(mask.shape, generator=rng)
        drop = order.masked_fill(~mask, -1).topk(count).indices
        add = order.masked_fill(mask, -1).topk(count).indices
        trial = mask.scatter(1, drop, torch.zeros_like(drop, dtype=torch.bool))
        trial = trial.scatter(1, add, torch.ones_like(add, dtype=torch.bool))
        colours = torch.randint(0, 2, best.shape, generator=rng).float()
        points = torch.where(
            (trial & mask)[:, None], best, torch.where(trial[:, None], colours, flat[rows])
        )
        value = loss(points, rows)
        lower = value < lowest
        best = torch.where(lower[:, None, None], points, best)
        mask = torch.where(lower[:, None], trial, mask)
        lowest = torch.where(lower, value, lowest)
    broken[rows[lowest < 0]] = True
    return broken


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("name", ["cifar_cnn_a_adv", "cifar_resnet2b"])
def test_4k_is_nearer_than_sparse_rs_at_every_number_of_pixels(name):
    """Sparse-RS gets 5,000 queries for each of twelve numbers of pixels; 4k has 4,000 in all."""
    model, images, labels = net(name, 24)
    found = evaluate(model, images, labels, norm=NORM, ensemble="4k")
    rows = torch.from_numpy(found.distances > 0)
    ours = torch.from_numpy(found.distances)[rows]
    images, labels = images[rows], labels[rows]
    theirs = torch.full_like(ours, images[0, 0].numel())
    for pixels in (128, 64, 48, 32, 24, 16, 12, 8, 6, 4, 2, 1):
        left = (theirs > pixels).nonzero().squeeze(1)
        broken = sparse_rs(model, images[left], labels[left], pixels)
        theirs[left[broken]] = pixels
    figures = f"{name}: 4k {ours.mean():.2f}, Sparse-RS {theirs.mean():.2f} pixels"
    assert ours.mean() < theirs.mean(), figures
