"""The tables of the paper, against the same figures computed in plain loops."""

import numpy as np
import pandas as pd
import pytest
from bench_tiny import rows_of
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from advfrontier.bench import tables
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.bench.frame import Results
from advfrontier.pool import Ensemble

NO_POINTS, NO_FLAGS = Results().points, Results().flags


def flags_of(*entries):
    rows = [("L2", model, source, doubtful, "text") for model, source, doubtful in entries]
    return pd.DataFrame(rows, columns=["norm", "model", "source", "doubtful", "text"])


def points_of(model, radii, accuracies, queries=5.0):
    return pd.DataFrame(
        {"norm": "L2", "model": model, "radius": radii, "accuracy": accuracies, "queries": queries}
    )


def joined(*parts):
    return pd.concat(parts, ignore_index=True)


def one(table, **where):
    """Return the only row of a table with these values."""
    for column, value in where.items():
        table = table[table[column] == value]
    (row,) = table.to_dict("records")
    return row


THREE = joined(
    rows_of("L2", "a", "train", {("greedy", 10): [1, 2, 4], ("greedy", 20): [1, 2, 3]}),
    rows_of("L2", "b", "train", {("greedy", 10): [3, 4, 5], ("greedy", 20): [3, 4, 5]}),
    rows_of("L2", "c", "held-out", {("greedy", 10): [0, 9, 9], ("greedy", 20): [0, 6, 2]}),
)


# Building blocks


def test_frontier_is_the_least_distance_over_runs_and_ensembles():
    rows = rows_of("L2", "a", "train", {("greedy", 10): [3, 1], ("fmn", 20): [2, 4]})
    other = rows_of("L0", "a", "train", {("greedy", 10): [1, 1]})
    found = tables.with_frontier(joined(rows, other))
    own = found[found["norm"] == "L2"].groupby("sample")["frontier"].unique()
    assert own["s0"].tolist() == [2]
    assert own["s1"].tolist() == [1]


def test_models_are_ranked_by_the_default_ensembles_where_all_models_have_them():
    assert tables.ranking_family(THREE) == "greedy"
    some = rows_of("L2", "a", "train", {("default", 10): [1, 2, 3]})
    assert tables.ranking_family(joined(THREE, some)) == "greedy"
    every = [rows_of("L2", m, "train", {("default", 20): [1, 2, 3]}) for m in "abc"]
    assert tables.ranking_family(joined(THREE, *every)) == "default"


def test_models_are_not_ranked_by_default_ensembles_that_lack_the_largest_budget():
    larger = [rows_of("L2", m, "train", {("greedy", 20): [1, 2, 3]}) for m in "abc"]
    small = [rows_of("L2", m, "train", {("default", 10): [1, 2, 3]}) for m in "abc"]
    assert tables.ranking_family(joined(*larger, *small)) == "greedy"


def test_trusted_models_have_no_doubt_and_no_unbroken_sample():
    found = {"a": np.ones(2), "b": np.array([1, np.inf]), "c": np.ones(2)}
    assert list(tables.trusted(found, {"c"})) == ["a"]
    flags = flags_of(("a", "trace", True), ("b", "trace", False), ("c", "autoattack", True))
    assert tables.in_doubt(flags, "L2") == {"a"}
    assert tables.in_doubt(flags, "L0") == set()


# Models, attacks and ensembles


def test_model_pool_has_every_model_also_those_without_rows():
    rows = rows_of("L2", "F1", "train", {("greedy", 10): [0, 1, 2, 3]})
    found = tables.models(load_benchmark("fashion-mnist"), rows)
    assert len(found) == 16
    assert one(found, model="F1")["accuracy"] == 0.75
    assert np.isnan(one(found, model="F2")["accuracy"])
    assert one(found, model="F3")["about"] == "trained in Linf"


def test_attack_pool_counts_runs_per_solver_and_norm():
    runs = {(run, 10): [1] for run in ("fmn", "fmn:restart1", "sparse_min", "greedy")}
    rows = joined(rows_of("L0", "a", "train", runs), rows_of("L2", "a", "train", {("fmn", 9): [1]}))
    found = tables.attacks(rows)
    assert one(found, solver="fmn") == {"solver": "fmn", "in the paper": True, "L0": 2, "L2": 1}
    assert one(found, solver="sparse_min")["in the paper"] is False
    assert len(found) == 2


