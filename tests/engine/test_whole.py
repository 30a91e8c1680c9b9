"""An attack in one piece inside an ensemble: what it returns is kept, and what it did not spend."""

import pytest
import torch
from support.ensembles import problem

from advfrontier.engine import Unit, advance
from advfrontier.engine.whole import Whole, WholeAttack
from advfrontier.pool import make_ensemble

NAME = "callable:mine"


class HalfWay:
    """Return the point half-way to white for even rows; the others find nothing."""

    def identity(self):
        return {"class": "HalfWay"}

    def run(self, oracle, shard, queries, *, tick=None):
        found = torch.arange(len(shard)) % 2 == 0
        points = torch.where(found[:, None], (shard.inputs + 1) / 2, shard.inputs)
        distances = shard.norm.distance(points.double(), shard.inputs.double())
        best = torch.where(found, distances, torch.inf)
        spent = torch.where(found, 20, queries).int()
        oracle.logits(oracle.images(points.view(-1, *shard.shape)))
        if tick is not None:
            tick(queries * len(shard))
        none = torch.zeros(len(shard), dtype=torch.int32)
        measured = best.expand(queries // 10, -1).clone()
        return Whole(points, measured, spent, none, none, none)


@pytest.fixture(scope="module")
def unit():
    oracle, shard = problem("L2")
    ensemble = make_ensemble(name="one", norm="L2", steps=[{"run": NAME, "queries": 100}])
    unit = Unit.start(ensemble, shard, {NAME: HalfWay()})
    ticks = []
    with oracle:
        advance(oracle, unit, 100, tick=ticks.append)
    assert sum(ticks) == 100 * len(shard)
    return unit


def test_class_with_both_methods_is_an_attack_in_one_piece():
    assert isinstance(HalfWay(), WholeAttack)
    assert not isinstance(HalfWay().identity, WholeAttack)


def test_distances_and_points_of_the_attack_are_kept(unit):
    inputs = unit.shard.inputs
    even = torch.arange(len(inputs)) % 2 == 0
    assert torch.equal(unit.best_point[even], (inputs[even] + 1) / 2)
    assert torch.equal(unit.best_point[~even], inputs[~even])
    distances = (unit.best_point - inputs).double().norm(dim=1)[even]
    torch.testing.assert_close(unit.best_distance[even], distances)
    assert torch.isinf(unit.best_distance[~even]).all()
    assert torch.equal(unit.trajectory[-1], unit.best_distance)


def test_queries_that_the_attack_left_are_stored(unit):
    even = torch.arange(len(unit.shard)) % 2 == 0
    assert unit.queries == 100
    assert unit.unspent.tolist() == torch.where(even, 80, 0).tolist()
