"""Numbers and norms as text."""

from __future__ import annotations

import pytest

from advfrontier.frontier.confidence import Interval
from advfrontier.report import numbers
from advfrontier.report.numbers import size

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0412345, "0.04123"),
        (14.2, "14.20"),
        (7, "7"),
        (0, "0"),
        (INF, "∞"),
        (NAN, "–"),
        (None, "–"),
        (12345.6, "12346"),
        (1.2e-9, "1.200e-09"),
        (-0.43, "-0.4300"),
    ],
)
def test_size_has_four_digits(value, text):
    assert size(value) == text


def test_size_with_the_decimals_of_its_column():
    assert size(0.5, 4) == "0.5000"
    assert size(INF, 4) == "∞"


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (numbers.percent, 0.4312, "43.1"),
        (numbers.percent, None, "–"),
        (numbers.score, 0.98765, "0.988"),
        (numbers.score, INF, "∞"),
        (numbers.score, NAN, "–"),
        (numbers.whole, 12000.0, "12,000"),
        (numbers.duration, 119, "119 s"),
        (numbers.duration, 120, "2 min"),
        (numbers.duration, 7199, "120 min"),
        (numbers.duration, 7200, "2.0 h"),
        (numbers.memory, 900, "1 kB"),
        (numbers.memory, 2.5e6, "2.5 MB"),
        (numbers.memory, 3e9, "3.0 GB"),
        (numbers.ranks, (2, 4), "2–4"),
        (numbers.ranks, (3, 3), "3"),
        (numbers.ranks, None, ""),
    ],
)
def test_units(show, value, text):
    assert show(value) == text


def test_distance_in_linf_is_also_in_steps_of_eight_bits():
    assert numbers.distance(8 / 255, "Linf") == "0.03137 (8/255)"
    assert numbers.distance(0.1039, "Linf") == "0.1039 (26.5/255)"
    assert numbers.distance(8 / 255, "L2") == "0.03137"
    assert numbers.distance(INF, "Linf") == "∞"
    assert numbers.levels(0.0, "Linf") == ""


@pytest.mark.parametrize(
    ("norm", "text"), [("L0", "ℓ₀"), ("L1", "ℓ₁"), ("L2", "ℓ₂"), ("Linf", "ℓ∞")]
)
def test_norms_have_low_numbers(norm, text):
    assert numbers.norm_text(norm) == text


def test_ends_of_an_interval():
    assert numbers.ends(Interval(0.5, 0.401, 0.462), numbers.percent) == "40.1–46.2"
    assert numbers.ends(Interval(0.5, -0.1, 0.2), size) == "-0.1000 to 0.2000"
    assert numbers.ends(Interval(NAN, NAN, NAN), size) == ""


def test_decimals_of_a_column_give_the_largest_four_digits():
    assert numbers.column_decimals([0.2355, 0.02266, INF]) == 4
    assert numbers.column_decimals([3, 12, INF]) == 0
    assert numbers.column_decimals([INF, None]) == 0
    assert numbers.column_decimals([1e-12]) == 8
