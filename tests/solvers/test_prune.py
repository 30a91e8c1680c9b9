"""Prune's proposals one by one, and its optimum on linear models."""

import pytest
import torch
from searches import answer_of, search_of, small
from support.models import linear, samples
from support.oracles import linear_minimum
from support.runs import Bench

from advfrontier.solvers import Prune


def anchored(features=(0, 1, 2, 3)):
    """Return a search whose anchor changes these features by 0.2, and the answer that made it
    so.
    """
    search = search_of("L0", "prune", solver=Prune())
    search.problem.inputs.fill_(0.5)
    point = search.problem.inputs.clone()
    point[:, list(features)] = 0.7
    search.state.point = point
    answer = answer_of(search, wrong=True, best=float(len(features)), loss=-0.1)
    answer.gradient.fill_(-1e-3)
    for place, feature in enumerate(features):
        answer.gradient[:, feature] = -(place + 1.0)
    answer.gradient[:, 10] = -2.5
    answer.improved.fill_(1)
    return search, answer


def proposals(search, answer, count):
    """Return the features that successive proposals change, when none of them succeeds."""
    found = []
    for i in range(count):
        search.solver.step(search.problem, search.state, i, answer)
        answer.improved.fill_(0)
        changed = (search.state.point != search.problem.inputs)[0]
        found.append(changed.nonzero().flatten().tolist())
    return found


def test_proposals_come_in_order_and_change_fewer_features():
    search, answer = anchored()
    found = proposals(search, answer, 8)
    # The margin at the input is −0.1 + 0.2·(1 + 2 + 3 + 4) = 1.9, and gains are half a gradient.
    assert found[0] == [3]  # 2.0 ≥ 1.9
    assert found[1] == [2, 3, 10]
    assert found[2] == [1, 2, 3]
    assert found[3:7] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert found[7] == [2, 3, 10]


def test_rebuilt_points_are_at_the_end_of_the_box_and_single_ones_keep_their_values():
    search, answer = anchored()
    proposals(search, answer, 1)
    assert search.state.point[0, 3] == 1
    proposals(search, answer, 3)
    assert search.state.point[0, 1:4].tolist() == pytest.approx([0.7, 0.7, 0.7])


def test_success_becomes_the_anchor_and_proposals_start_again():
    search, answer = anchored()
    proposals(search, answer, 5)
    before = search.state.point.clone()
    answer.improved.fill_(1)
    proposals(search, answer, 1)
    assert torch.equal(search.state.anchor, before)
    assert (search.state.tries == 0).all()


def test_points_inside_move_the_fewest_features_that_cross_the_linear_boundary():
    search = search_of("L0", "prune", solver=Prune())
    search.problem.inputs.fill_(0.5)
    search.state.point = search.problem.inputs.clone()
    answer = answer_of(search, wrong=False, best=float("inf"), loss=1.2)
    answer.gradient.fill_(0)
    answer.gradient[:, 4], answer.gradient[:, 7], answer.gradient[:, 9] = 2.0, -1.0, 0.5
    assert proposals(search, answer, 1) == [[4, 7]]  # gains of 1.0 and 0.5
    assert search.state.point[0, [4, 7]].tolist() == [0, 1]


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models_get_the_optimum(classes):
    model = linear(64, classes, seed=3)
    images, labels = samples(model, 40, (64,), seed=4)
    weight, bias = model.weight.detach().double().numpy(), model.bias.detach().double().numpy()
    exact = linear_minimum(weight, bias, images.double().numpy(), labels.numpy(), "L0")
    found = Bench.of(model, images, labels, "L0").finished("prune", 100).trajectory[-1].numpy()
    assert (found >= exact).all()
    assert (found == exact).mean() >= 0.95


def test_refinement_takes_back_features_of_a_random_point():
    bench = small("L0")
    search = bench.search("prune")
    bench.go(search, 200)
    assert (search.best_distance < bench.shard.norm.largest(bench.shard.inputs)).all()
