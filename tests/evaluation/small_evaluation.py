"""Two ensembles of which one holds the other, and the comparison of evaluations bit for bit."""

import numpy as np
import torch

from advfrontier.pool import Raise, Refine, make_ensemble

LARGER = make_ensemble(
    name="larger",
    norm="L2",
    steps=[
        Raise(run="fmn", queries=200),
        Raise(run="ddn", queries=100),
        Raise(run="alma", queries=60),
        Raise(run="fmn:restart1", queries=100),
        Raise(run="ddn:target1", queries=40),
        # 500 queries so far
        Raise(run="fmn", queries=300),
        Refine(run="fmn", queries=40, start="best"),
        Raise(run="ddn", queries=300),
        Refine(run="pdgd", queries=60, start="beyond"),
        Raise(run="apgd_min-ce", queries=50),
        Raise(run="ddn:target1", queries=90),
    ],
)
SMALL = LARGER.model_copy(update={"name": "small", "total": 500})


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
