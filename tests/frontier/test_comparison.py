import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Curve, Evaluated, compare, crossings, lies_below
from advfrontier.pool import tier_label

values = st.one_of(st.integers(0, 6).map(float), st.floats(0, 6), st.just(np.inf))
pairs = hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 20)), elements=values)


def evaluated(name, distances, queries, **more):
    samples = tuple(map(str, range(len(distances))))
    return Evaluated(name, "L2", samples, np.asarray(distances, dtype=float), queries, **more)


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
    result = compare(
        evaluated("A", [0, 2, 3, 4], 12000), evaluated("B", [1, 0, 3, 3.5], 4000), E=4.0
    )
    assert (result.lower, result.rejected) == ("B", "B")
    assert result.run_next == {}
    assert result.verdict.startswith("reject B")
    assert result.flags == ()
    assert result.aurec == (9 / 4, 7.5 / 4)
    assert result.difference.estimate == pytest.approx(1.5 / 4)


def test_the_verdict_says_when_the_upper_record_may_still_fall():
    result = compare(evaluated("A", [2, 3], 4000), evaluated("B", [1, 2], 4000))
    assert result.lower == "B"
    assert result.flags == (
        "A was evaluated with 4k queries only; with 12k its curve may be lower too",
    )


@pytest.mark.parametrize("queries", [(12000, 4000), (12000, 8000), (8000, 4000)])
def test_a_model_that_may_still_fall_is_extended_before_the_lower_one_is_rejected(queries):
    result = compare(evaluated("A", [1, 2], queries[0]), evaluated("B", [2, 3], queries[1]))
    assert result.lower == "A"
    assert result.rejected is None
    assert result.run_next == {"B": queries[0]}
    assert result.verdict.startswith(f"extend B to {tier_label(queries[0])} queries: ")
    assert f"B has had {tier_label(queries[1])} only and may still fall" in result.verdict


def test_what_more_queries_on_both_would_reverse_is_never_a_rejection():
    """The counterexample: B is above A's 12k at 4k, and far below it once it has had 12k as
    well.
    """
    assert not compare(evaluated("A", [1, 2], 12000), evaluated("B", [2, 3], 4000)).rejected
    assert compare(evaluated("A", [1, 2], 12000), evaluated("B", [0.5, 1], 12000)).rejected == "B"


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


def test_without_an_area_nobody_is_rejected_by_one():
    found = compare(evaluated("A", [1, 4], 4000), evaluated("B", [2, 3], 4000), E=0)
    assert found.rejected is None
    assert "there is no area to compare" in found.verdict
    equal = compare(evaluated("A", [1, 4], 4000), evaluated("B", [2, 3], 4000))
    assert equal.verdict.startswith(
        "undecided: the curves cross (at ε = 3), and the areas are equal; extend A"
    )


def test_a_record_that_can_go_no_further_is_not_to_be_extended():
    few = evaluated("A", [1, 4], 500, tiers=()), evaluated("B", [2, 3], 500, tiers=())
    assert compare(*few).verdict.endswith("no further tier is left to run")
    rejected = compare(evaluated("A", [1, 2], 500, tiers=()), evaluated("B", [2, 3], 500, tiers=()))
    assert "saved" not in rejected.verdict
    assert rejected.flags == ()
    assert compare(evaluated("A", [1, 2], 500), evaluated("B", [2, 3], 500)).flags != ()


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
    assert result.rejected == rejected
    assert result.run_next == run_next
    assert result.verdict.startswith(
        "reject B: its area is smaller" if rejected else "extend A to 8k queries: B at"
    )
    assert ("queries only" in " ".join(result.flags)) == (queries == (4000, 4000))


def test_where_curves_cross_an_area_that_other_samples_might_reverse_decides_nothing():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.1, 0.9, 50), rng.uniform(0, 1, 50)
    result = compare(evaluated("A", a, 12000), evaluated("B", b, 4000))
    assert result.difference.low < 0 < result.difference.high
    assert result.crossings
    assert result.rejected is None
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


def test_where_no_run_broke_any_sample_there_is_no_order():
    result = compare(evaluated("A", [np.inf, np.inf, 0], 12000), evaluated("B", [1, 2, 0], 4000))
    assert result.rejected is None
    assert result.verdict.startswith("undecided: no run broke any sample of A; extend B to 8k")
    assert np.isnan(result.aurec[0])
    assert result.aurec[1] == 1.0
    assert not result.difference.known
    assert "A: 2 of 3 samples were never broken" in result.flags
    nothing = compare(evaluated("A", [0, 0], 4000), evaluated("B", [0, 0], 4000))
    assert np.isnan(nothing.aurec).all()


def test_doubts_are_shown_and_what_is_harmless_is_not():
    doubt, harmless = (
        Flag(Kind.CLEAN_ACCURACY, "the accuracy is near chance"),
        Flag(Kind.TRAINING, "was training"),
    )
    result = compare(
        evaluated("A", [2, 3], 12000, flags=(doubt, harmless)), evaluated("B", [1, 2], 12000)
    )
    assert result.flags == ("A: the accuracy is near chance",)


def test_other_norms_are_refused():
    with pytest.raises(FrontierError, match="expected the same norm"):
        compare(evaluated("A", [1.0], 4000), Evaluated("B", "L1", ("0",), np.ones(1), 4000))


def test_other_samples_are_refused():
    with pytest.raises(FrontierError, match="same samples"):
        lies_below([1.0, 2.0], [1.0])
    with pytest.raises(FrontierError, match="different samples"):
        compare(evaluated("A", [1, 2], 4000), evaluated("B", [1, 2, 3], 4000))
