"""Distances as they are given: checked, named, and only compared on the same samples."""

import numpy as np
import pytest

from advfrontier.errors import FrontierError
from advfrontier.frontier.measure import (
    Evaluated,
    as_distances,
    as_pair,
    as_table,
    check_epsilon,
    check_same_samples,
    check_same_settings,
    unbroken_flag,
)


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([], r"distances have shape \(0,\): expected one distance per sample"),
        ([[1.0]], r"distances have shape \(1, 1\)"),
        ([1.0, -1.0, np.nan], "2 of 3 distances are negative or NaN: expected 0, a positive"),
    ],
)
def test_wrong_distances_are_refused(distances, message):
    with pytest.raises(FrontierError, match=message):
        as_distances(distances)


def test_distances_are_zero_or_positive_or_infinite():
    assert as_distances([0, 2, np.inf]).tolist() == [0.0, 2.0, np.inf]


def test_tables_and_pairs_need_as_many_samples():
    names, table = as_table({"a": [1, 2], "b": [3, 4]})
    assert (names, table.tolist()) == (("a", "b"), [[1, 2], [3, 4]])
    with pytest.raises(FrontierError, match=r"different numbers of samples \(a: 1, b: 2\)"):
        as_table({"a": [1], "b": [1, 2]})
    with pytest.raises(FrontierError, match="1 distances against 2 frontier distances"):
        as_pair([1], [1, 2])


def test_epsilon_is_not_negative():
    assert check_epsilon(0.5) == 0.5
    with pytest.raises(FrontierError, match="is negative or NaN: expected a perturbation size"):
        check_epsilon([0.5, -0.1])


def test_samples_are_the_same_in_the_same_order():
    names = ("a", "b")
    check_same_samples("xyz", "xyz", names=names)
    check_same_samples("xyz", "zyx", names=names, in_order=False)
    with pytest.raises(FrontierError, match="a and b hold the same 3 samples in another order"):
        check_same_samples("xyz", "zyx", names=names)
    with pytest.raises(FrontierError, match=r"\(1 only in the former, 2 only in the latter\)"):
        check_same_samples("xyz", "xyuv", names=names)


def test_settings_of_the_attacks_are_the_same():
    first, second = {"fmn": "FMN(a=1)", "ddn": "DDN()"}, {"ddn": "DDN()"}
    check_same_settings(first, second, names=("a", "b"), attacks=["ddn"])
    message = r"a has fmn at FMN\(a=1\), b at its own settings: expected the same solvers"
    with pytest.raises(FrontierError, match=message):
        check_same_settings(first, second, names=("a", "b"))


def test_model_has_a_distance_per_sample():
    model = Evaluated("a", "inf", ("x", "y"), [0.0, 1.0], 100)
    assert (model.norm, model.distances.dtype) == ("Linf", np.float64)
    with pytest.raises(FrontierError, match="2 distances of a for 1 samples: expected one each"):
        Evaluated("a", "Linf", ("x",), [0.0, 1.0], 100)


def test_samples_that_were_never_broken_are_counted():
    assert unbroken_flag(np.array([1.0, np.inf])) == ("1 of 2 samples were never broken",)
    assert unbroken_flag(np.array([0.0, 1.0])) == ()