def test_queries_of_an_ensemble_are_summed_per_attack_and_variant():
    queries = {"fmn": 30, "fmn:restart1": 10, "fmn:restart2": 20}
    made = {
        ("L2", 60): Ensemble.of("greedy-60", "L2", queries),
        ("L2", 20): Ensemble.of("greedy-20", "L2", {"fmn": 20}),
    }
    found = tables.ensemble_queries(made)
    assert one(found, variant="restart")[60] == 30
    assert np.isnan(one(found, variant="restart")[20])
    assert one(found, variant="base")[20] == 20


# AOI


def plain_aoi(found, frontier):
    limit = max(d for d in frontier if d < np.inf)
    reached = sum(max(limit - d, 0) for d, best in zip(found, frontier, strict=True) if best > 0)
    most = sum(max(limit - best, 0) for best in frontier if best > 0)
    return reached / most if most else 1.0


DISTANCES = st.lists(st.integers(0, 8), min_size=4, max_size=4)


@given(first=DISTANCES, second=DISTANCES)
@EXAMPLES
def test_aoi_and_distance_above_are_those_of_plain_loops(first, second):
    clean = [d > 0 for d in first]
    second = [max(d, 1) if kept else 0 for d, kept in zip(second, clean, strict=True)]
    rows = rows_of("L2", "a", "train", {("greedy", 10): first, ("fmn", 20): second})
    row = one(tables.aoi(rows, NO_POINTS), ensemble="greedy")
    frontier = np.minimum(first, second)
    assert row["aoi"] == pytest.approx(plain_aoi(first, frontier))
    ratios = [d / best for d, best in zip(first, frontier, strict=True) if best > 0]
    assert row["above"] == pytest.approx(np.mean(ratios) - 1 if ratios else 0)


def test_aoi_by_lines_is_read_at_the_radii_of_autoattack():
    rows = rows_of("L2", "a", "train", {("greedy", 10): [1, 2, 4], ("fmn", 20): [1, 2, 2]})
    points = points_of("a", [1.5], [2 / 3])
    row = one(tables.aoi(rows, points), ensemble="greedy")
    # From (0, 1) over (1.5, 2/3) to (2, 1/3): the ensemble leaves one sample unbroken at 2.
    area = 1.5 * (1 + 2 / 3) / 2 + 0.5 * (2 / 3 + 0) / 2
    assert row["lines"] == pytest.approx((2 - area) / (1 / 3))
    assert row["autoattack"] == pytest.approx(row["lines"])
    assert np.isnan(one(tables.aoi(rows, NO_POINTS), ensemble="greedy")["autoattack"])


def test_mean_aoi_is_over_the_models_of_a_split():
    scores = tables.aoi(THREE, NO_POINTS)
    means = tables.aoi_by_split(scores)
    train = scores[(scores["split"] == "train") & (scores["budget"] == 10)]["aoi"]
    assert one(means, split="train", budget=10)["aoi"] == pytest.approx(train.mean())
    assert one(means, split="held-out", budget=20)["aoi"] == 1


# Against AutoAttack


def test_robust_accuracy_counts_distances_beyond_the_radius():
    points = points_of("a", [2.0, 2.5], [0.5, 0.25], queries=[7.0, 9.0])
    found = tables.robust_accuracy(THREE, points, {"d": {"L2": 2.0}})
    row = one(found, model="a", budget=20)
    assert row["accuracy"] == pytest.approx(1 / 3)  # a distance of exactly 2 is broken
    assert (row["autoattack"], row["queries"]) == (0.5, 7.0)
    assert np.isnan(one(found, model="b", budget=20)["autoattack"])
    assert tables.robust_accuracy(THREE, points, {}).empty
    assert tables.robust_accuracy(THREE, points, {"d": {"L0": 2.0}}).empty


