"""Certified radii in the table, the page and the figure; nothing of them where there are none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.records import RADII, record

from advfrontier.evaluation.summary import summarise
from advfrontier.report import summary_tables, write_figures, write_report
from advfrontier.report.charts import norm_data

NAME = "certified accuracy %"


def summary(norm="Linf", *, share):
    evaluation = record(norm=norm)
    evaluation.certified = None if share is None else share * evaluation.full
    return summarise(evaluation, radii=RADII[norm], gallery=0)


def test_the_share_certified_is_never_above_the_share_that_stands():
    found = summary(share=0.6)
    (table,) = summary_tables([found])
    names = [column.name for column in table.columns]
    place = names.index(NAME)
    for row in table.rows:
        assert row[place].estimate <= row[place - 1].estimate
    assert table.rows[0][place].estimate < table.rows[0][place - 1].estimate
    assert found.certified.median == pytest.approx(0.6 * found.median)
    assert any("certified in Linf: median radius" in note for note in table.notes)
    (both,) = summary_tables([found, replace(found, model="other")])
    assert [note.partition(":")[0] for note in both.notes if note.startswith("certified")] == [
        "certified in Linf of zoo",
        "certified in Linf of other",
    ]
    assert json.loads(json.dumps(found.to_dict()))["certified"]["radii"] == list(
        found.certified.radii
    )


def test_a_norm_without_certificates_leaves_its_cells_empty():
    (table,) = summary_tables([summary("L0", share=None), summary(share=0.6)])
    place = [column.name for column in table.columns].index(NAME)
    assert [row[place] for row in table.rows] == [
        None,
        None,
        *(row[place] for row in table.rows[2:]),
    ]
    assert None not in [row[place] for row in table.rows[2:]]
    (plain,) = summary_tables([summary("L0", share=None)])
    assert NAME not in [column.name for column in plain.columns]


def test_the_lower_curve_is_drawn(tmp_path):
    found = summary(share=0.6)
    lower = norm_data(found, [])["own"]["certified"]
    assert np.all(np.diff(lower["y"]) < 0)
    assert norm_data(summary(share=None), [])["own"]["certified"] is None
    page = tmp_path / "report.html"
    text = Path(write_report(page, [found])).read_text()
    assert "Certified accuracy %" in text
    assert "certified</li>" in text
    without = Path(write_report(page, [summary(share=None)])).read_text()
    assert "Certified accuracy %" not in without
    assert "certified</li>" not in without


def test_the_figure_has_one_more_line(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    from advfrontier.report import figures  # noqa: PLC0415

    drawn = []
    monkeypatch.setattr(
        figures, "draw_steps", lambda _axes, _curve, **line: drawn.append(line.get("label"))
    )
    write_figures(tmp_path, [summary(share=0.6)], formats=("png",))
    assert drawn == ["zoo:F3", "zoo:F3, certified"]
