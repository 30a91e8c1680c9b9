import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from advfrontier.errors import FrontierError
from advfrontier.frontier import (
    Curve,
    Measure,
    aoi,
    attack_frontier,
    baseline_aoi,
    baseline_radii,
    epsilon_min,
    global_aoi,
    winsorised_aoi,
)
from advfrontier.frontier.optimality import known_up_to, straight_accuracies

values = st.one_of(st.floats(0.01, 20), st.integers(1, 5).map(float), st.just(np.inf))


@st.composite
def pools(draw):
    """Distances (attack, sample) of attacks on one model: they agree on what is misclassified
    unperturbed.
    """
    attacks, samples = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    d = draw(hnp.arrays(np.float64, (attacks, samples), elements=values))
    d[:, draw(hnp.arrays(np.bool_, samples))] = 0
    return d


@given(pools())
def test_closed_form_is_the_papers_ratio_of_areas(d):
    frontier = attack_frontier(d)
    E = epsilon_min(frontier).value
    clean = np.mean(frontier > 0)
    reach = clean * E - Curve.of(frontier).area(E)
    assume(reach > 1e-9)
    for row in d:
        measured = aoi(row, frontier).value
        # Areas, not their ratio, are compared: a ratio of tiny areas magnifies rounding without
        # bound.
        assert measured * reach == pytest.approx(
            clean * E - Curve.of(row).area(E), rel=1e-12, abs=1e-12 * E
        )
        assert 0 <= measured <= 1
    assert aoi(frontier, frontier).value == 1
    assert aoi(np.full(d.shape[1], np.inf), frontier).value == 0


@given(pools())
def test_adding_a_run_never_lowers_the_aoi(d):
    frontier = attack_frontier(d)
    values = [aoi(attack_frontier(d[: k + 1]), frontier).value for k in range(len(d))]
    assert values == sorted(values)
    assert values[-1] == 1


