"""Results as they show themselves: text, notebooks, figures, data frames and reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_records import evaluation, images_and_labels, net

from advfrontier import Evaluation, evaluate, trace, views
from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import summarise_all
from advfrontier.pool import Ensemble, make_ensemble
from advfrontier.report import summary_tables
from advfrontier.report.render import as_text
from advfrontier.report.views import tables

FORKED = [
    {"run": "fmn", "queries": 100},
    {"run": "fmn", "queries": 60, "start": "beyond", "reach": 2.0},
    {
        "fork": {
            "gained": [{"run": "ddn", "queries": 40, "start": "best"}],
            "otherwise": [{"run": "fmn", "queries": 40, "start": "best"}],
        }
    },
]


def test_summary_is_the_table_of_the_command_line():
    one = evaluation("net", "Linf")
    text = one.summary(radii="8/255")
    assert text == as_text(*summary_tables(summarise_all([one], radii="8/255", gallery=0)))
    assert repr(text) == str(text)  # a session shows the table, not a quoted string
    assert "8/255" in text


def test_a_notebook_shows_table_and_curve():
    page = evaluation("net", "L2")._repr_html_()
    assert page.count("<table>") == page.count("<svg") == 1
    assert "net on" in page
    assert 'data-name="net"' in page
    assert "<script" not in page


def test_a_notebook_shows_names_as_text():
    images, labels = images_and_labels(3)
    tiny = Ensemble.of("tiny", "L2", {"fmn": 20})
    bad = "<script>alert(1)</script>\x1b[2J"
    page = evaluate(net(), images, labels, norm="L2", ensemble=tiny, name=bad)._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page


def test_a_notebook_says_why_a_record_cannot_be_read(tmp_path):
    images, labels = images_and_labels(3)
    tiny = Ensemble.of("tiny", "L2", {"fmn": 20})
    evaluate(net(), images, labels, norm="L2", ensemble=tiny, name="net", out=tmp_path)
    next((tmp_path / "L2" / "units").rglob("*.safetensors")).unlink()
    page = Evaluation.load(tmp_path)._repr_html_()
    assert page.startswith("<p>&lt;Evaluation of net in L2")
    assert "<table" not in page


def test_a_plot_has_curve_band_and_radii():
    pytest.importorskip("matplotlib", reason="figures are an extra").use("Agg")
    one = evaluation("net", "L2")
    axes = one.plot(radii="0.5")
    (line,) = (line for line in axes.get_lines() if line.get_label() == "net")
    assert list(line.get_xdata()[:-1]) == one.curve().epsilons.tolist()
    assert [text.get_text() for text in axes.texts] == ["0.5"]
    assert len(axes.collections) == 1
    assert axes.get_xlim()[1] >= 0.6


def test_a_plot_into_axes_that_hold_another_has_another_colour():
    pytest.importorskip("matplotlib", reason="figures are an extra").use("Agg")
    axes = evaluation("net", "L2").plot()
    far = axes.get_xlim()[1]
    assert evaluation("other", "L2").plot(ax=axes) is axes
    evaluation("net", "L2").plot(ax=axes)  # the same name again
    names = ("net", "other")
    colours = [line.get_color() for line in axes.get_lines() if line.get_label() in names]
    assert len(set(colours)) == 3
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["net", "other", "net"]
    assert axes.get_xlim()[1] >= far


def test_a_data_frame_has_a_row_per_sample():
    pytest.importorskip("pandas", reason="data frames are an extra")
    one = evaluation("net", "L2")
    frame = one.to_dataframe()
    assert frame["distance"].tolist() == one.distances.tolist()
    assert frame["row"].tolist() == list(range(24))
    assert list(frame.columns[:4]) == ["row", "sample", "label", "prediction"]


def test_a_data_frame_without_pandas_says_what_to_type(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(FrontierError, match=r"pip install 'advfrontier\[pandas\]'"):
        evaluation("net", "L2").to_dataframe()


def test_a_report_of_one_line(tmp_path):
    one, other = evaluation("net", "L2"), evaluation("net", "Linf")
    path = one.report(tmp_path / "r.html", others=[other], radii="0.5")
    text = Path(path).read_text(encoding="utf-8")
    assert path == str(tmp_path / "r.html")
    assert 'data-norm="L2"' in text
    assert 'data-norm="Linf"' in text
    assert "at 0.5" in text


def test_traces_list_the_runs_that_are_on_the_frontier_first():
    images, labels = images_and_labels(4)
    traces = trace(net(), images, labels, norm="L2", runs=["fmn", "ddn"], queries=40)
    (table,) = tables(traces)
    names = [column.name for column in table.columns]
    assert names == ["run", "median after 10", "median after 40", "on the frontier"]
    wins = [row[-1] for row in table.rows]
    assert wins == sorted(wins, reverse=True)
    assert sum(wins) >= 1
    assert {row[0] for row in table.rows} == {"fmn", "ddn"}
    assert "median after 40" in traces.summary()
    assert traces._repr_html_().count("<tr>") == 3


def test_an_ensemble_lists_its_steps():
    ensemble = make_ensemble(name="tiny", norm="L2", steps=FORKED)
    (table,) = tables(ensemble)
    forked = (
        "where the step before gained: refine by ddn, 40 queries, starting at the best point; "
        "otherwise: refine by fmn, 40 queries, starting at the best point"
    )
    assert table.title == repr(ensemble).strip("<>")
    assert table.rows == (
        (0, 100, "raise fmn to 100 queries"),
        (100, 160, "refine by fmn, 60 queries, starting up to 2 times beyond the best point"),
        (160, 200, forked),
    )
    assert tables(ensemble.at(130))[0].rows[-1][:2] == (100, 130)
    assert "<td" in ensemble._repr_html_()
    assert isinstance(ensemble, views.Shown)


def test_an_ensemble_says_what_it_reaches():
    ensemble = make_ensemble(name="tiny", norm="L2", steps=FORKED, flags=("few models",))
    known = ensemble.model_copy(update={"aoi": 0.987, "bound": 0.991})
    assert tables(known)[0].notes == (
        "AOI 98.7 %",
        "no allocation of these queries can pass 99.1 %",
        "few models",
    )


def test_a_result_without_a_table_is_refused():
    with pytest.raises(TypeError, match="int has no table"):
        tables(3)
