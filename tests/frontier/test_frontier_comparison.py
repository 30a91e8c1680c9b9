import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.frontier import Curve, Evaluated, compare, crossings, lies_below

values = st.one_of(st.integers(0, 6).map(float), st.floats(0, 6), st.just(np.inf))
pairs = hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 20)), elements=values)


def evaluated(name, distances, queries):
    return Evaluated(name, np.asarray(distances, dtype=float), tuple(map(str, range(len(distances)))), queries)


@given(pairs)
def test_below_and_crossings_follow_from_the_curves(d):
    first, second = d
    ε = np.unique(np.append(d[np.isfinite(d)], 0))
    gap = np.round((Curve.of(first).at(ε) - Curve.of(second).at(ε)) * first.size)
    unbroken = np.isinf(first).sum() - np.isinf(second).sum()
    assert lies_below(first, second) == bool((gap <= 0).all() and unbroken <= 0 and (gap < 0).any())
    signs, places = np.sign(gap[gap != 0]), ε[gap != 0]
    expected = [places[k] for k in range(1, len(signs)) if signs[k] != signs[k - 1]]
    assert list(crossings(first, second)) == expected


def test_a_lower_curve_is_rejected_at_the_cheapest_tier():
    result = compare(evaluated("A", [0, 2, 3, 4], 12000), evaluated("B", [1, 0, 3, 3.5], 4000), E=4.0)
    assert result.lower == "B"
    assert result.decided
    assert result.run_next == {}
    assert result.verdict.startswith("reject B")
    assert result.flags == ()
    assert result.aurec == (9 / 4, 7.5 / 4)
    assert result.difference.estimate == pytest.approx(1.5 / 4)


def test_the_verdict_says_when_the_upper_record_may_still_fall():
    result = compare(evaluated("A", [2, 3], 4000), evaluated("B", [1, 2], 4000))
    assert result.lower == "B"
    assert result.flags == ("A stands at 4000 queries only, and at 12000 its curve may be lower too",)


def test_the_established_model_can_be_the_lower_one():
    result = compare(evaluated("A", [1, 2], 12000), evaluated("B", [2, 3], 4000))
    assert result.lower == "A"
    assert "B stands at 4000" in result.flags[0]


@pytest.mark.parametrize(
    ("queries", "run_next"),
    [
        ((12000, 4000), {"B": 8000}),
        ((12000, 8000), {"B": 12000}),
        ((4000, 4000), {"A": 8000, "B": 8000}),
        ((12000, 12000), {}),
        ((12000, 6500), {"B": 8000}),
    ],
)
def test_crossing_curves_name_the_next_tier(queries, run_next):
    result = compare(evaluated("A", [1, 4], queries[0]), evaluated("B", [2, 3], queries[1]))
    assert result.lower is None
    assert result.crossings == (3.0,)
    assert result.run_next == run_next
    assert ("extend" in result.verdict) == bool(run_next)
    assert "cross (at ε = 3)" in result.verdict


@pytest.mark.parametrize(
    ("queries", "rejected", "run_next"),
    [((12000, 4000), "B", {}), ((4000, 4000), "B", {}), ((4000, 8000), None, {"A": 8000})],
)
def test_where_curves_cross_a_clearly_smaller_area_is_rejected_unless_the_other_may_still_fall(
    queries, rejected, run_next
):
    rng = np.random.default_rng(0)
    large, small = rng.uniform(0.5, 4, 200), np.append(rng.uniform(0, 0.3, 197), [5, 6, 7])
    result = compare(evaluated("A", large, queries[0]), evaluated("B", small, queries[1]))
    assert result.lower is None
    assert len(result.crossings) == 1
    assert result.smaller == rejected
    assert result.decided == (rejected is not None)
    assert result.run_next == run_next
    assert result.verdict.startswith("reject B: its area is smaller" if rejected else "undecided")
    assert ("queries only" in " ".join(result.flags)) == (queries == (4000, 4000))


def test_where_curves_cross_an_area_that_other_samples_might_reverse_decides_nothing():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.1, 0.9, 50), rng.uniform(0, 1, 50)
    result = compare(evaluated("A", a, 12000), evaluated("B", b, 4000))
    assert result.difference.low < 0 < result.difference.high
    assert result.crossings
    assert result.smaller is None
    assert result.run_next == {"B": 8000}


def test_equal_curves():
    result = compare(evaluated("A", [1, 2], 12000), evaluated("B", [2, 1], 12000))
    assert "the same" in result.verdict
    assert result.lower is None


def test_an_infinite_distance_is_seen_beyond_every_radius():
    assert compare(evaluated("A", [3, np.inf], 12000), evaluated("B", [3, 4], 12000)).lower == "B"
    crossing = compare(evaluated("A", [1, np.inf], 12000), evaluated("B", [2, 3], 12000))
    assert crossing.crossings == (3.0,)
    assert crossing.flags == ("A: 1 of 2 samples were never broken",)


def test_other_samples_are_refused():
    with pytest.raises(FrontierError, match="same samples"):
        lies_below([1.0, 2.0], [1.0])
    with pytest.raises(FrontierError, match="different samples"):
        compare(evaluated("A", [1, 2], 4000), evaluated("B", [1, 2, 3], 4000))
