"""What further queries would change: intervals for one more model, and the table of the package."""

import numpy as np
import pytest

from advfrontier import FrontierError
from advfrontier.evaluation.further import (
    FILE,
    FIRST,
    FurtherTable,
    expected_change,
    load_table,
    prediction_interval,
    relative_changes,
)
from advfrontier.pool import TIERS, find_ensemble, make_ensemble
from advfrontier.threat.names import NORMS
from advfrontier.toml import parse_toml

INF = np.inf


def test_relative_changes():
    before = np.array([0.0, 1.0, 3.0, 4.0])
    area, mean = relative_changes(before, np.array([0.0, 1.0, 2.0, 3.0]))
    assert area == pytest.approx(2 / 8)
    assert mean == pytest.approx(2 / 8)
    assert relative_changes(before, before) == (0.0, 0.0)


def test_unbroken_samples_count_up_to_the_largest_distance():
    """The unbroken sample counts as 4 before and 2 after in AUREC, and not in the mean."""
    area, mean = relative_changes([2.0, 4.0, INF], [2.0, 4.0, 2.0])
    assert area == pytest.approx(2 / 10)
    assert mean == 0
    assert np.isnan(relative_changes([0.0, INF], [0.0, 1.0])).all()


def test_interval_by_hand():
    """Cube roots 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, and t(2) at 95 % is 2.920."""
    low, median, high = prediction_interval([0.001, 0.008, 0.027], level=0.9)
    assert median == pytest.approx(0.2**3)
    width = 2.919986 * 0.1 * np.sqrt(4 / 3)
    assert high == pytest.approx((0.2 + width) ** 3, rel=1e-5)
    assert low == 0  # the interval of the cube roots goes below zero
    assert prediction_interval([0.9, 1.0, 1.0])[2] == 1
    assert prediction_interval([0.1, 0.1, 0.1]) == pytest.approx((0.1, 0.1, 0.1))


def test_interval_holds_nine_of_ten_further_models():
    """For skewed changes such as those of models, a tenth of which are below 0.1 %."""
    random = np.random.default_rng(0)
    inside = []
    for _ in range(2000):
        *known, further = random.gamma(1.0, 0.01, size=10)
        low, _, high = prediction_interval(known, level=0.9)
        inside.append(low <= further <= high)
    assert 0.88 < np.mean(inside) < 0.94


def test_too_few_models():
    with pytest.raises(FrontierError, match="changes of 2 models: expected three or more"):
        prediction_interval([0.1, 0.2])


@pytest.mark.parametrize("norm", NORMS)
def test_table_of_the_package(norm):
    """Expectations fall with the queries, as there are fewer further ones."""
    table = load_table()
    rows = {entry.norm: entry.rows for entry in table.norms}[norm]
    assert table.queries == TIERS[-1]
    assert {400, FIRST, TIERS[0]} <= {row.queries for row in rows}
    medians = [row.aurec[1] for row in rows]
    assert medians == sorted(medians, reverse=True)
    assert 0 <= medians[-1] < 0.05


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("queries", [400, 1000, 4000, 8000])
def test_expectation_at_a_budget_of_the_table(norm, queries):
    further = expected_change(find_ensemble("12k", norm, 10).at(queries), 10)
    rows = {entry.norm: entry.rows for entry in load_table().norms}[norm]
    (row,) = (row for row in rows if row.queries == queries)
    found = (further.aurec.low, further.aurec.estimate, further.aurec.high)
    assert found == pytest.approx(row.aurec)
    assert further.distance.estimate == pytest.approx(row.distance[1])
    assert further.queries == TIERS[-1]
    assert further.aurec.level == 0.9
    assert further.models == len(load_table().models)


def test_expectation_between_two_budgets():
    """Half way in the logarithm it is the mean of both."""
    whole = find_ensemble("12k", "L2", 10)
    rows = {entry.norm: entry.rows for entry in load_table().norms}["L2"]
    first = next(row for row in rows if row.queries == 1000)
    second = next(row for row in rows if row.queries == 1500)
    middle = whole.at(round(np.sqrt(1000 * 1500), -1).astype(int).item())
    expected = (first.aurec[1] + second.aurec[1]) / 2
    assert expected_change(middle, 10).aurec.estimate == pytest.approx(expected, rel=0.01)
    late = expected_change(whole.at(11_990), 10)
    assert 0 <= late.aurec.low <= late.aurec.estimate <= late.aurec.high < 0.001


def test_no_expectation():
    whole = find_ensemble("12k", "L2", 10)
    assert expected_change(whole, 10) is None  # nothing is known of more than 12k
    assert expected_change(whole.at(10), 10) is None  # nor of the first queries
    steps = [{"run": "fmn", "queries": 1000}]
    assert expected_change(make_ensemble(name="own", norm="L2", steps=steps), 10) is None
    assert expected_change(find_ensemble("paper-4k", "L2", 10), 10) is None


ROW = "{ queries = 100, aurec = [0.1, 0.2, 0.3], distance = [0.1, 0.2, 0.3] }"
TABLE = f"""
models = ["a", "b", "c"]
data = "d"
samples = 4
queries = 12000

[[norms]]
norm = "L2"
rows = [{ROW}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.1, 0.2, 0.3], d", "0.2, 0.1, 0.3], d", "does not rise: expected low, median, high"),
        ("0.3] }", "1.3] }", "less than or equal to 1"),
        ("0.3] }", "nan] }", "finite number"),
        ('"a", ', "", "at least 3 items"),
        (ROW, f"{ROW}, {ROW}", r"the queries \[100, 100\] do not rise"),
        ("samples = 4", "", "has no samples"),
    ],
)
def test_other_tables_are_refused(old, new, message):
    assert parse_toml(FurtherTable, TABLE, FILE).norms[0].rows[0].queries == 100
    with pytest.raises(FrontierError, match=message):
        parse_toml(FurtherTable, TABLE.replace(old, new, 1), FILE)
