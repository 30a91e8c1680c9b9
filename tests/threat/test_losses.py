"""Losses against their formulas, written out with plain numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from advfrontier.threat.losses import LOSSES, ce, dlr, dlr_plus, margin, plain_ce

CLASSES = pytest.mark.parametrize("classes", [2, 3, 4, 10])
TARGETED = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


def batch(seed, classes, rows=8):
    """Logits, labels, and targets other than the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    targets = (labels + rng.integers(1, classes, rows)) % classes
    return (
        torch.from_numpy(rng.normal(size=(rows, classes)) * 4),
        torch.from_numpy(labels),
        torch.from_numpy(targets),
    )


def formula(name, z, y, t):
    """SOLVERS.md §1, signed so that everything falls towards misclassification; t is None when
    untargeted.
    """
    ranked = sorted(z, reverse=True)
    others = [value for k, value in enumerate(z) if k != (y if t is None else t)]
    gap = z[y] - max(others) if t is None else max(others) - z[t]
    if name == "margin":
        return gap
    if name == "difference":
        return gap if t is None else z[y] - z[t]
    if name == "plain_ce":
        total = np.log(np.exp(z - np.max(z)).sum()) + np.max(z)
        return z[y] - total if t is None else total - z[t]
    if name == "ce":
        rest = np.log(np.exp(np.array(others) - np.max(others)).sum()) + np.max(others)
        return z[y] - rest if t is None else rest - z[t]
    if len(z) < (3 if t is None else 4):
        spread = 1
    elif t is not None:
        spread = ranked[0] - (ranked[2] + ranked[3]) / 2
    else:
        spread = ranked[0] - ranked[2]
    if name in ("dlr", "plain_dlr"):
        return (gap if t is None else z[y] - z[t]) / spread
    plain = (gap + 1e-4) / (spread if spread == 1 else spread + 1e-8)
    return plain if name == "plain_dlr_plus" else gap / spread + 1e-4


@CLASSES
@TARGETED
@pytest.mark.parametrize("name", LOSSES)
@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1))
def test_formula(name, classes, targeted, seed):
    z, y, t = batch(seed, classes)
    got = LOSSES[name](z, y, t if targeted else None)
    expected = [
        formula(name, row, label, goal if targeted else None)
        for row, label, goal in zip(z.numpy(), y.tolist(), t.tolist(), strict=True)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)


@CLASSES
@TARGETED
@pytest.mark.parametrize("name", LOSSES)
def test_gradient(name, classes, targeted):
    z, y, t = batch(5, classes)
    assert torch.autograd.gradcheck(
        lambda logits: LOSSES[name](logits, y, t if targeted else None), z.requires_grad_()
    )


@CLASSES
@TARGETED
@pytest.mark.parametrize("name", ["margin", "ce"])
def test_losses_fall_towards_success(name, classes, targeted):
    """A step down the loss lowers the label's logit, or raises the target's."""
    z, y, t = batch(9, classes)
    z.requires_grad_()
    (g,) = torch.autograd.grad(LOSSES[name](z, y, t if targeted else None).sum(), z)
    own = g.gather(1, (t if targeted else y)[:, None])
    assert ((own < 0) if targeted else (own > 0)).all()


@pytest.mark.parametrize("loss", [margin, dlr])
def test_zero_is_the_boundary(loss):
    z = torch.tensor([[2.0, 1.0, 0.0, -1.0], [1.0, 2.0, 0.0, -1.0], [2.0, 2.0, 0.0, -1.0]])
    assert loss(z, torch.zeros(3, dtype=torch.long), None).sign().tolist() == [1, -1, 0]


def test_alma_aims_a_little_beyond_the_boundary_in_both_forms():
    z = torch.tensor([[1.0, 1.00005, 0.0, 0.0], [1.0, 1.0002, 0.0, 0.0]])
    y, t = torch.zeros(2, dtype=torch.long), torch.ones(2, dtype=torch.long)
    assert (dlr_plus(z, y, None) < 0).tolist() == [False, True]
    assert (dlr_plus(z, y, t) < 0).tolist() == [False, True]


@pytest.mark.parametrize("loss", [dlr, dlr_plus])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_ratio_does_not_depend_on_the_scale_of_the_logits(loss, scale):
    z, y, t = batch(1, 10)
    torch.testing.assert_close(loss(z * scale, y, None), loss(z, y, None))
    torch.testing.assert_close(loss(z * scale, y, t), loss(z, y, t))


@TARGETED
@pytest.mark.parametrize("first", [200.0, -200.0])
def test_only_the_published_cross_entropy_saturates(targeted, first):
    logits = torch.tensor([[first, 1.0, 0.5, 0.0]], requires_grad=True)
    y, t = torch.tensor([0]), torch.tensor([1])
    size = {
        name: float(
            torch.autograd.grad(loss(logits, y, t if targeted else None, None).sum(), logits)[0]
            .abs()
            .sum()
        )
        for name, loss in LOSSES.items()
    }
    assert (size["plain_ce"] == 0) == (first > 0 and not targeted)
    assert all(value > 1e-3 for name, value in size.items() if name != "plain_ce")
    assert all(loss(logits, y, None, None).isfinite().all() for loss in LOSSES.values())


@CLASSES
@TARGETED
def test_log_odds_order_points_as_the_cross_entropy_and_have_its_direction(classes, targeted):
    z, y, t = batch(7, classes, rows=200)
    y, t = torch.zeros_like(y), torch.ones_like(t)
    goals = t if targeted else None
    z.requires_grad_()
    ours, theirs = ce(z, y, goals), plain_ce(z, y, goals)
    assert torch.equal(ours.argsort(), theirs.argsort())
    (g,), (h,) = torch.autograd.grad(ours.sum(), z), torch.autograd.grad(theirs.sum(), z)
    torch.testing.assert_close(g / g.norm(dim=1, keepdim=True), h / h.norm(dim=1, keepdim=True))


@CLASSES
@TARGETED
def test_cross_entropy_stretches_logits_where_the_margin_at_the_input_is_below_three(
    classes, targeted
):
    z, y, t = batch(2, classes)
    goals = t if targeted else None
    at_input = torch.tensor([0.0, 0.1, 1.0, 2.0, 3.0, 10.0, 50.0, 1e6], dtype=torch.float64)
    factor = torch.tensor([3e12, 30, 3, 1.5, 1, 1, 1, 1])
    torch.testing.assert_close(ce(z, y, goals, at_input), ce(z * factor[:, None], y, goals))
    torch.testing.assert_close(plain_ce(z, y, goals, at_input), plain_ce(z, y, goals))


@pytest.mark.parametrize("loss", [dlr, dlr_plus])
@TARGETED
def test_with_few_classes_the_ratio_is_measured_by_the_margin_at_the_input(loss, targeted):
    z, y, t = batch(3, 3 if targeted else 2)
    goals = t if targeted else None
    at_input = torch.arange(1.0, 9.0)
    beyond = 1e-4 if loss is dlr_plus else 0.0
    expected = (loss(z, y, goals) - beyond) / at_input + beyond
    torch.testing.assert_close(loss(z, y, goals, at_input), expected, check_dtype=False)
    z, y, t = batch(3, 3)
    torch.testing.assert_close(loss(z, y, None, at_input), loss(z, y, None))