def test_counts_against_autoattack_are_per_split_and_budget():
    points = joined(
        points_of("a", [2.0], [1 / 3]), points_of("b", [2.0], [0.5]), points_of("c", [2.0], [0.9])
    )
    scores = tables.aoi(THREE, points)
    accuracies = tables.robust_accuracy(THREE, points, {"d": {"L2": 2.0}})
    counts = tables.against_autoattack(scores, accuracies)
    train = one(counts, split="train", budget=20)
    assert (train["models"], train["accuracy"]) == (2, 1)  # b keeps all three samples, not half
    assert train["gain"] == pytest.approx(((1 / 3 - 1 / 3) + (0.5 - 1)) / 2)
    held_out = one(counts, split="held-out", budget=20)
    assert (held_out["models"], held_out["accuracy"], held_out["queries"]) == (1, 1, 5)
    of_train = scores[(scores["split"] == "train") & (scores["budget"] == 20)]
    assert train["aoi"] == sum(of_train["aoi"] >= of_train["autoattack"])
    assert train["lines"] == sum(of_train["lines"] >= of_train["autoattack"])
    without = tables.aoi(THREE, NO_POINTS)
    assert tables.against_autoattack(without, accuracies.iloc[:0]).empty


def test_extreme_cases_are_the_largest_and_least_gain_on_held_out_models():
    parts, points = [], []
    for model, split, accuracy in (
        ("a", "held-out", 0.1),
        ("b", "held-out", 0.9),
        ("c", "train", 1),
    ):
        parts.append(rows_of("L2", model, split, {("greedy", 20): [1, 2, 4, 8]}))
        points.append(points_of(model, [3.0], [accuracy]))
    scores = tables.aoi(joined(*parts), joined(*points))
    cases = tables.extreme_cases(scores, "greedy")
    assert cases["model"].tolist() == ["b", "a"]  # AutoAttack is weakest on b
    assert cases["gain"].is_monotonic_decreasing
    assert tables.extreme_cases(scores[scores["split"] == "train"], "greedy")["model"].tolist() == [
        "c"
    ]
    assert tables.extreme_cases(scores, "default").empty


# Models against models


def test_doi_is_the_area_below_the_curve_against_the_defence_frontier():
    found = tables.doi(THREE, NO_FLAGS, "greedy")
    frontier = np.array([3, 6, 5])  # at 20 queries
    for model, distances in (("a", [1, 2, 3]), ("b", [3, 4, 5]), ("c", [0, 6, 2])):
        row = one(found, model=model, budget=20)
        assert row["doi"] == pytest.approx(np.sum(distances) / frontier.sum())
    last = found[found["budget"] == 20]
    assert last["model"].tolist() == ["b", "c", "a"]
    assert last["rank"].tolist() == [1, 2, 3]


def test_models_in_doubt_have_no_rank_and_are_no_part_of_the_frontier():
    found = tables.doi(THREE, flags_of(("b", "trace", True)), "greedy")
    last = found[found["budget"] == 20]
    assert last["model"].tolist() == ["c", "a", "b"]
    assert last["rank"].tolist()[:2] == [1, 2]
    assert np.isnan(last["rank"].tolist()[2])
    assert one(last, model="c")["doi"] == pytest.approx(8 / (1 + 6 + 3))
    every = flags_of(*[(model, "trace", True) for model in "abc"])
    assert tables.doi(THREE, every, "greedy").empty


def test_a_model_that_a_budget_leaves_unbroken_has_no_rank_there():
    late = rows_of(
        "L2", "late", "train", {("greedy", 10): [9, 9, np.inf], ("greedy", 20): [9, 9, 9]}
    )
    found = tables.doi(joined(THREE, late), NO_FLAGS, "greedy")
    assert np.isnan(one(found, model="late", budget=10)["rank"])
    assert one(found, model="late", budget=20)["rank"] == 1