@pytest.mark.parametrize(
    "frontier",
    [[0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [3.0], [0.0, 2.0, np.inf], [np.inf, np.inf]],
    ids=str,
)
def test_degenerate_frontiers_give_one_and_a_flag(frontier):
    measured = aoi(np.full(len(frontier), np.inf), frontier)
    assert measured.value == 1
    assert any("AOI set to 1" in flag for flag in measured.flags)


def test_unbroken_samples_count_on_neither_side_and_are_told():
    broken = aoi([2.0, 3.0, 4.0], [1.0, 3.0, 4.0])
    unbroken = aoi([2.0, 3.0, 4.0, np.inf], [1.0, 3.0, 4.0, np.inf])
    assert unbroken.value == broken.value == pytest.approx(3 / 4)
    assert unbroken.flags == ("1 of 4 samples were never broken",)
    assert not broken.flags


def test_an_attack_below_the_frontier_is_told():
    measured = aoi([0.5, 3.0], [1.0, 3.0])
    assert measured.value > 1
    assert "not in the frontier's pool" in measured.flags[0]


def test_winsorised_aoi_ignores_one_outlier():
    frontier = np.append(np.linspace(1, 2, 99), 1000.0)
    attack = frontier * 1.2
    assert aoi(attack, frontier).value > 0.999
    assert winsorised_aoi(attack, frontier).value < 0.7
    assert winsorised_aoi(frontier, frontier).value == 1
    assert winsorised_aoi([0.0], [0.0]).flags


def test_global_aoi_is_the_mean_over_models():
    both = global_aoi({"a": Measure(0.5), "b": Measure(1.0, ("odd",))})
    assert both == Measure(0.75, ("b: odd",))
    with pytest.raises(FrontierError, match="at least one"):
        global_aoi({})


def test_sizes_must_agree():
    with pytest.raises(FrontierError, match="same samples"):
        aoi([1.0], [1.0, 2.0])
    with pytest.raises(FrontierError, match="same samples"):
        attack_frontier([[1.0], [1.0, 2.0]])


@given(pools(), st.lists(st.floats(0.001, 25), min_size=1, max_size=8, unique=True))
def test_bracket_holds_the_aoi_of_the_whole_curve(d, radii):
    frontier, attack = attack_frontier(d), d[0]
    found = baseline_aoi(radii, Curve.of(attack).at(radii), frontier)
    assert found.low - 1e-9 <= aoi(attack, frontier).value <= found.high + 1e-9
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9


def test_straight_lines_as_in_the_paper():
    frontier = np.array([1.0, 2.0, 3.0, 4.0])
    # (0, 1), (2, 0.5), (4, 0): the area is 2, and ρ(0)·E − AUREC* = 4 − 2.5.
    found = baseline_aoi([2.0], [0.5], frontier)
    assert found.value == pytest.approx(2 / 1.5)
    assert found.low == pytest.approx((4 - 3.0) / 1.5)
    assert found.high == pytest.approx((4 - 1.0) / 1.5)


def test_a_known_radius_beyond_the_limit_replaces_the_assumed_end():
    frontier = np.array([1.0, 2.0, 3.0, 4.0])
    found = baseline_aoi([2.0, 6.0], [0.5, 0.25], frontier)
    assert found.value == pytest.approx((4 - (1.5 + 0.875)) / 1.5)
    assert found.high == pytest.approx((4 - (1.0 + 0.5)) / 1.5)


def test_straight_lines_end_on_the_frontier():
    # One sample of four was never broken, so E = 3: (0, 1), (2, 0.5), (3, 0.25), and ρ(0)·E −
    # AUREC* = 3 − 2.25.
    unbroken = baseline_aoi([2.0], [0.5], np.array([1.0, 2.0, 3.0, np.inf]))
    assert unbroken.value == pytest.approx((3 - (1.5 + 0.375)) / 0.75)


def test_accuracies_off_the_lines_only_where_points_are_known():
    found = straight_accuracies([4.0, 2.0], [0.2, 0.5], [0.0, 1.0, 2.0, 3.0], clean=0.9)
    np.testing.assert_allclose(found, [0.9, 0.7, 0.5, 0.35])
    assert known_up_to([4.0, 2.0], [0.2, 0.5]) == 4
    with pytest.raises(FrontierError, match="at most 4"):
        straight_accuracies([4.0, 2.0], [0.2, 0.5], [4.5], clean=0.9)
    assert known_up_to([2.0, 4.0], [0.5, 0.0]) == np.inf  # nothing is robust at 4, and so beyond
    np.testing.assert_allclose(
        straight_accuracies([2.0, 4.0], [0.5, 0.0], [3.0, 9.0], clean=0.9), [0.25, 0]
    )


def test_more_radii_tighten_the_bracket():
    rng = np.random.default_rng(0)
    frontier = rng.lognormal(0, 0.5, 500)
    attack = frontier * (1 + rng.exponential(0.1, 500))
    widths = []
    for count in (3, 10, 100):
        radii = np.quantile(frontier, np.linspace(0.05, 0.95, count))
        found = baseline_aoi(radii, Curve.of(attack).at(radii), frontier)
        assert found.low <= aoi(attack, frontier).value <= found.high
        widths.append(found.high - found.low)
    assert widths[0] > widths[1] > widths[2]


def test_baseline_radii_are_nine_percentiles_and_the_reference():
    radii = baseline_radii(np.append(np.arange(1.0, 101.0), [0.0, np.inf]), reference=0.5)
    np.testing.assert_array_equal(
        radii, [0.5, *np.arange(10.5, 91, 10)]
    )  # half-way between two of the distances
    np.testing.assert_array_equal(baseline_radii([2.0, 0.0, 4.0]), [1.0, 3.0])
    np.testing.assert_array_equal(baseline_radii([2.0]), [1.0])
    with pytest.raises(FrontierError, match="no radius"):
        baseline_radii([0.0, np.inf])


def test_odd_baselines():
    frontier = [1.0, 2.0]
    assert baseline_aoi([0.5, 1.5], [1.0, 0.5], frontier).flags == ()
    assert "rise" in baseline_aoi([0.5, 1.5], [0.5, 1.0], frontier).flags[0]
    assert (
        "below the frontier at 1 radii" in baseline_aoi([0.5, 1.5], [1.0, 0.0], frontier).flags[0]
    )
    assert baseline_aoi([0.5], [0.5], [0.0, 0.0]).flags
    with pytest.raises(FrontierError, match="per cent"):
        baseline_aoi([0.5], [50.0], frontier)
    with pytest.raises(FrontierError, match="twice"):
        baseline_aoi([0.5, 0.5], [0.5, 0.5], frontier)
    with pytest.raises(FrontierError, match="same samples"):
        baseline_aoi([0.0, 0.5], [0.5, 0.5], frontier)
