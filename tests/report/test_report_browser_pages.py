"""Comparison and leaderboard in a browser, and what holds for every page."""

from __future__ import annotations

import pytest
from report_browser import SIZES, click, quiet, traces
from support.browser import open_page, page_width
from support.records import SCALES, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.report import write_leaderboard


@pytest.mark.parametrize("page", ["report.html", "comparison.html", "leaderboard.html"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_page_is_wider_than_its_window(browser, pages, page, width):
    open_page(browser, pages / page, width=width)
    assert page_width(browser) <= width
    assert quiet(browser)


def test_comparison_draws_curves_and_their_difference(browser, pages):
    open_page(browser, pages / "comparison.html")
    assert traces(browser, "model") == [2] * 4
    assert traces(browser, "model", "difference") == [1] * 4
    assert traces(browser, "lead", "difference") == [2] * 4
    leads, curves = browser.execute_script(
        """
        const of = (kind, meta, take) => document.querySelector(`[data-chart=${kind}]`)._fullData
          .filter((trace) => trace._input.meta === meta).map(take);
        return [of("difference", "lead", (trace) => trace.fillcolor.slice(0, 7)),
          of("curve", "model", (trace) => trace.line.color)];
        """
    )
    assert (
        leads == curves[::-1]
    )  # where a model leads, the area has its colour; its own curve is drawn last
    assert quiet(browser)


def test_leaderboard_shows_the_curve_pointed_at(browser, pages):
    open_page(browser, pages / "leaderboard.html")
    seen = browser.execute_script(
        """
        const board = document.getElementById('L2');
        const row = board.querySelectorAll('tbody tr')[2];
        row.focus();
        const on = [...board.querySelectorAll('path.on')].map((path) => path.querySelector('title').textContent);
        const named = board.querySelector('.named').textContent;
        row.blur();
        return [row.querySelector('th').textContent, on, named, board.querySelectorAll('.on').length];
        """
    )
    model, shown, named, left = seen
    assert (shown, named, left) == ([model], f"{model}.", 0)
    click(browser, "#overall thead th:nth-child(2) button")
    first = browser.execute_script("return document.querySelector('#overall tbody th').textContent")
    assert first == "F1"
    for _ in range(2):  # best first, then worst first: who is in doubt stays below
        click(browser, "#L2 thead th:nth-child(3) button")
        last = browser.execute_script(
            "return document.querySelector('#L2 tbody tr:last-child th').textContent"
        )
        assert last == "F8"
    assert quiet(browser)


def test_no_column_of_the_leaderboard_is_cut_off(browser, pages, references, tmp_path):
    ranking = rank(
        [record(norm=norm) for norm in SCALES], reference=references, radii="L2=0.5,L2=1,Linf=8/255"
    )
    write_leaderboard(tmp_path / "board.html", ranking)
    for page in (pages / "leaderboard.html", tmp_path / "board.html"):
        open_page(browser, page, width=1280)
        assert scrolling(browser) == []
        open_page(
            browser, page, width=390
        )  # a phone cannot show all columns: they scroll, and the page does not
        assert len(scrolling(browser)) == 5
        assert page_width(browser) <= 390


def scrolling(browser):
    """Tables that are wider than their box."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        ".map((box) => box.ariaLabel)"
    )


@pytest.mark.parametrize(("width", "scheme", "media"), SIZES)
def test_leaderboard_tells_lines_apart_and_names_them_without_pointing(
    browser, pages, width, scheme, media
):
    open_page(browser, pages / "leaderboard.html", width=width, scheme=scheme, media=media)
    boards = browser.execute_script(
        """
        const look = (path) => ["stroke", "stroke-dasharray"].map((name) => getComputedStyle(path)[name]).join(" ");
        const box = (item) => ["left", "top", "right", "bottom"].map((side) => item.getBoundingClientRect()[side]);
        return [...document.querySelectorAll(".board")].map((board) => ({
          rows: [...board.querySelectorAll("tbody tr")].map((row) =>
            [row.querySelector("th").textContent, look(row.querySelector(".swatch path"))]),
          curves: [...board.querySelectorAll("path.curve")].map((path) =>
            [path.querySelector("title").textContent, look(path)]),
          labels: [...board.querySelectorAll("text.label")].map((text) => [text.textContent, box(text)]),
          picture: box(board.querySelector("figure > svg")),
          table: box(board.querySelector("table")),
        }));
        """
    )
    assert len(boards) == 4
    for board in boards:
        assert dict(board["rows"]) == dict(board["curves"])  # the table is the legend
        assert len({look for _, look in board["rows"]}) == 8
        assert dict(board["rows"]) == dict(
            boards[0]["rows"]
        )  # one look per model on the whole page
        assert len(board["labels"]) >= 6
        assert not overlapping([box for _, box in board["labels"]])
        assert not overlapping([board["table"], board["picture"]])
        for name, (left, top, right, bottom) in board["labels"]:
            assert name in dict(board["rows"])
            assert board["picture"][0] <= left < right <= board["picture"][2]
            assert bottom - top >= 11  # pixels: it can be read on a phone


def overlapping(boxes):
    return any(
        a[0] < b[2] - 0.5 and b[0] < a[2] - 0.5 and a[1] < b[3] - 0.5 and b[1] < a[3] - 0.5
        for k, a in enumerate(boxes)
        for b in boxes[:k]
    )


def test_a_model_is_highlighted_only_if_asked_for(browser, pages, references, tmp_path):
    own = "return [...new Set([...document.querySelectorAll('tr.own th')].map((cell) => cell.textContent))]"
    open_page(browser, pages / "leaderboard.html")
    assert browser.execute_script(own) == ["zoo:F3"]
    ranking = rank([record(name, seed=k) for k, name in enumerate("abc")])
    for highlight, expected in ((None, []), (["b"], ["b"])):
        write_leaderboard(tmp_path / "board.html", ranking, highlight=highlight)
        open_page(browser, tmp_path / "board.html")
        assert browser.execute_script(own) == expected
    with pytest.raises(FrontierError, match="no model d to highlight: expected some of"):
        write_leaderboard(tmp_path / "board.html", ranking, highlight=["d"])


def test_hostile_names_do_nothing(browser, hostile, evil):
    for path in hostile:
        open_page(browser, path)
        assert evil.split("<!--")[0] in browser.execute_script(
            "return document.querySelector('h1').textContent"
        )
        assert (
            browser.execute_script(
                "return document.querySelectorAll('main img:not([src^=\"data:\"])').length"
            )
            == 0
        )
        assert quiet(browser)  # an alert would also have made the commands above fail
        if path.name == "report.html":
            shown = browser.execute_script(
                "const c = document.querySelector('[data-chart=curve]');"
                "Plotly.Fx.hover(c, [{curveNumber: c._fullData.length - 1, pointNumber: 3}]);"
                "return c.querySelector('.hoverlayer').textContent"
            )
            assert (
                "<b>b</b></script><script>alert(1)</script>" in shown
            )  # plotly would read the first as markup
            assert "&amp;" in shown
