"""The pieces that solvers share."""

import math

import pytest
import torch
from searches import answer_of, small

from advfrontier.solvers.protocol import adam, cosine, random_where_lost, where_rows


def test_cosine_runs_from_the_first_value_to_the_last():
    assert cosine(1.0, 0.01, 0, 500) == 1
    assert cosine(1.0, 0.01, 500, 500) == pytest.approx(0.01)
    assert cosine(1.0, 0.01, 250, 500) == pytest.approx(0.505)
    expected = 0.001 + 0.049 * (1 + math.cos(math.pi / 5)) / 2
    assert cosine(0.05, 0.001, 100, 500) == pytest.approx(expected)


def test_adam_is_that_of_torch():
    rng = torch.Generator().manual_seed(0)
    point = torch.rand(3, 5, generator=rng, dtype=torch.float64)
    theirs = point.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    first, second = torch.zeros_like(point), torch.zeros_like(point)
    for i in range(20):
        gradient = torch.randn(3, 5, generator=rng, dtype=torch.float64)
        theirs.grad = gradient.clone()
        optimiser.step()
        scale, factor = adam(first, second, gradient, i)
        point = point - 0.1 * factor * first / scale
        torch.testing.assert_close(point, theirs.detach(), rtol=1e-12, atol=0)


def test_where_rows_is_exact():
    rng = torch.Generator().manual_seed(0)
    yes = torch.randn(6, 9, generator=rng) * 1e20
    no = torch.randn(6, 9, generator=rng) * 1e-20
    mask = torch.tensor([True, False, True, True, False, False])
    taken = where_rows(mask, yes, no)
    assert torch.equal(taken, torch.where(mask[:, None], yes, no))


def test_lost_gradients_get_a_direction_that_depends_on_seed_and_step():
    search = small("L2").search("ddn")
    answer = answer_of(search, wrong=False, best=math.inf)
    answer.gradient[1] = 0
    answer.length[1] = 1e-12
    gradient, size = random_where_lost(search.problem, answer, 3)
    assert torch.equal(gradient[0], answer.gradient[0])
    assert torch.equal(size[2:], answer.length[2:])
    assert size[1] == 1
    assert gradient[1].norm() == pytest.approx(1)
    again, _ = random_where_lost(search.problem, answer, 3)
    assert torch.equal(again, gradient)
    assert not torch.equal(random_where_lost(search.problem, answer, 4)[0][1], gradient[1])
    other = type(search.problem)(**vars(search.problem) | {"seed": 43})
    assert not torch.equal(random_where_lost(other, answer, 3)[0][1], gradient[1])
