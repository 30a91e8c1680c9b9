"""Unions of norms against the definition, sample by sample, and their intervals by resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from advfrontier.errors import FrontierError
from advfrontier.frontier.union import Union

RADII = {"L1": 12.0, "L2": 0.5, "Linf": 8 / 255}


def distances(seed, count, *, correlated=True):
    """Return distances in three norms, some 0 and some inf, as of one model."""
    rng = np.random.default_rng(seed)
    shared = rng.exponential(size=count) if correlated else 1
    wrong = rng.random(count) < 0.2
    table = {}
    for norm, radius in RADII.items():
        found = shared * radius * rng.uniform(0.3, 2, size=count)
        found[rng.random(count) < 0.1] = np.inf
        table[norm] = np.where(wrong, 0.0, found)
    return table


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), t=st.floats(0.05, 3))
def test_a_sample_is_robust_if_no_norm_breaks_it(seed, t):
    table = distances(seed, 40)
    union = Union(table, RADII)
    robust, weakest = 0, []
    for row in range(40):
        parts = {norm: table[norm][row] / radius for norm, radius in RADII.items()}
        least = min(parts.values())
        assert union.distances[row] == least
        robust += all(table[norm][row] / radius > t for norm, radius in RADII.items())
        weakest.append(min(parts, key=parts.get) if 0 < least < np.inf else None)
    assert union.robust_accuracy(t) == robust / 40
    assert union.weakest == tuple(weakest)
    assert union.robust_accuracy(t) <= min(union.alone(norm, t) for norm in RADII)
    assert union.curve().at(t) == union.robust_accuracy(t)


def test_area_is_the_mean_of_distances_and_shares_are_counted():
    table = {"L1": [0, 12, 24, 36.0], "L2": [0, 1, 0.25, np.inf]}
    union = Union({norm: np.array(row) for norm, row in table.items()}, {"L1": 12, "L2": 0.5})
    assert union.distances.tolist() == [0, 1, 0.5, 3]
    assert union.aurec(2).value == pytest.approx((0 + 1 + 0.5 + 2) / 4)
    assert union.aurec().value == pytest.approx((0 + 1 + 0.5 + 3) / 4)
    assert [union.broken_only_by(norm) for norm in table] == [0.25, 0.25]
    assert [union.broken_only_by(norm, 2) for norm in table] == [0.0, 0.0]
    assert [union.broken_only_by(norm, 3) for norm in table] == [0.25, 0.0]


def test_intervals_hold_the_truth_of_a_large_source():
    """Draw 300 sets of 60 samples, in all norms at once, from a source of 20,000."""
    source = distances(0, 20_000)
    whole = Union(source, RADII)
    truth, area = whole.robust_accuracy(), whole.aurec(2.0).value
    rng = np.random.default_rng(1)
    held = held_area = 0
    for _ in range(300):
        rows = rng.integers(20_000, size=60)
        union = Union({norm: row[rows] for norm, row in source.items()}, RADII)
        interval = union.robust_accuracy_interval()
        held += interval.low <= truth <= interval.high
        spread = union.aurec_interval(2.0)
        held_area += spread.low <= area <= spread.high
    assert 0.91 <= held / 300 <= 0.99
    assert 0.91 <= held_area / 300 <= 0.99


@pytest.mark.parametrize(
    ("table", "radii", "message"),
    [
        ({"L1": [1.0]}, {"L1": 1.0}, "expected the same two norms or more"),
        ({"L1": [1.0], "L2": [1.0]}, {"L1": 1.0, "Linf": 1.0}, "radii of L1, Linf: expected"),
        ({"L1": [1.0], "L2": [1.0]}, {"L1": 1.0, "L2": 0.0}, "0.0 of L2 cannot scale a path"),
        ({"L1": [1.0], "L2": [1.0, 2]}, {"L1": 1.0, "L2": 1.0}, "different numbers of samples"),
        ({"L1": [0.0], "L2": [1.0]}, {"L1": 1.0, "L2": 1.0}, "expected distances of one model"),
    ],
)
def test_unions_that_make_no_sense_are_refused(table, radii, message):
    with pytest.raises(FrontierError, match=message):
        Union({norm: np.array(row) for norm, row in table.items()}, radii)
