"""The rows of finished records: they are what the records say, and records that are missing add
none.
"""

import numpy as np
import pytest
from bench_tiny import NORMS

from advfrontier.bench.collect import collect
from advfrontier.bench.folder import (
    Bench,
    finished_baseline,
    finished_evaluation,
    finished_trace,
    read_trace,
)
from advfrontier.bench.frame import Results


@pytest.fixture(scope="module")
def collected(finished):
    results = Results()
    collect(finished[0], results, norms=NORMS)
    return finished[0], results


def distances_of(results, **where):
    table = results.distances
    for column, value in where.items():
        table = table[table[column] == value]
    return table["distance"].to_numpy()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("model", ["plain", "noisy"])
def test_rows_are_what_the_records_say(collected, norm, model):
    bench, results = collected
    entry = bench.benchmark[model]
    trace = read_trace(bench, finished_trace(bench, entry, norm))
    where = {"norm": norm, "model": model}
    for run, found in zip(trace.runs, trace.distances, strict=True):
        assert np.array_equal(distances_of(results, ensemble=run, budget=80, **where), found[-1])
    evaluation = finished_evaluation(bench, entry, norm)
    for budget in (40, 80):
        found = distances_of(results, ensemble="default", budget=budget, **where)
        assert np.array_equal(found, evaluation.distances_at(budget))
        greedy = results.ensembles[norm, 80].at(budget)
        found = distances_of(results, ensemble="greedy", budget=budget, **where)
        assert np.array_equal(found, trace.best(greedy.queries))
    rows = results.distances
    rows = rows[(rows["norm"] == norm) & (rows["model"] == model)]
    assert set(rows["split"]) == {entry.split}
    assert tuple(rows["sample"].unique()) == trace.samples


def test_larger_budgets_never_find_farther_points(collected):
    bench, results = collected
    for family in ("default", "greedy"):
        for norm in NORMS:
            before = np.inf
            for budget in bench.grid:
                where = {"norm": norm, "model": "noisy", "budget": budget}
                found = distances_of(results, ensemble=family, **where)
                assert len(found) == 3
                assert (found <= before).all()
                before = found


def test_points_and_warnings_come_along(collected):
    bench, results = collected
    points = finished_baseline(bench, bench.benchmark["noisy"], "L2")
    assert set(results.points["model"]) == {"noisy"}
    assert tuple(results.points["radius"]) == points.radii
    assert tuple(results.points["accuracy"]) == points.accuracies
    assert tuple(results.points["queries"]) == points.queries
    evaluation = finished_evaluation(bench, bench.benchmark["plain"], "L2")
    flags = results.flags
    own = flags[(flags["model"] == "plain") & (flags["norm"] == "L2")]
    texts = set(own.loc[own["source"] == "default", "text"])
    assert texts == {flag.text for flag in evaluation.flags}


def test_records_that_are_missing_add_no_rows_and_keep_those_there(collected, tmp_path):
    bench, results = collected
    elsewhere = Bench(bench.name, bench.benchmark, str(tmp_path / "nothing"))
    empty = Results()
    collect(elsewhere, empty)
    assert empty.distances.empty
    held = Results(results.distances, results.points, results.flags, dict(results.ensembles))
    collect(elsewhere, held)
    assert held.distances is results.distances
    collect(bench, held, norms=["L2"])
    assert len(held.distances) == len(results.distances)