def test_crossings_name_who_overtakes_whom_and_where():
    rows = joined(
        rows_of("L2", "a", "train", {("greedy", 20): [1, 4, 9, 9]}),
        rows_of("L2", "b", "train", {("greedy", 20): [2, 3, 3, 9]}),
    )
    found = tables.crossings(rows, NO_FLAGS, {"d": {"L2": 1.5}}, "greedy", 20)
    (row,) = found.to_dict("records")
    assert (row["leader"], row["overtaken_by"], row["epsilon"]) == ("b", "a", 3)
    assert (row["lead"], row["samples"], row["models"]) == (0.5, 4, 2)
    assert tables.crossings(rows, NO_FLAGS, {}, "greedy", 20).empty
    doubted = flags_of(("a", "trace", True))
    assert tables.crossings(rows, doubted, {"d": {"L2": 1.5}}, "greedy", 20).empty


def test_ranks_by_radius_are_those_of_robust_accuracy():
    options = {"radii": {"d": {"L2": 2.5}}, "family": "greedy", "budget": 20}
    found = tables.ranks_by_radius(THREE, NO_POINTS, NO_FLAGS, **options)
    ((key, ranks),) = found.items()
    assert key == ("L2", "d", "greedy")
    assert 2.5 in ranks.epsilons
    distances = {"a": [1, 2, 3], "b": [3, 4, 5], "c": [0, 6, 2]}
    for place, radius in enumerate(ranks.epsilons):
        robust = {model: sum(x > radius for x in d) for model, d in distances.items()}
        for row, model in enumerate(ranks.models):
            better = sum(other > robust[model] for other in robust.values())
            assert ranks.ranks[row, place] == 1 + better


def test_autoattack_ranks_the_models_it_was_run_on():
    points = joined(
        points_of("a", [1.0, 2.0], [2 / 3, 1 / 3]), points_of("b", [1.0, 2.0], [0.9, 0.8])
    )
    options = {"radii": {}, "family": "greedy", "budget": 20}
    found = tables.ranks_by_radius(THREE, points, NO_FLAGS, **options)
    ranks = found["L2", "d", tables.AUTOATTACK]
    assert ranks.models == ("a", "b")
    assert (ranks.ranks[0] > ranks.ranks[1]).all()
    alone = tables.ranks_by_radius(THREE, points_of("a", [1.0], [0.5]), NO_FLAGS, **options)
    assert list(alone) == [("L2", "d", "greedy")]


def test_rejected_models_lie_below_another_from_the_smallest_budget_on():
    found = tables.rejections(THREE, NO_FLAGS, "greedy", [10, 20])
    (row,) = found.to_dict("records")
    assert (row["rejected"], row["against"]) == ("a", "b")
    assert (row["aurec"], row["other"]) == pytest.approx((7 / 3, 4))
    assert tables.rejections(THREE, flags_of(("b", "trace", True)), "greedy", [10, 20]).empty


def test_missing_rows_make_tables_shorter_and_never_fail():
    empty = THREE.iloc[:0]
    scores = tables.aoi(empty, NO_POINTS)
    accuracies = tables.robust_accuracy(empty, NO_POINTS, {"d": {"L2": 1}})
    assert list(scores.columns) == list(tables.aoi(THREE, NO_POINTS).columns)
    assert tables.aoi_by_split(scores).empty
    assert tables.against_autoattack(scores, accuracies).empty
    assert tables.extreme_cases(scores, "greedy").empty
    assert tables.doi(empty, NO_FLAGS, "greedy").empty
    assert tables.crossings(empty, NO_FLAGS, {"d": {"L2": 1}}, "greedy", 20).empty
    assert tables.rejections(empty, NO_FLAGS, "greedy", [10, 20]).empty
    assert tables.attacks(empty).empty
    assert tables.ensemble_queries({}).empty
    early = THREE[THREE["budget"] == 10]
    assert tables.rejections(early, NO_FLAGS, "greedy", [10, 20]).empty
    assert tables.crossings(early, NO_FLAGS, {"d": {"L2": 1}}, "greedy", 20).empty
    options = {"radii": {}, "family": "greedy", "budget": 20}
    assert tables.ranks_by_radius(early, NO_POINTS, NO_FLAGS, **options) == {}
    lone = THREE[(THREE["model"] != "c") | (THREE["budget"] == 20)]
    assert set(tables.doi(lone, NO_FLAGS, "greedy")["budget"]) == {10, 20}
