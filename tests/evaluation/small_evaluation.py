"""Two ensembles of which one holds the other, and the comparison of evaluations bit for bit."""

import numpy as np
import torch

from advfrontier import Ensemble
from advfrontier.pool import Raise, Refine, make_ensemble

SMALL = Ensemble.of(
    "small", "L2", {"fmn": 200, "ddn": 100, "alma": 60, "fmn:restart1": 100, "ddn:target1": 40}
)
LARGER = make_ensemble(
    name="larger",
    norm="L2",
    steps=[
        *SMALL.steps,
        Raise(run="fmn", queries=300),
        Refine(run="fmn", queries=40, start="best"),
        Raise(run="ddn", queries=300),
        Refine(run="pdgd", queries=60, start="beyond"),
        Raise(run="apgd_min-ce", queries=50),
        Raise(run="ddn:target1", queries=90),
    ],
)


def same(one, two):
    """Assert that two evaluations hold the same bits."""
    assert one.ensemble.steps == two.ensemble.steps
    assert np.array_equal(one.trajectory, two.trajectory)
    assert np.array_equal(one.distances, two.distances)
    assert torch.equal(one.adversarials, two.adversarials)
    assert torch.equal(one.predictions, two.predictions)
    assert one.winners == two.winners
    assert one.refined_by == two.refined_by
    assert one.found_by_run.keys() == two.found_by_run.keys()
    for run, distances in one.found_by_run.items():
        assert np.array_equal(distances, two.found_by_run[run])
