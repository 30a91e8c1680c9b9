"""Charts for the screen: their paths are the curves, and everything stays inside."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report_records import RADII, all_norms, alone, evaluation, summary

from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import Certified, QueryCurve
from advfrontier.frontier import Curve
from advfrontier.report import plots
from advfrontier.report.plots import SIDE, Axis


def corners(path):
    """Return the corners of a path in units."""
    found, x = [], 0.0
    for letter, first, second in re.findall(r"([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?", path):
        if letter == "H":
            x = float(first)
        elif letter == "V":
            found.append((x, float(first)))
        else:
            x = float(first)
            found.append((x, float(second)))
    return found


def lines(chart, kind):
    return [line for line in chart.lines if line.kind == kind]


def test_axis_places_and_ticks():
    linear = Axis("size", 0.0, 0.2)
    assert linear.place(0.05) == SIDE / 4
    assert linear.ticks[1] == (250.0, "0.05")
    assert [text for _, text in Axis("share", 0.0, 1.0).ticks] == [
        "0 %",
        "20 %",
        "40 %",
        "60 %",
        "80 %",
        "100 %",
    ]
    assert [text for _, text in Axis("gap", -0.3, 0.3).ticks] == [
        "-30 %",
        "-20 %",
        "-10 %",
        "0 %",
        "+10 %",
        "+20 %",
        "+30 %",
    ]
    log = Axis("count", 10.0, 10000.0, log=True)
    assert [text for _, text in log.ticks] == ["10", "100", "1k", "10k"]
    assert log.place(100) == pytest.approx(SIDE / 3)


@pytest.mark.parametrize("high", [1e-4, 0.031, 0.2, 0.7, 1.0, 3.3, 9.99, 45, 1e4])
def test_axes_have_a_few_round_ticks(high):
    ticks = Axis("size", 0.0, high).ticks
    assert 4 <= len(ticks) <= 7
    assert ticks[0] == (0.0, "0")
    assert ticks[-1][0] <= SIDE


@pytest.mark.parametrize("norm", list(RADII))
def test_the_drawn_curve_is_the_curve(norm):
    found = summary("net", norm)
    chart = plots.curve_chart([found], ["net"])
    (line,) = lines(chart, "model")
    assert (line.name, line.series, line.look) == ("net", "m0", "k0 d0")
    steps = corners(line.path)
    inside = found.curve.epsilons <= chart.x.high
    drawn = chart.x.high * np.array([x for x, _ in steps]) / SIDE
    heights = 1 - np.array([y for _, y in steps]) / SIDE
    np.testing.assert_allclose(drawn, found.curve.epsilons[inside], atol=chart.x.high * 1e-5)
    np.testing.assert_allclose(heights, found.curve.accuracies[inside], atol=1e-5)
    assert line.path.endswith("H1000")


def test_curve_chart_ends_beyond_curves_and_radii():
    found = summary("net", "L2")
    chart = plots.curve_chart([found], ["net"])
    assert chart.x.high >= found.curve.falls_to(0.01)
    far = replace(found.robust[-1], epsilon=10.0)
    assert plots.curve_chart([replace(found, robust=(far,))], ["net"]).x.high == 12.0
    assert 0 < chart.near < min(found.curve.epsilons[1:])


def test_band_is_as_high_as_the_margin_and_stays_inside():
    found = summary("net", "Linf")
    chart = plots.curve_chart([found], ["net"])
    (band,) = lines(chart, "band")
    assert band.series == "m0 bands"
    heights = [y for _, y in corners(band.path)]
    assert min(heights) >= 0
    assert max(heights) <= SIDE
    low = 1 - found.curve.accuracies[0] + found.margin
    assert any(abs(y / SIDE - low) < 1e-4 for y in heights)


def test_reference_models_are_grey_and_read_off_by_name():
    chart = plots.curve_chart([summary("net", "L2")], ["net"])
    pool = lines(chart, "pool")
    assert sorted(line.name for line in pool) == ["A", "B", "C (flagged)"]
    assert {line.look for line in pool} == {"", "doubt"}
    assert [line.name for line in lines(chart, "frontier")] == ["defence frontier"]
    bare = plots.curve_chart([alone()], ["net"])
    assert not lines(bare, "pool")
    assert not lines(bare, "frontier")


def test_two_models_are_both_drawn_the_first_on_top():
    both = [alone("net", "L2"), alone("other", "L2")]
    chart = plots.curve_chart(both, ["net", "other"])
    assert [line.name for line in lines(chart, "model")] == ["other", "net"]
    assert [line.look for line in lines(chart, "model")] == ["k1 d1", "k0 d0"]
    tracks = plots.queries_chart(both, ["net", "other"])
    assert [line.name for line in lines(tracks, "model")] == ["other", "net"]
    assert tracks.y.high >= max(max(one.by_queries.aurec) for one in both)
    for line in lines(tracks, "model"):
        assert min(y for _, y in corners(line.path)) >= 0  # not cut off at the top


def test_a_model_keeps_its_colour_where_others_are_missing():
    chart = plots.curve_chart([alone("net"), alone("other")], ["net", "absent", "other"])
    assert [line.look for line in lines(chart, "model")] == ["k2 d2", "k0 d0"]


def test_models_are_told_apart_by_colour_and_dashes():
    assert len({plots.look(number) for number in range(25)}) == 25
    assert plots.look(3, doubt=True) == "k3 doubt"


def test_certified_curves_are_drawn_below():
    found = alone("net", "L2")
    certified = Certified.of(evaluation("net", "L2").distances * 0.5, ())
    chart = plots.curve_chart([replace(found, certified=certified)], ["net"])
    (line,) = lines(chart, "certified")
    assert (line.name, line.series) == ("net, certified", "m0 certified")
    assert not lines(plots.curve_chart([found], ["net"]), "certified")


def test_a_curve_that_never_falls_is_drawn_to_the_end():
    chart = plots.curve_chart([alone("safe")], ["safe"])
    (line,) = lines(chart, "model")
    assert line.path == "M0 0H1000"
    assert chart.x.high == 1.0


def test_queries_chart_is_the_convergence():
    found = alone("net", "L2")
    chart = plots.queries_chart([found], ["net"])
    track = found.by_queries
    (line,) = lines(chart, "model")
    points = corners(line.path)
    assert len(points) == len(track.queries)
    for (x, y), queries, area in zip(points, track.queries, track.aurec, strict=True):
        assert x == pytest.approx(chart.x.place(queries), abs=0.01)
        assert y == pytest.approx(SIDE - chart.y.place(area), abs=0.01)
    assert [mark.text for mark in chart.marks] == ["100"]
    assert lines(chart, "dots")[0].path.count("h0") == 1
    assert "falls from" in chart.text
    assert "after 10 queries to" in chart.text
    assert plots.queries_chart([alone("safe")], ["safe"]) is None


def test_marks_of_close_budgets_are_raised():
    budgets = (4000, 8000, 12000)
    track = QueryCurve((10, *budgets), (0.4, 0.3, 0.2, 0.1), budgets)
    chart = plots.queries_chart([replace(alone(), by_queries=track)], ["net"])
    assert [mark.text for mark in chart.marks] == ["4k", "8k", "12k"]
    assert chart.marks[-1].raised != chart.marks[-2].raised


def test_difference_chart_has_the_colour_of_the_model_that_leads():
    first, second = alone("net", "L2"), alone("other", "L2")
    chart = plots.difference_chart(first, second)
    above, below = lines(chart, "lead")
    assert (above.look, below.look) == ("k0", "k1")
    assert max(y for _, y in corners(above.path)) <= SIDE / 2
    assert min(y for _, y in corners(below.path)) >= SIDE / 2
    assert chart.x.high == max(one.curve.falls_to(0.01) for one in (first, second))
    (gap,) = lines(chart, "gap")
    _, gaps = first.curve.less(second.curve)
    assert gap.name == "net less other"
    assert len(corners(gap.path)) == len(gaps)
    assert corners(gap.path)[0][1] == pytest.approx(SIDE - chart.y.place(gaps[0]), abs=0.01)


def test_descriptions_say_what_is_seen():
    text = plots.curve_chart([summary("net", "Linf")], ["net"]).text
    assert text == (
        "Robust accuracy of net against ε in ℓ∞: 91.7 % at 0, 87.5 % at 2/255, 58.3 % at 8/255; "
        "the median distance is at ε = 0.03650."
    )
    assert (
        "the median distance is never reached" in plots.curve_chart([alone("safe")], ["safe"]).text
    )


def test_thinned_curves_keep_both_ends():
    curve = Curve.of(np.linspace(0.001, 1, 5000))
    found = plots.curve_chart([replace(alone(), curve=curve)], ["net"])
    (line,) = lines(found, "model")
    steps = corners(line.path)
    assert 500 < len(steps) <= 1002
    assert steps[0] == (0.0, 0.0)
    for count, limit in [(5000, 700), (8, 3), (2, 5)]:
        kept = plots._thinned(Curve.of(np.linspace(0.1, 1, count - 1)), limit)
        assert (kept[0], kept[-1]) == (0, count - 1)
        assert len(kept) <= limit + 1
    assert len(line.path) < 30_000


def test_the_last_step_is_drawn_however_it_is_rounded():
    one = replace(alone(), curve=Curve.of([0.12345678]), robust=())
    (line,) = lines(plots.curve_chart([one], ["net"]), "model")
    assert line.path == "M0 0H1000V1000H1000"


def test_board_has_a_line_and_a_name_per_model(ranking):
    names = [row.model for row in ranking.overall]
    for table in ranking.norms:
        chart = plots.board_chart(table, names)
        drawn = lines(chart, "model")
        assert {line.name for line in drawn} == set(names)
        assert {line.name for line in drawn if "doubt" in line.look} == {"C"}
        for line in drawn:
            assert line.series == f"m{names.index(line.name)}"
        labels = {label.text for label in chart.labels}
        assert len(labels) >= 2
        assert labels <= set(names)


def test_labels_do_not_overlap_and_stay_inside():
    curves = {
        f"a model with a long name {k}": Curve.of(np.linspace(0.1, 1 + k, 30)) for k in range(12)
    }
    pool = replace(rank([evaluation("net"), evaluation("other")]).norms[0], curves=curves)
    rows = tuple(replace(pool.rows[0], model=name) for name in curves)
    chart = plots.board_chart(replace(pool, rows=rows), list(curves))
    assert 3 <= len(chart.labels) <= 12
    height = SIDE * 16 / 230
    for index, label in enumerate(chart.labels):
        assert len(label.text) == 16
        assert label.text.endswith("…")
        assert 0 <= label.x <= SIDE - 400
        for other in chart.labels[:index]:
            assert abs(label.y - other.y) >= height - 0.2 or abs(label.x - other.x) >= 399


def test_paths_of_all_norms_stay_inside():
    for found in all_norms():
        chart = plots.curve_chart([found], ["net"])
        for line in chart.lines:
            for x, y in corners(line.path):
                assert 0 <= x <= SIDE
                assert 0 <= y <= SIDE
