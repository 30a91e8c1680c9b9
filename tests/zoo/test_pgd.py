"""PGD inside a ball: never outside, and at the optimum where the optimum is known."""

import pytest
import torch
from support.models import linear, tanh_mlp

from advfrontier.threat.losses import margin
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import make_norm
from advfrontier.zoo import pgd, survivors

RADII = {"L0": 12.0, "L1": 10.0, "L2": 1.5, "Linf": 0.1}
SMALL = {
    "L0": 4.0,
    "L1": 4.0,
    "L2": 0.5,
    "Linf": 0.05,
}  # where the random network still answers some samples correctly
EVERY_NORM = pytest.mark.parametrize("norm", NORMS)
SHAPE = (1, 12, 12)


def batch(count, *, seed=0, low=0.0, high=1.0):
    x = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return (low + (high - low) * x).clamp_(0, 1)


@EVERY_NORM
@pytest.mark.parametrize("steps", [1, 5, 20])
def test_points_stay_in_ball_and_box(norm, steps):
    # Many features at the ends of the box, where a projection onto ball and box is not one after
    # the other.
    x = batch(40, low=-0.7, high=1.7)
    model = tanh_mlp(SHAPE)
    y = model(x).argmax(1)
    point = pgd(
        model, x, y, norm, RADII[norm], steps=steps, generator=torch.Generator().manual_seed(1)
    )
    size = make_norm(norm, SHAPE).size((point - x).double().flatten(1))
    assert point.min() >= 0
    assert point.max() <= 1
    assert (size <= RADII[norm] * (1 + 1e-5)).all()
    assert (size > 0).all()


@EVERY_NORM
def test_optimum_of_a_linear_model_is_reached(norm):
    """Two classes: the largest loss of margin w·x + b in the ball is known in closed form away from
    the box's ends.
    """
    layer = linear(144, 2, seed=3)
    x = torch.full((4, *SHAPE), 0.5) + 0.1 * batch(4, seed=5)
    y = torch.tensor([0, 1, 0, 1])
    w = (layer.weight[0] - layer.weight[1]) * torch.where(y == 0, 1.0, -1.0)[:, None]
    model = torch.nn.Sequential(torch.nn.Flatten(), layer)
    radius = {"L0": 7.0, "L1": 12.0, "L2": 0.3, "Linf": 0.05}[norm]
    flat = x.flatten(1)
    room = torch.where(w > 0, flat, 1 - flat)  # downhill
    if norm == "L0":
        gain = (w.abs() * room).topk(7, dim=1).values.sum(1)
    elif norm == "L1":
        gain = torch.zeros(4)
        for i in range(4):
            left = radius
            for j in w[i].abs().argsort(descending=True):
                moved = min(left, float(room[i, j]))
                gain[i] += moved * w[i, j].abs()
                left -= moved
    else:
        gain = radius * make_norm(norm, SHAPE).dual_size(w)
    with torch.no_grad():
        start = margin(model(x), y)
        point = pgd(
            model,
            x,
            y,
            norm,
            radius,
            steps=50,
            generator=torch.Generator().manual_seed(1),
            loss=margin,
        )
        fell = start - margin(model(point), y)
    torch.testing.assert_close(fell, gain, rtol={"L1": 0.02, "L2": 1e-3}.get(norm, 1e-4), atol=1e-4)


@EVERY_NORM
def test_survivors_are_right_before_and_after(norm):
    model, x = tanh_mlp(SHAPE), batch(200)
    y = model(x).argmax(1)
    y[:50] = (y[:50] + 1) % 10  # wrong from the start
    standing = survivors(model, x, y, norm, SMALL[norm])
    assert not standing[:50].any()
    wider = survivors(model, x, y, norm, 4 * SMALL[norm])
    assert wider.sum() < standing.sum() < 150
    assert torch.equal(standing, survivors(model, x, y, norm, SMALL[norm]))


@EVERY_NORM
def test_every_visited_point_counts(norm):
    """A point that fools the model on the way, and not at the end, still breaks the sample."""
    model, x = tanh_mlp(SHAPE), batch(100)
    y = model(x).argmax(1)
    seen = []
    pgd(
        model,
        x,
        y,
        norm,
        SMALL[norm],
        steps=50,
        generator=torch.Generator().manual_seed(0),
        loss=margin,
        visit=lambda z: seen.append(z.argmax(1) == y),
    )
    assert len(seen) == 51
    assert torch.equal(torch.stack(seen).all(0), survivors(model, x, y, norm, SMALL[norm]))
