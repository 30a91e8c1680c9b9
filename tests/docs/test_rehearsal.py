"""The page of the rehearsal: every model of the benchmark, and figures that fit together."""

import json
from pathlib import Path

import pytest

from advfrontier.bench.benchmark import load_benchmark

DOCS = Path(__file__).parents[2] / "docs"
STORED = json.loads((DOCS / "results" / "rehearsal.json").read_text())
AGAIN = "type `make rehearsal`"


def test_every_model_with_a_source_was_rehearsed_and_resumed():
    named = {model.id: model.source for model in load_benchmark("paper").models if model.source}
    assert {row["id"]: row["source"] for row in STORED["models"]} == named, AGAIN
    done = [row for row in STORED["models"] if row["id"] not in STORED["missing"]]
    for row in done:
        assert row["interrupted"], AGAIN
        assert row["finished"], AGAIN
        assert 0 < row["units_before"] == row["units_kept"] < row["units"], AGAIN


def test_every_model_without_a_source_is_explained():
    without = [model.id for model in load_benchmark("paper").models if not model.source]
    listed = [row["model"] for row in STORED["tables"]["Models without a source"]]
    assert listed == without


def test_hours_follow_from_operations():
    hours = STORED["tables"]["What the benchmark costs"]
    gpu = STORED["gpu"]
    *models, total = hours
    assert total["all"] == pytest.approx(sum(row["all"] for row in models), abs=3)
    by_name = {row["model"]: row for row in models}
    for row in STORED["models"]:
        operations = (row["forward_operations"] + row["backward_operations"]) / 2
        seconds = 48_000 * 1000 * operations / (gpu["peak"] * gpu["sustained"])
        assert by_name[row["id"]]["ensemble"] == pytest.approx(seconds / 3600, abs=0.06)


def test_page_has_a_line_for_every_model():
    page = (DOCS / "rehearsal.md").read_text()
    for row in STORED["models"]:
        ran = f"| {row['id']} | {row['source'].partition(':')[2]} |" in page
        assert ran == (row["id"] not in STORED["missing"]), AGAIN
