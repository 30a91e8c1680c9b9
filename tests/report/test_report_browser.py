"""The report in a browser: charts are drawn, controls work, nothing is fetched and nothing is complained about."""

from __future__ import annotations

from itertools import groupby

import pytest
from report_browser import SIZES, click, quiet, traces, wait
from support.browser import look_at, open_page
from support.records import RADII, SCALES, record

from advfrontier.evaluation.summary import summarise, summarise_all
from advfrontier.report import write_report


def axis_type(browser):
    return browser.execute_script(
        "return document.querySelector('[data-chart=curve]')._fullLayout.xaxis.type"
    )


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


def test_a_curve_that_never_falls_goes_on_to_the_end_of_the_chart(browser, tmp_path):
    write_report(
        tmp_path / "r.html",
        [summarise(record("safe", "L0", unbroken=54), radii=RADII["L0"], gallery=0)],
    )
    open_page(browser, tmp_path / "r.html")
    drawn, wide, end = browser.execute_script(
        "const c = document.querySelector('[data-chart=curve]'), x = c._fullLayout.xaxis, t = c._fullData.at(-1); "
        "return [c.querySelector(`.trace${t.uid} path.js-line`).getBBox().width, x._length, x.range[1]];"
    )
    assert end > 1
    assert drawn >= wide


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
    marked = browser.execute_script(
        "return document.querySelectorAll('#summary [aria-sort]').length"
    )
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


@pytest.mark.parametrize(("width", "scheme", "media"), SIZES)
def test_models_of_a_report_stand_in_rows_by_norm_with_the_lines_of_the_charts(
    browser, tmp_path, width, scheme, media
):
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
