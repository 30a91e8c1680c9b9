"""`compare` and `rank`: which evaluations may be set against each other."""

import pytest
import torch
from support.models import conv_problem

from advfrontier import FrontierError, evaluate, rank


@pytest.fixture(scope="module")
def five():
    return conv_problem(5)


def test_rank_needs_the_same_attacks(five):
    few = five[1][:4], five[2][:4]

    def evaluated(ensemble, name):
        return evaluate(five[0], *few, norm="L2", ensemble=ensemble, name=name)

    shorter, longer = evaluated(200, "shorter"), evaluated(300, "longer")
    assert rank([shorter, longer]).norms[0].queries == 200  # the largest common budget
    for other in ("black-box@100", "fmn,ddn@200", "paper-200"):
        with pytest.raises(FrontierError, match="expected the same attacks for all"):
            rank([shorter, evaluated(other, "other")])
    with pytest.raises(FrontierError, match="expected the same attacks for all"):
        rank([evaluated("fmn@100", "one"), evaluated("ddn@100", "two")])


def test_rank_takes_a_model_without_gradients_with_the_same_budget(five):
    model, images, labels = five[0], five[1][:4], five[2][:4]

    def closed(x):
        with torch.no_grad():
            return model(x)

    options = {"norm": "Linf", "ensemble": 100}
    honest = evaluate(model, images, labels, name="honest", **options)
    masked = evaluate(closed, images, labels, name="masked", **options)
    ranked = {row.model for row in rank([honest, masked]).norms[0].rows}
    assert ranked == {"honest", "masked"}
