"""The tables of a benchmark on disk: what is replaced, what is refused, and the order of rows."""

import builtins
import importlib
import sys

import numpy as np
import pandas as pd
import pytest
from bench_tiny import rows_of

from advfrontier.bench.frame import COLUMNS, Results, make_rows, model_key
from advfrontier.errors import FrontierError
from advfrontier.pool import Ensemble

FOUND = {("greedy", 20): [1.0, np.inf, 0.0], ("fmn", 20): [2.0, 3.0, 0.0]}


def test_rows_have_one_line_per_ensemble_budget_and_sample():
    rows = rows_of("L2", "m", "train", FOUND)
    assert list(rows.columns) == list(COLUMNS)
    assert len(rows) == 6
    own = rows[rows["ensemble"] == "greedy"]
    assert own["distance"].tolist() == [1.0, np.inf, 0.0]
    assert own["sample"].tolist() == ["s0", "s1", "s2"]
    assert set(own["budget"]) == {20}
    assert (
        len(make_rows(norm="L2", model="m", data="d", split="train", samples=[], distances={})) == 0
    )


def test_saved_tables_are_read_as_they_were(tmp_path, results_of):
    results = results_of(rows_of("L2", "m", "train", FOUND), rows_of("L0", "m", "train", FOUND))
    results.put_points(
        pd.DataFrame(
            {"norm": "L2", "model": "m", "radius": [0.1, 1 / 3], "accuracy": 0.5, "queries": 7.25}
        )
    )
    results.put_flags("L2", "m", "trace", {'it is random, "quoted"\nand long': True})
    results.ensembles["L2", 20] = Ensemble.of("greedy-20", "L2", {"fmn": 20})
    results.save(tmp_path)
    found = Results.load(tmp_path)
    order = ["norm", "ensemble", "sample"]
    one, two = (table.distances.sort_values(order, ignore_index=True) for table in (results, found))
    pd.testing.assert_frame_equal(one, two, check_dtype=False)
    assert found.points["radius"].tolist() == [0.1, 1 / 3]
    assert found.flags["text"].tolist() == ['it is random, "quoted"\nand long']
    assert found.flags["doubtful"].tolist() == [True]
    assert found.ensembles == results.ensembles


def test_the_same_results_are_the_same_bytes_in_any_order(tmp_path, results_of):
    parts = [
        rows_of("Linf", "F10", "train", FOUND),
        rows_of("L0", "F10", "train", FOUND),
        rows_of("L0", "F2", "train", FOUND),
    ]
    for name, order in (("a", parts), ("b", parts[::-1])):
        results_of(*order).save(tmp_path / name)
    one, two = ((tmp_path / name / "results.parquet").read_bytes() for name in "ab")
    assert one == two
    stored = pd.read_parquet(tmp_path / "a" / "results.parquet")
    pairs = stored[["norm", "model"]].drop_duplicates().astype(str)
    assert pairs.values.tolist() == [["L0", "F2"], ["L0", "F10"], ["Linf", "F10"]]
    assert stored["ensemble"].astype(str).unique().tolist() == ["greedy", "fmn"]
    assert stored["sample"].dtype == "category"


def test_new_rows_replace_those_of_the_same_model_norm_and_ensemble(results_of):
    results = results_of(rows_of("L2", "m", "train", FOUND), rows_of("L2", "n", "train", FOUND))
    results.put_distances(rows_of("L2", "m", "train", {("greedy", 40): [0.5, 0.5, 0.0]}))
    held = results.distances.groupby(["model", "ensemble"])["budget"].unique()
    assert held["m", "greedy"].tolist() == [40]
    assert held["m", "fmn"].tolist() == [20]
    assert held["n", "greedy"].tolist() == [20]


def test_rows_about_other_samples_are_refused(results_of):
    results = results_of(rows_of("L2", "m", "train", FOUND))
    other = rows_of("L2", "n", "train", {("greedy", 20): [1.0, 2.0]})
    with pytest.raises(
        FrontierError,
        match="the table holds 3 samples of d, the new rows are about 2, of which 2 are the same",
    ):
        results.put_distances(other)
    results.put_distances(rows_of("L2", "n", "train", {("greedy", 20): [1.0]}, data="e"))
    assert len(results.distances) == 7


def test_points_and_flags_of_one_source_are_replaced(results_of):
    results = results_of()
    for accuracy in (0.5, 0.25):
        rows = {"norm": "L2", "model": "m", "radius": [1.0], "accuracy": accuracy, "queries": 1.0}
        results.put_points(pd.DataFrame(rows))
    assert results.points["accuracy"].tolist() == [0.25]
    results.put_flags("L2", "m", "trace", {"old": True})
    results.put_flags("L2", "m", "default", {"kept": False})
    results.put_flags("L2", "m", "trace", {"new": False})
    assert sorted(results.flags["text"]) == ["kept", "new"]
    results.put_flags("L2", "m", "trace", {})
    assert results.flags["text"].tolist() == ["kept"]


def test_a_folder_without_tables_is_empty(tmp_path):
    assert Results.load(tmp_path).distances.empty
    assert Results.load(tmp_path / "nowhere").flags.empty


def test_a_number_that_is_none_is_named(tmp_path):
    (tmp_path / "autoattack.csv").write_text("norm,model,radius,accuracy,queries\nL2,m,x,1,1\n")
    with pytest.raises(FrontierError, match=r"autoattack\.csv cannot be read"):
        Results.load(tmp_path)


@pytest.mark.parametrize("name", ["results.parquet", "autoattack.csv", "flags.csv"])
def test_a_damaged_table_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"norm,model\nL2,m\n" if name.endswith("csv") else b"PAR1 no")
    with pytest.raises(
        FrontierError, match=f"{name} (cannot be read|has the columns norm, model:)"
    ):
        Results.load(tmp_path)


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    real = builtins.__import__

    def without_pyarrow(name, *rest, **options):
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.delitem(sys.modules, "advfrontier.bench.frame")
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(FrontierError, match=r"pip install 'advfrontier\[pandas,parquet\]'"):
        importlib.import_module("advfrontier.bench.frame")


def test_models_are_sorted_by_the_numbers_in_their_names():
    assert sorted(["F10", "F2", "C1", "a"], key=model_key) == ["C1", "F2", "F10", "a"]
