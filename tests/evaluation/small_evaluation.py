"""Two ensembles of which one contains the other, and what it means that evaluations are the same."""

import torch

from advfrontier import Ensemble

SMALL = Ensemble.of(
    "small", "L2", {"fmn": 200, "ddn": 100, "alma": 60, "fmn:restart1": 100, "ddn:target1": 40}
)
LARGER = Ensemble.of(
    "larger", "L2", {**SMALL.queries, "fmn": 300, "ddn": 300, "apgd_min-ce": 50, "ddn:target1": 90}
)


def same(one, two):
    assert (one.distances == two.distances).all()
    assert torch.equal(one.adversarials, two.adversarials)
    assert one.winners == two.winners
    for run, table in one.trajectories.items():
        assert (table == two.trajectories[run]).all()
