"""Allocation from records on disk: which traces are found, what is refused, what is written and
shown.
"""

import json

import numpy as np
import pytest
from support.models import conv_net, samples

from advfrontier import FrontierError, Machine, allocate, trace
from advfrontier.evaluation.allocation import (
    allocate_traces,
    allocation_tables,
    common_runs,
    find_traces,
    traces_table,
    write_ensembles,
)
from advfrontier.evaluation.trace import load_traces
from advfrontier.frontier.problem import levels_of
from advfrontier.pool import Ensemble
from advfrontier.record import Record
from advfrontier.solvers import PUBLISHED

OPTIONS = {"batch_size": 8, "machine": Machine(threads=1, progress=False)}


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Return the folder of traces of two models in two norms; the second has fewer runs and
    queries.
    """
    folder = tmp_path_factory.mktemp("traced")
    model = conv_net(seed=1)
    problem = (model, *samples(model, 6, (1, 8, 8), seed=4))
    for norm in ("L2", "Linf"):
        out = folder / "a" / norm
        trace(*problem, norm=norm, runs=["fmn", "fmn:restart1"], queries=100, out=out, **OPTIONS)
    runs = ["fmn", "fmn:restart1", "ddn"]
    trace(*problem, norm="L2", runs=runs, queries=60, out=folder / "b" / "L2", **OPTIONS)
    published = {"solvers": PUBLISHED, "queries": 60}
    trace(*problem, norm="L2", runs=["fmn"], out=folder / "c" / "L2", **published, **OPTIONS)
    return folder


@pytest.fixture
def records(traced):
    return [Record.open(traced / name / "L2", "trace") for name in "ab"]


def test_find_traces_sorts_them_by_norm_and_leaves_out_norms_without_any(traced):
    found = find_traces([traced / "a", traced / "b", traced], ["L0", "L2", "Linf"])
    assert list(found) == ["L2", "Linf"]
    assert sorted(record.place for record in found["L2"]) == [str(traced / n / "L2") for n in "abc"]
    assert len(found["Linf"]) == 1


def test_find_traces_says_what_to_type_where_there_are_none(traced):
    with pytest.raises(FrontierError, match="nothing to allocate on: expected folders of traces"):
        find_traces([], ["L2"])
    with pytest.raises(FrontierError, match=r"no trace in L0 below .*: expected one; type"):
        find_traces([traced], ["L0"])


def test_common_runs_are_as_long_as_the_shortest_trace(records):
    assert common_runs(records) == {"fmn": 60, "fmn:restart1": 60}
    assert common_runs(records[:1]) == {"fmn": 100, "fmn:restart1": 100}
    assert common_runs(records[1:])["ddn"] == 60


def test_allocation_from_records_is_that_of_the_traces_in_memory(records):
    found = allocate_traces(records, budgets=[60, 120])
    levels = levels_of(60)
    runs = ["fmn", "fmn:restart1"]
    traces = [load_traces(record.place, runs=runs).thin(levels) for record in records]
    expected = allocate(traces, budgets=[60, 120], levels=levels)
    assert list(found) == [60, 120]
    assert tuple(found.values()) == expected
    assert found[120].holds(found[60])
    assert found[60].aoi <= found[120].aoi <= found[120].bound


def test_runs_and_queries_can_be_chosen(records):
    (alone,) = allocate_traces(records, budgets=[60], runs=["fmn"], queries=40).values()
    assert alone.queries == {"fmn": 40}
    with pytest.raises(FrontierError, match=r"ddn is not finished in all of .*: type the trace"):
        allocate_traces(records, budgets=[60], runs=["ddn"])
    with pytest.raises(FrontierError, match="fmn is not finished in all of"):
        allocate_traces(records, budgets=[60], queries=70)


def test_traces_of_other_solvers_are_not_mixed(traced, records):
    published = Record.open(traced / "c" / "L2", "trace")
    with pytest.raises(FrontierError, match=r"fmn at .*: expected the same solvers in both"):
        allocate_traces([*records, published], budgets=[60], runs=["fmn"])
    (own,) = allocate_traces([published], budgets=[60]).values()
    assert set(own.solvers) == {"fmn"}


def test_files_are_named_by_norm_and_budget_and_can_be_evaluated(records, tmp_path):
    ensembles = allocate_traces(records, budgets=[60, 1000])
    files = write_ensembles(tmp_path, ensembles)
    assert files == [f"{tmp_path}/L2-60.toml", f"{tmp_path}/L2-1k.toml"]
    assert [Ensemble.load(file) for file in files] == list(ensembles.values())


def test_tables_show_queries_per_run_and_the_upper_bound(records, tmp_path):
    ensembles = allocate_traces(records, budgets=[60, 120])
    files = write_ensembles(tmp_path, ensembles)
    (queries, reached), facts = allocation_tables("L2", records, ensembles, files)
    assert queries.title == "ℓ2, allocated on 2 models"
    for row in queries.records():
        for budget in (60, 120):
            assert row[str(budget)] == ensembles[budget].queries.get(row["run"])
    rows = reached.records()
    assert [row["queries"] for row in rows] == [ensembles[60].total, ensembles[120].total]
    assert [row["bound"] for row in rows] == [ensembles[60].bound, ensembles[120].bound]
    assert reached.notes[-2:] == (f"ensemble: {files[0]}", f"ensemble: {files[1]}")
    entry = json.loads(json.dumps(facts))["ensembles"]["120"]
    assert entry["file"] == files[1]
    assert entry["aoi"] == ensembles[120].aoi
    assert facts["traces"] == [record.place for record in records]


def test_table_of_traces_has_a_line_per_folder(traced):
    traces = {str(traced / name / "L2"): load_traces(traced / name / "L2") for name in "ab"}
    table, facts = traces_table(traces)
    first, second = table.records()
    assert (first["runs"], first["queries each"], first["samples"]) == (2, 100, 6)
    assert (second["runs"], second["queries each"]) == (3, 60)
    attacked = int(np.sum(~traces[str(traced / "a" / "L2")].misclassified))
    assert first["queries in all"] == 2 * 100 * attacked
    assert facts[str(traced / "b" / "L2")]["runs"] == ["fmn", "fmn:restart1", "ddn"]
