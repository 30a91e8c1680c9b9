"""The pages in a browser: charts are drawn, controls work, nothing is fetched and nothing is complained about."""

from __future__ import annotations

import time
from itertools import groupby

import pytest
from support.browser import fetched, look_at, open_page, page_width
from support.records import RADII, SCALES, evaluated, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import summarise, summarise_all
from advfrontier.frontier import compare
from advfrontier.report import write_comparison, write_leaderboard, write_report


@pytest.fixture(scope="module")
def pages(summaries, references, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    own, others = summaries("zoo:F3"), summaries("other", seed=6, strength=1.2)
    pairs = list(zip(own, others, strict=True))
    compared = [(compare(*map(evaluated, pair)), *pair) for pair in pairs]
    ranking = rank([record(norm=norm) for norm in SCALES], reference=references)
    write_report(folder / "report.html", [*own, *others])
    write_comparison(folder / "comparison.html", compared)
    write_leaderboard(folder / "leaderboard.html", ranking)
    return folder


def quiet(browser):
    """Nothing was logged, and nothing but the page itself was asked for."""
    assert browser.get_log("browser") == []
    assert fetched(browser) == []
    return True


def traces(browser, meta, chart="curve"):
    """Per chart, how many lines of a kind have a path that goes somewhere."""
    return browser.execute_script(
        """
        const [meta, kind] = arguments;
        const drawn = (chart, trace) => ["js-line", "point", "js-fill"].some((shape) =>
          (chart.querySelector(`.trace${trace.uid} path.${shape}`)?.getAttribute("d") ?? "").length > 20);
        return [...document.querySelectorAll(`[data-chart="${kind}"]`)].map((chart) =>
          chart._fullData.filter((trace) => trace._input.meta === meta && drawn(chart, trace)).length);
        """,
        meta,
        chart,
    )


def click(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def axis_type(browser):
    return browser.execute_script("return document.querySelector('[data-chart=curve]')._fullLayout.xaxis.type")


def wait(condition, seconds=5):
    """Charts are redrawn soon, not at once."""
    end = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return done


def test_four_charts_are_drawn(browser, pages):
    open_page(browser, pages / "report.html")
    assert traces(browser, "model") == [2] * 4
    assert traces(browser, "pool") == [7] * 4
    assert traces(browser, "frontier") == [1] * 4
    assert traces(browser, "model", "queries") == [1] * 4
    assert traces(browser, "tiers", "queries") == [1] * 4
    labels = browser.execute_script(
        "return [...document.querySelectorAll('[data-chart=curve]')].map("
        "(c) => [...c.querySelectorAll('.annotation-text')].map((t) => t.textContent))"
    )
    assert labels == [[label for label, _ in RADII[norm]] for norm in SCALES]
    assert quiet(browser)


def test_the_drawn_curve_is_the_curve(browser, pages):
    open_page(browser, pages / "report.html")
    x, y = browser.execute_script(
        "const t = document.querySelector('[data-chart=curve][data-norm=Linf]')._fullData.at(-1); return [t.x, t.y];"
    )
    curve = summarise(record(), radii=()).curve
    assert x[:-1] == pytest.approx(curve.epsilons, rel=1e-5)
    assert y[:-1] == pytest.approx(curve.accuracies, rel=1e-5)


def test_no_grid_line_hides_a_radius(browser, pages):
    open_page(browser, pages / "report.html")
    drawn = browser.execute_script(
        """
        const chart = document.querySelector("[data-chart=curve]");
        const order = [...chart.querySelectorAll("path.xgrid, .shapelayer path, path.js-line")];
        const kind = (path) => path.closest(".shapelayer") ? "radius" : path.matches(".xgrid") ? "grid" : "curve";
        return order.map(kind);
        """
    )
    assert [kind for kind, _ in groupby(drawn)] == ["grid", "curve", "radius"]


def test_toggles(browser, pages):
    open_page(browser, pages / "report.html")
    assert sum(traces(browser, "band")) > 0
    click(browser, "#bands")
    assert wait(lambda: traces(browser, "band") == [0] * 4)
    click(browser, "#pool")
    assert wait(lambda: traces(browser, "pool") == [0] * 4)
    assert browser.execute_script("return document.querySelector('[data-shows=pool]').hidden")
    assert traces(browser, "frontier") == [1] * 4
    click(browser, "#frontier")
    assert wait(lambda: traces(browser, "frontier") == [0] * 4)
    assert axis_type(browser) == "linear"
    click(browser, "#log")
    assert wait(lambda: axis_type(browser) == "log")
    assert traces(browser, "model") == [2] * 4
    click(browser, "#bands")
    assert wait(lambda: sum(traces(browser, "band")) > 0)
    assert quiet(browser)


def test_tables_sort_both_ways(browser, pages):
    open_page(browser, pages / "report.html")
    column = """
        const heading = [...document.querySelectorAll('#summary thead th')].find((h) => h.textContent === arguments[0]);
        heading.querySelector('button').click();
        const rows = [...document.querySelectorAll('#summary tbody tr')];
        return [heading.ariaSort, rows.map((row) => row.cells[heading.cellIndex].dataset.sort ??
          row.cells[heading.cellIndex].textContent)];
    """
    direction, found = browser.execute_script(column, "Median distance")
    numbers = [float(value) for value in found]
    assert direction == "descending"
    assert numbers == sorted(numbers, reverse=True)
    direction, found = browser.execute_script(column, "Median distance")
    assert direction == "ascending"
    assert [float(value) for value in found] == sorted(numbers)
    direction, found = browser.execute_script(column, "Model")
    assert (direction, found) == ("ascending", ["other"] * 4 + ["zoo:F3"] * 4)
    marked = browser.execute_script("return document.querySelectorAll('#summary [aria-sort]').length")
    assert marked == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_the_system_and_can_be_turned(browser, pages, scheme):
    open_page(browser, pages / "report.html", scheme=scheme)
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    colours = (
        "return [document.documentElement.dataset.theme, getComputedStyle(document.documentElement).backgroundColor,"
        " document.querySelector('[data-chart=curve]')._fullLayout.font.color]"
    )
    first = browser.execute_script(colours)
    assert first[0] == scheme
    click(browser, "#theme")
    assert wait(lambda: browser.execute_script(colours)[2] != first[2])
    turned = browser.execute_script(colours)
    assert turned[0] != scheme
    assert turned[1] != first[1]
    browser.execute_script("localStorage.clear()")
    assert quiet(browser)


@pytest.mark.parametrize("page", ["report.html", "comparison.html", "leaderboard.html"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_page_is_wider_than_its_window(browser, pages, page, width):
    open_page(browser, pages / page, width=width)
    assert page_width(browser) <= width
    assert quiet(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser, pages, scheme):
    open_page(browser, pages / "report.html", scheme=scheme)
    ratios = browser.execute_script(
        """
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
          const hex = style.getPropertyValue(name).trim().slice(1);
          const [r, g, b] = [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16) / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const pairs = [['--warn', '--warn-paper'], ['--muted', '--panel']];
        for (const name of ['text', 'muted', 'accent', ...Array.from({ length: 10 }, (_, k) => `c${k}`)]) {
          pairs.push([`--${name}`, '--paper']);
        }
        return pairs.map(([front, back]) => ratio(light(front), light(back)));
        """
    )
    assert min(ratios) >= 4.5  # WCAG 2, level AA


def test_charts_shrink_onto_paper(browser, pages):
    open_page(browser, pages / "report.html")
    look_at(browser, width=700, media="print")
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map((c) => [c.clientWidth, "
        "...[...c.querySelectorAll('.main-svg')].map((s) => s.getBoundingClientRect().width)])"
    )
    assert len(widths) == 8
    assert all(drawn <= chart + 1 for chart, *svgs in widths for drawn in svgs)


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
    assert leads == curves[::-1]  # where a model leads, the area has its colour; its own curve is drawn last
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
        last = browser.execute_script("return document.querySelector('#L2 tbody tr:last-child th').textContent")
        assert last == "F8"
    assert quiet(browser)


def test_no_column_of_the_leaderboard_is_cut_off(browser, pages, references, tmp_path):
    ranking = rank([record(norm=norm) for norm in SCALES], reference=references, radii="L2=0.5,L2=1,Linf=8/255")
    write_leaderboard(tmp_path / "board.html", ranking)
    for page in (pages / "leaderboard.html", tmp_path / "board.html"):
        open_page(browser, page, width=1280)
        assert scrolling(browser) == []
        open_page(browser, page, width=390)  # a phone cannot show all columns: they scroll, and the page does not
        assert len(scrolling(browser)) == 5
        assert page_width(browser) <= 390


def scrolling(browser):
    """Tables that are wider than their box."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        ".map((box) => box.ariaLabel)"
    )


SIZES = [(1280, "light", ""), (390, "light", ""), (390, "dark", ""), (720, "light", "print")]


@pytest.mark.parametrize(("width", "scheme", "media"), SIZES)
def test_leaderboard_tells_lines_apart_and_names_them_without_pointing(browser, pages, width, scheme, media):
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
        assert dict(board["rows"]) == dict(boards[0]["rows"])  # one look per model on the whole page
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


@pytest.mark.parametrize(("width", "scheme", "media"), SIZES)
def test_models_of_a_report_stand_in_rows_by_norm_with_the_lines_of_the_charts(browser, tmp_path, width, scheme, media):
    three = [record(f"m{k}", norm, seed=k) for k in range(3) for norm in SCALES]
    write_report(tmp_path / "r.html", summarise_all(three))
    open_page(browser, tmp_path / "r.html", width=width, scheme=scheme, media=media)
    norms, models, keys, lines, wide = browser.execute_script(
        r"""
        const rows = [...document.querySelectorAll("#summary tbody tr")];
        const hex = (rgb) => "#" + rgb.match(/\d+/g).map((part) => Number(part).toString(16).padStart(2, "0")).join("");
        return [rows.map((row) => row.cells[0].textContent), rows.map((row) => row.cells[1].textContent),
          [...document.querySelectorAll(".legend .swatch path")].map((path) => hex(getComputedStyle(path).stroke)),
          [...document.querySelectorAll("[data-chart=curve]")].map((chart) =>
            chart._fullData.filter((trace) => trace._input.meta === "model").map((t) => [t.name, t.line.color])),
          document.documentElement.scrollWidth];
        """
    )
    assert norms == [symbol for symbol in ("ℓ0", "ℓ1", "ℓ2", "ℓ∞") for _ in range(3)]
    assert models == ["m0", "m1", "m2"] * 4
    assert all(dict(chart) == dict(zip(("m0", "m1", "m2"), keys, strict=True)) for chart in lines)
    assert wide <= width


def test_hostile_names_do_nothing(browser, hostile, evil):
    for path in hostile:
        open_page(browser, path)
        assert evil.split("<!--")[0] in browser.execute_script("return document.querySelector('h1').textContent")
        assert browser.execute_script("return document.querySelectorAll('main img:not([src^=\"data:\"])').length") == 0
        assert quiet(browser)  # an alert would also have made the commands above fail
        if path.name == "report.html":
            shown = browser.execute_script(
                "const c = document.querySelector('[data-chart=curve]');"
                "Plotly.Fx.hover(c, [{curveNumber: c._fullData.length - 1, pointNumber: 3}]);"
                "return c.querySelector('.hoverlayer').textContent"
            )
            assert "<b>b</b></script><script>alert(1)</script>" in shown  # plotly would read the first as markup
            assert "&amp;" in shown
