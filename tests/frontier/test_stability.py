import numpy as np
import pytest

from advfrontier.errors import FrontierError
from advfrontier.frontier import Curve, rank_stability, reversals
from advfrontier.frontier.comparison import rank_accuracies

# steady falls evenly; early is best up to ε = 2 and then collapses; weak is always last.
MODELS = {
    "steady": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    "early": np.array([2.1, 2.2, 2.3, 2.4, 2.5]),
    "weak": np.array([0.0, 0.5, 0.6, 0.7, 0.8]),
}


def test_ranks_at_every_step():
    table = rank_stability(MODELS)
    for row, name in enumerate(MODELS):
        np.testing.assert_allclose(table.accuracies[row], Curve.of(MODELS[name]).at(table.epsilons))
    at = {
        ε: dict(zip(table.models, table.ranks[:, k], strict=True))
        for k, ε in enumerate(table.epsilons.tolist())
    }
    assert at[0.0] == {"steady": 1, "early": 1, "weak": 3}
    assert at[2.0] == {"steady": 2, "early": 1, "weak": 3}
    assert at[2.5] == {"steady": 1, "early": 2, "weak": 2}
    assert table.moved == {"steady": 1, "early": 1, "weak": 0}


def test_ties_alone_move_nobody():
    d = np.arange(1.0, 6.0)
    assert rank_stability({"a": d, "b": d[::-1], "c": d}).moved == {"a": 0, "b": 0, "c": 0}


def test_a_grid_may_be_given():
    table = rank_stability(MODELS, epsilons=[2.0, 0.5])
    assert table.epsilons.tolist() == [0.5, 2.0]
    assert table.moved == {"steady": 0, "early": 0, "weak": 0}
    with pytest.raises(FrontierError, match="finite"):
        rank_stability(MODELS, epsilons=[np.inf])


def test_accuracies_rank_as_the_distances_they_come_from():
    grid = [0.5, 1.0, 2.0, 2.4, 4.0]
    expected = rank_stability(MODELS, epsilons=grid)
    found = rank_accuracies(
        {name: Curve.of(d).at(grid) for name, d in MODELS.items()}, epsilons=grid
    )
    np.testing.assert_array_equal(found.ranks, expected.ranks)
    assert found.moved == expected.moved


def test_accuracies_that_were_rounded_differently_are_equal():
    found = rank_accuracies({"a": [0.1 + 0.2, 0.5], "b": [0.3, 0.4]}, epsilons=[1.0, 2.0])
    assert found.ranks.tolist() == [[1, 1], [1, 2]]
    with pytest.raises(FrontierError, match="rising order"):
        rank_accuracies({"a": [0.5, 0.4]}, epsilons=[2.0, 1.0])
    with pytest.raises(FrontierError, match="every radius"):
        rank_accuracies({"a": [0.5]}, epsilons=[1.0, 2.0])


def test_reversals_beyond_the_reference():
    (only,) = reversals(MODELS, reference=1.5)
    assert (only.leader, only.overtaken_by, only.epsilon) == ("early", "steady", 2.3)
    assert only.lead == pytest.approx(3 / 5)
    assert reversals(MODELS, reference=2.5) == ()  # by then steady leads and stays ahead
