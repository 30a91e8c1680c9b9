"""Coverage of the intervals: exact for Wilson's, in 1000 simulated draws for the others.

Every draw is one row of `ratio_intervals`, so one call gives all; the intervals of DOIs are such
rows.
"""

import numpy as np
import pytest
from frontier_instances import COLUMNS, E, model, simulated
from scipy import stats

from advfrontier.errors import FrontierError
from advfrontier.frontier import aoi, aoi_interval, aurec, aurec_interval, curve_margin, wilson
from advfrontier.frontier.confidence import (
    aurec_difference_interval,
    ratio_intervals,
    robust_accuracy_interval,
)

DRAWS = 1000


@pytest.mark.parametrize("n", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("figure", COLUMNS)
def test_bootstrap_intervals_cover(figure, n):
    truth, u, w = simulated(figure, n, DRAWS)
    intervals = ratio_intervals(u, w, limits=[(-np.inf, np.inf)] * DRAWS, resamples=1000)
    covered = np.mean([i.low <= truth <= i.high for i in intervals])
    assert 0.92 <= covered <= 0.98
    # Not covering by being useless: the width is that of a normal interval, give or take.
    spread = np.std([i.estimate for i in intervals])
    assert np.median([i.high - i.low for i in intervals]) < 5.5 * spread


def test_intervals_of_a_mean_of_ratios_cover():
    """A mean DOI over two norms: two ratios on the same samples, far from independent."""
    rng = np.random.default_rng(7)

    def two_norms(shape):
        u, w = COLUMNS["DOI"](rng, shape)
        return np.stack((u, u**1.5)), np.stack((w, w**1.5))

    many, most = two_norms(500_000)
    truth = np.mean(many.mean(axis=-1) / most.mean(axis=-1))
    u, w = two_norms((DRAWS, 100))
    intervals = ratio_intervals(u, w, limits=[(-np.inf, np.inf)] * DRAWS, resamples=1000)
    assert intervals[0].estimate == pytest.approx(
        np.mean(u[:, 0].mean(axis=-1) / w[:, 0].mean(axis=-1))
    )
    assert 0.92 <= np.mean([i.low <= truth <= i.high for i in intervals]) <= 0.98


@pytest.mark.parametrize("n", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_wilson_covers_wherever_an_interval_can(n):
    """Exact coverage, from sums of binomial probabilities, on a fine grid of p with both sides of
    every jump.
    """
    intervals = [wilson(count, n) for count in range(n + 1)]
    low, high = (
        np.array([getattr(i, side) for i in intervals])[:, None] for side in ("low", "high")
    )
    ends = np.concatenate((low, high)).ravel()
    p = np.unique(np.concatenate((np.linspace(0.01, 0.99, 9801), ends - 1e-9, ends + 1e-9)))
    p = p[(p >= 0.01) & (p <= 0.99)]
    chance = stats.binom.pmf(np.arange(n + 1)[:, None], n, p)
    coverage = np.where((low <= p) & (p <= high), chance, 0).sum(axis=0)
    # Whatever the interval, the counts at which it holds p are consecutive: is there such a range
    # with 92 to 98 %?
    below = np.concatenate((np.zeros((1, p.size)), chance.cumsum(axis=0)))
    possible = np.zeros(p.size, dtype=bool)
    for first in range(n + 1):
        ranges = below[first + 1 :] - below[first]
        possible |= ((ranges >= 0.92) & (ranges <= 0.98)).any(axis=0)
    assert ((coverage[possible] >= 0.92) & (coverage[possible] <= 0.98)).all()
    assert coverage.min() >= 0.915
    assert coverage.max() <= 0.981
    nowhere = p[~possible & (p < 0.5)]
    assert nowhere.size == 0 if n == 1000 else (nowhere.min() > 0.01003 and nowhere.max() < 0.01027)


@pytest.mark.parametrize("count", [0, 1, 37, 99, 100])
def test_wilson_is_scipys(count):
    theirs = stats.binomtest(count, 100).proportion_ci(0.95, method="wilson")
    ours = wilson(count, 100)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("n", [100, 1000])
def test_robust_accuracy_interval_covers_in_simulation(n):
    rng = np.random.default_rng(n)
    p = rng.uniform(0.01, 0.99, DRAWS)
    draws = np.where(rng.random((DRAWS, n)) < p[:, None], 1.0, 0.1)
    held = [
        i.low <= q <= i.high
        for q, i in zip(p, (robust_accuracy_interval(d, 0.5) for d in draws), strict=True)
    ]
    assert 0.92 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("n", [100, 1000])
def test_band_covers_the_whole_curve(n):
    margin = curve_margin(n)
    # The exact probability for distances without ties, of all the least favourable: no simulation
    # is as sharp.
    assert 0.95 <= stats.kstwo.cdf(margin, n) <= 0.96
    draws = 4000
    rng = np.random.default_rng(n)
    d = np.sort(
        np.where(rng.random((draws, n)) < 0.15, 0.0, rng.exponential(1, (draws, n))), axis=1
    )
    truth = 0.85 * np.exp(-d)  # P(distance > ε)
    larger = (
        1 - np.arange(1, n + 1) / n
    )  # ρ at each distance, where distances differ, and 1 / n above it just before
    off = np.where(d > 0, np.maximum(np.abs(larger - truth), np.abs(larger + 1 / n - truth)), 0)
    off_at_zero = np.abs((d > 0).mean(axis=1) - 0.85)
    covered = np.mean(np.maximum(off.max(axis=1), off_at_zero) <= margin)
    assert covered >= 0.95 - 2.5 * np.sqrt(0.05 * 0.95 / draws)


def test_intervals_are_around_the_figures_they_are_for():
    rng = np.random.default_rng(3)
    _, first = model(rng, 300)
    second = first * rng.lognormal(0, 0.3, 300)
    frontier = np.minimum(first, second)
    assert aurec_interval(first, E=E).estimate == pytest.approx(aurec(first, E=E).value)
    expected = aurec(first, E=E).value - aurec(second, E=E).value
    assert aurec_difference_interval(first, second, E=E).estimate == pytest.approx(expected)
    assert aoi_interval(first, frontier, E=E).estimate == pytest.approx(
        aoi(first, frontier, E=E).value
    )


def test_interval_agrees_with_scipys_bootstrap():
    d = np.random.default_rng(5).exponential(1, 400)
    ours = aurec_interval(d, E=100.0)
    theirs = stats.bootstrap(
        (d,), np.mean, n_resamples=4000, method="BCa", rng=np.random.default_rng(0)
    )
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.1 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.1 * width)


def test_pairing_makes_differences_sharper():
    rng = np.random.default_rng(6)
    first = rng.lognormal(0, 0.6, 500)
    second = first * 1.05
    paired = aurec_difference_interval(first, second, E=20.0)
    shuffled = aurec_difference_interval(first, rng.permutation(second), E=20.0)
    assert paired.high < 0
    assert (shuffled.high - shuffled.low) > 3 * (paired.high - paired.low)


def test_the_seed_decides_everything():
    d = np.random.default_rng(0).exponential(1, (1, 100))
    one, again, other = (
        ratio_intervals(d, np.ones_like(d), limits=[(0.0, E)], seed=seed) for seed in (1, 1, 2)
    )
    assert one == again != other


def test_what_was_never_broken_has_no_interval():
    never, broken = [np.inf, np.inf, 0.0], [1.0, 2.0, 0.0]
    for interval in (
        aurec_interval(never, E=E),
        aurec_difference_interval(never, broken, E=E),
        aurec_interval([0.0, 0.0], E=0.0),
    ):
        assert not interval.known
        assert np.isnan([interval.low, interval.high]).all()
        assert interval.flags


def test_degenerate_samples_are_flagged():
    same = aurec_interval([1.0, 1.0, 1.0], E=E)
    share = 1 - 0.025 ** (1 / 3)  # of others that three samples miss with a chance of 2.5 %
    assert (same.low, same.high) == pytest.approx((1 - share, 1 + 3 * share))
    assert "all samples agree" in same.flags[0]
    assert aurec_interval([2.0], E=E).flags
    nothing = aoi_interval([0.0, 0.0], [0.0, 0.0], E=E)
    assert (nothing.estimate, nothing.low, nothing.high) == (1.0, 0.0, 1.0)
    assert nothing.flags
    frontier = np.linspace(1, 2, 100)
    few = aoi_interval(
        np.append(frontier[:-1], 3.0), frontier, E=E
    )  # one sample alone is off the frontier
    assert "too few samples" in few.flags[0]
    assert few.low == 0
    rare = aoi_interval(
        [0.0] * 29 + [2.0], [0.0] * 29 + [1.0], E=E
    )  # a third of the resamples have nothing to break
    assert 0 <= rare.low <= rare.estimate <= rare.high <= 1


def test_intervals_hold_the_truth_where_most_draws_see_no_difference():
    """An attack that misses the frontier on one sample in fifty: of 100 samples often none shows
    it.
    """
    rng = np.random.default_rng(0)

    def columns(shape):
        reach = np.maximum(E - model(rng, shape)[0], 0)
        return reach * np.where(rng.random(shape) < 0.02, rng.random(shape), 1), reach

    u, w = columns(500_000)
    intervals = ratio_intervals(*columns((DRAWS, 100)), limits=[(0.0, 1.0)] * DRAWS, resamples=1000)
    assert np.mean([i.low <= u.mean() / w.mean() <= i.high for i in intervals]) >= 0.95


def test_wrong_counts_and_sizes_are_refused():
    with pytest.raises(FrontierError, match="proportion"):
        wilson(5, 4)
    with pytest.raises(FrontierError, match="same samples"):
        aurec_difference_interval([1.0], [1.0, 2.0], E=E)
    with pytest.raises(FrontierError, match="same samples"):
        aoi_interval([1.0], [1.0, 2.0], E=E)
    with pytest.raises(FrontierError, match="8 / 255"):
        robust_accuracy_interval([1.0], np.nan)
    with pytest.raises(FrontierError, match="at least 1"):
        ratio_intervals(np.ones((1, 2)), np.ones((1, 2)), limits=[(0.0, 1.0)], resamples=0)
