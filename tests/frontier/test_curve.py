from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.frontier import Curve, aurec, distance_quantile, epsilon_min, robust_accuracy

# Random, tied (small whole numbers, as in ℓ0), zero and infinite distances, in every mixture.
values = st.one_of(st.floats(0, 20), st.integers(0, 5).map(float), st.just(0.0), st.just(np.inf))
distances = hnp.arrays(np.float64, st.integers(1, 60), elements=values)
limits = st.floats(0, 25)


def step_area(d, E):
    """The area under ρ by integrating the step function piece by piece, from its definition."""
    edges = np.unique(np.concatenate(([0.0, E], d[d < E])))
    return sum(np.mean(d > left) * (right - left) for left, right in pairwise(edges))


@given(distances, limits)
def test_area_is_the_integral_of_the_step_function(d, E):
    if E > 0 and not (np.isinf(d[d > 0]).all() and (d > 0).any()):
        assert aurec(d, E=E).value == pytest.approx(step_area(d, E), rel=1e-12, abs=1e-12)
    else:
        assert np.isnan(aurec(d, E=E).value)
    assert Curve.of(d).area(E) == pytest.approx(step_area(d, E), rel=1e-12, abs=1e-12)


@given(distances, hnp.arrays(np.float64, 7, elements=st.floats(0, 25)))
def test_curve_is_the_share_of_larger_distances(d, ε):
    expected = [(d > one).mean() for one in ε]
    np.testing.assert_allclose(Curve.of(d).at(ε), expected, rtol=0, atol=1e-15)
    assert [robust_accuracy(d, one) for one in ε] == expected
    np.testing.assert_allclose(
        Curve.of(d).at(d[np.isfinite(d)]),
        [(d > one).mean() for one in d[np.isfinite(d)]],
        atol=1e-15,
    )


@given(distances)
def test_curve_never_rises_and_ends_at_epsilon_min(d):
    curve = Curve.of(d)
    assert curve.epsilons[0] == 0
    assert curve.accuracies[0] == pytest.approx(np.mean(d > 0))
    assert (np.diff(curve.accuracies) < 0).all()
    end = epsilon_min(d)
    assert curve.at(end.value) == pytest.approx(np.isinf(d).mean())
    assert bool(end.flags) == bool(np.isinf(d).any() or not (d > 0).any())


@given(distances, distances)
def test_adding_a_run_never_raises_the_curve(first, second):
    n = min(first.size, second.size)
    both = np.minimum(first[:n], second[:n])
    ε = np.unique(np.append(first[np.isfinite(first)], 0))
    assert (Curve.of(both).at(ε) <= Curve.of(first[:n]).at(ε)).all()


@given(distances, st.floats(0, 1))
def test_a_curve_has_fallen_where_it_says(d, share):
    curve = Curve.of(d)
    end = curve.falls_to(share)
    assert curve.at(end) <= share or end == curve.epsilons[-1]
    assert (curve.accuracies[curve.epsilons < end] > share).all()


@given(distances, distances)
def test_the_difference_of_two_curves(first, second):
    a, b = Curve.of(first), Curve.of(second)
    steps, gaps = a.less(b)
    np.testing.assert_array_equal(gaps, a.at(steps) - b.at(steps))
    assert set(steps) == {*a.epsilons, *b.epsilons}


@pytest.mark.parametrize("d", [[np.inf, np.inf], [0.0, np.inf], [0.0, 0.0]])
def test_where_nothing_was_broken_there_is_no_area(d):
    area = aurec(d)
    assert np.isnan(area.value)
    assert area.flags


def test_quantiles_are_distances_that_break_the_share():
    d = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, np.inf, np.inf])
    assert distance_quantile(d, 0.5) == 4.0
    assert distance_quantile(d, 0.3) == 2.0  # 0.3 × 10 rounds to more than 3
    assert distance_quantile(d, 0.1) == 0.0
    assert distance_quantile(d, 0.9) == np.inf


def test_degenerate_distances_are_flagged():
    assert epsilon_min([np.inf, np.inf]).value == 0
    assert "no sample was ever broken" in " ".join(epsilon_min([np.inf]).flags)
    assert epsilon_min([0.0, 0.0]).flags
    assert aurec([1.0, np.inf]).value == 1.0
    assert aurec([1.0, np.inf]).flags == ("1 of 2 samples were never broken",)
    assert aurec([2.0]).value == 2.0


@pytest.mark.parametrize("wrong", [[], [[1.0]], [-1.0], [np.nan]])
def test_wrong_distances_are_refused(wrong):
    with pytest.raises(FrontierError, match="expected"):
        aurec(wrong, E=1.0)


def test_wrong_arguments_are_refused():
    with pytest.raises(FrontierError, match="finite"):
        aurec([1.0], E=np.inf)
    with pytest.raises(FrontierError, match="8 / 255"):
        robust_accuracy([1.0], -0.1)
    with pytest.raises(FrontierError, match="8 / 255"):
        Curve.of([1.0]).at([0.1, np.nan])
    with pytest.raises(FrontierError, match="median"):
        distance_quantile([1.0], 0)
