from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from advfrontier.errors import FrontierError
from advfrontier.frontier import Trajectories


def some(runs=("fmn", "ddn"), samples=("a", "b", "c"), seed=0):
    rng = np.random.default_rng(seed)
    d = rng.random((len(runs), 4, len(samples))) + 0.1
    d[:, :, 0] = 0
    return Trajectories.best_so_far(runs, [10, 20, 30, 40], d, samples, "L2")


def test_distances_must_be_the_best_so_far():
    rising = np.array([[[1.0], [2.0]]])
    with pytest.raises(FrontierError, match="best_so_far"):
        Trajectories(("fmn",), np.array([10, 20]), rising, ("a",), "L2")
    assert Trajectories.best_so_far(
        ["fmn"], [10, 20], rising, ["a"], "L2"
    ).distances.ravel().tolist() == [1.0, 1.0]


def test_frontier_is_the_least_over_runs_with_all_queries():
    traces = some()
    np.testing.assert_array_equal(traces.frontier(), traces.distances.min(axis=(0, 1)))
    assert traces.misclassified.tolist() == [True, False, False]


def test_at_takes_the_last_checkpoint_passed():
    traces = some()
    np.testing.assert_array_equal(traces.at(25), traces.distances[:, 1])
    np.testing.assert_array_equal(traces.at(40), traces.distances[:, 3])
    assert traces.at(9).tolist() == [[0.0, np.inf, np.inf]] * 2
    mixed = traces.at({"ddn": 30})
    assert mixed[0].tolist() == [0.0, np.inf, np.inf]
    np.testing.assert_array_equal(mixed[1], traces.distances[1, 2])
    np.testing.assert_array_equal(traces.best({"ddn": 30}), traces.distances[1, 2])


def test_more_queries_never_raise_what_is_found():
    traces = some(seed=3)
    found = [traces.best(q) for q in range(0, 41, 10)]
    assert all((later <= sooner).all() for sooner, later in pairwise(found))


def test_join_aligns_by_sample_id():
    first, other = some(), some(runs=("alma",), seed=1)
    joined = first.join(other.select(samples=["c", "a", "b"]))
    assert joined.runs == ("fmn", "ddn", "alma")
    assert joined.samples == ("a", "b", "c")
    np.testing.assert_array_equal(joined.distances[2], other.distances[0])
    assert (joined.frontier() <= first.frontier()).all()


def test_join_refuses_other_samples_checkpoints_and_runs_it_has():
    traces = some()
    with pytest.raises(FrontierError, match="different samples"):
        traces.join(some(runs=("alma",), samples=("a", "b", "x")))
    with pytest.raises(FrontierError, match="thin"):
        traces.join(some(runs=("alma",)).thin([10, 40]))
    with pytest.raises(FrontierError, match="more than once"):
        traces.join(traces)
    with pytest.raises(FrontierError, match="same norm"):
        traces.join(replace(some(runs=("alma",)), norm="Linf"))


def test_select_and_thin():
    traces = some()
    part = traces.select(runs=["ddn"], samples=["c", "b"]).thin([20, 40])
    np.testing.assert_array_equal(part.distances, traces.distances[1:, [1, 3]][:, :, [2, 1]])
    with pytest.raises(FrontierError, match="no run alma"):
        traces.select(runs=["alma"])
    with pytest.raises(FrontierError, match=r"at \[50\]: expected some of 10, 20, 30, … 40"):
        traces.thin([20, 50])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": ("fmn",)}, "shape"),
        ({"runs": ()}, "without a run"),
        ({"samples": ("a", "a", "b")}, "more than once"),
        ({"queries": [10, 20, 20, 30]}, "checkpoints"),
        ({"distances": np.full((2, 4, 3), np.nan)}, "NaN"),
        ({"norm": "L3"}, "unknown norm"),
    ],
)
def test_inconsistent_trajectories_are_refused(change, message):
    good = some()
    with pytest.raises(FrontierError, match=message):
        replace(good, **change)


def test_queries_out_of_range_are_refused():
    with pytest.raises(FrontierError, match="50 queries asked for"):
        some().at(50)
    with pytest.raises(FrontierError, match="-10 queries"):
        some().at({"fmn": -10, "ddn": 20})
    with pytest.raises(FrontierError, match="no run alma"):
        some().at({"alma": 10})
