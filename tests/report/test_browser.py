"""Pages in a browser: charts are read off, zoomed and switched; nothing is fetched or logged."""

from __future__ import annotations

import pytest
from report_records import NORMS, RADII, summary
from support.browser import fetched, look_at, open_page, page_width

PAGES = ("report.html", "one.html", "comparison.html", "leaderboard.html")
SIZES = [(1280, "light", ""), (390, "dark", ""), (720, "light", "print")]


def quiet(browser):
    """Tell whether nothing was logged, and nothing but the page was asked for."""
    return browser.get_log("browser") == [] and fetched(browser) == []


def click(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def shown(browser, kind):
    """Return per curve chart how many lines of a kind are seen."""
    return browser.execute_script(
        """
        return [...document.querySelectorAll('#curves .chart')].map((chart) =>
          [...chart.querySelectorAll(`path.${arguments[0]}`)]
            .filter((path) => getComputedStyle(path).display !== 'none').length);
        """,
        kind,
    )


def point(browser, left, top=0.5, chart=0, kind="pointermove"):
    """Point at a share of a chart and return what is read there."""
    return browser.execute_script(
        """
        const [left, top, index, kind] = arguments;
        const plot = document.querySelectorAll('.plot')[index];
        const box = plot.getBoundingClientRect();
        plot.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerType: 'mouse', pointerId: 1,
          button: 0, clientX: box.left + left * box.width, clientY: box.top + top * box.height }));
        const reading = plot.parentElement.querySelector('.reading');
        if (reading.hidden) return null;
        return [...reading.children].map((row) =>
          [...row.childNodes].map((part) => part.textContent).filter(Boolean));
        """,
        left,
        top,
        chart,
        kind,
    )


def drag(browser, begin, end, chart=0):
    """Drag from one share of a chart to another."""
    real = "Element.prototype.setPointerCapture = () => {}"  # these pointers are not real
    browser.execute_script(real)
    point(browser, *begin, chart, "pointerdown")
    point(browser, *end, chart)
    point(browser, *end, chart, "pointerup")


def ticks(browser, side, chart=0):
    return browser.execute_script(
        "return [...document.querySelectorAll('.plot')[arguments[1]]"
        ".querySelectorAll(`.tick.${arguments[0]}`)].map((tick) => tick.textContent)",
        side,
        chart,
    )


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_page_is_wider_than_its_window(browser, pages, page, width):
    open_page(browser, pages / page, width=width)
    assert page_width(browser) <= width
    assert quiet(browser)


@pytest.mark.parametrize("page", ["report.html", "one.html", "comparison.html"])
def test_a_curve_is_above_the_fold(browser, pages, page):
    open_page(browser, pages / page, width=1280)
    bottom = browser.execute_script(
        "return document.querySelector('.chart').getBoundingClientRect().bottom"
    )
    assert bottom <= 900


def test_charts_are_drawn_with_all_their_lines(browser, pages):
    open_page(browser, pages / "report.html")
    assert shown(browser, "model") == [2] * 4
    assert shown(browser, "pool") == [3] * 4
    assert shown(browser, "frontier") == [1] * 4
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('#curves path.model')].map((path) => {"
        "const box = path.getBoundingClientRect(); return [box.width, box.height]; })"
    )
    assert len(sizes) == 8
    assert all(width > 200 and height > 100 for width, height in sizes)


def test_with_one_norm_the_plot_fills_the_width(browser, pages):
    open_page(browser, pages / "one.html", width=1280)
    wide, main = browser.execute_script(
        "return [document.querySelector('.chart').clientWidth, "
        "document.querySelector('#curves').clientWidth]"
    )
    assert wide == main


def test_values_are_read_off_the_curves(browser, pages):
    open_page(browser, pages / "one.html")
    found = summary("net", "Linf")
    low, high = browser.execute_script(
        "return document.querySelector('.chart').dataset.x.split(' ').slice(2).map(Number)"
    )
    for share in (0.1, 0.35, 0.8):
        rows = point(browser, share)
        epsilon = low + share * (high - low)
        assert rows[0][0].startswith(f"ε = {float(f'{epsilon:.4g}'):g} (")
        assert rows[0][0].endswith("/255)")
        named = {row[0]: row[-1] for row in rows[1:]}
        assert named["net"] == f"{100 * float(found.curve.at(epsilon)):.1f} %"
        frontier = float(found.standing.table.frontier.at(epsilon))
        assert named["defence frontier"] == f"{100 * frontier:.1f} %"
    browser.execute_script(
        "document.querySelector('.plot').dispatchEvent(new PointerEvent('pointerleave'))"
    )
    assert browser.execute_script("return document.querySelector('.reading').hidden")
    assert quiet(browser)


def test_the_nearest_reference_model_is_named(browser, pages):
    open_page(browser, pages / "one.html")
    table = summary("net", "Linf").standing.table
    high = float(
        browser.execute_script("return document.querySelector('.chart').dataset.x.split(' ')[3]")
    )
    share = float(table.curves["A"].at(0.3 * high))
    rows = point(browser, 0.3, 1 - share)
    assert any(row[0] in "ABC" or row[0] == "C (flagged)" for row in rows[1:])


def test_queries_are_read_off(browser, pages):
    open_page(browser, pages / "one.html")
    rows = point(browser, 0.0, 0.5, chart=1)
    first = summary("net", "Linf").by_queries.aurec[0]
    assert rows[0] == ["10 queries"]
    assert rows[1][0] == "net"
    assert float(rows[1][-1]) == pytest.approx(first, rel=1e-3)


def test_dragging_zooms_and_a_double_click_zooms_out(browser, pages):
    open_page(browser, pages / "report.html")
    before = ticks(browser, "x"), ticks(browser, "y")
    drag(browser, (0.25, 0.25), (0.5, 0.75))
    view = browser.execute_script(
        "return document.querySelector('.plot svg').getAttribute('viewBox')"
    )
    assert [float(part) for part in view.split()] == pytest.approx([250, 250, 250, 500], abs=3)
    assert (ticks(browser, "x"), ticks(browser, "y")) != before
    lowest = float(ticks(browser, "y")[-1].split()[0]), float(ticks(browser, "y")[0].split()[0])
    assert min(lowest) >= 25 - 1
    assert max(lowest) <= 75 + 1
    assert not browser.execute_script("return document.querySelector('.reset').hidden")
    inside = point(browser, 0.5)[0][0]
    high = float(
        browser.execute_script("return document.querySelector('.chart').dataset.x.split(' ')[3]")
    )
    assert float(inside.split()[2]) == pytest.approx(0.375 * high, rel=0.02)
    browser.execute_script(
        "document.querySelector('.plot').dispatchEvent(new MouseEvent('dblclick'))"
    )
    assert sorted(ticks(browser, "x")) == sorted(before[0])
    assert sorted(ticks(browser, "y")) == sorted(before[1])
    assert quiet(browser)


def test_a_flat_drag_keeps_the_height(browser, pages):
    open_page(browser, pages / "report.html")
    drag(browser, (0.2, 0.5), (0.6, 0.5))
    view = browser.execute_script(
        "return document.querySelector('.plot svg').getAttribute('viewBox')"
    )
    assert [float(part) for part in view.split()] == pytest.approx([200, 0, 400, 1000], abs=3)
    click(browser, ".reset")
    view = browser.execute_script(
        "return document.querySelector('.plot svg').getAttribute('viewBox')"
    )
    assert view == "0 0 1000 1000"


def test_charts_work_by_keyboard(browser, pages):
    open_page(browser, pages / "one.html")
    press = """
        const chart = document.querySelector('.chart');
        chart.focus();
        for (const key of arguments[0]) chart.dispatchEvent(new KeyboardEvent('keydown', { key }));
        return [chart.querySelector('.reading').hidden, chart.querySelector('svg').getAttribute('viewBox')];
    """
    assert browser.execute_script(press, ["ArrowRight"])[0] is False
    assert browser.execute_script(press, ["+"])[1].split()[2] == "500"
    assert browser.execute_script(press, ["Escape"]) == [True, "0 0 1000 1000"]


def test_switches_hide_lines_in_every_chart(browser, pages):
    open_page(browser, pages / "report.html")
    for name, kind, left in (("bands", "band", 0), ("pool", "pool", 0), ("m1", "model", 1)):
        click(browser, f"[data-shows={name}]")
        assert shown(browser, kind) == [left] * 4
    assert "other" not in [row[0] for row in point(browser, 0.3)[1:]]
    click(browser, "[data-shows=m1]")
    assert shown(browser, "model") == [2] * 4
    assert shown(browser, "band") == [0] * 4
    click(browser, "[data-shows=bands]")
    assert shown(browser, "band") == [2] * 4
    assert quiet(browser)


def test_a_logarithmic_axis_reads_the_same_values(browser, pages):
    open_page(browser, pages / "one.html")
    click(browser, "#log")
    rows = point(browser, 0.7)
    epsilon = float(rows[0][0].split()[2])
    near, high = browser.execute_script(
        "const chart = document.querySelector('.chart');"
        "return [Number(chart.dataset.near), Number(chart.dataset.x.split(' ')[3])]"
    )
    assert epsilon == pytest.approx(near * (high / near) ** 0.7, rel=1e-3)
    named = {row[0]: row[-1] for row in rows[1:]}
    exact = near * (high / near) ** 0.7
    assert named["net"] == f"{100 * float(summary('net', 'Linf').curve.at(exact)):.1f} %"
    click(browser, "#log")
    assert point(browser, 0.5)[0][0].split()[2] == f"{float(f'{high / 2:.4g}'):g}"


def test_radii_are_marked(browser, pages):
    open_page(browser, pages / "report.html")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#curves .chart')].map((chart) =>"
        "[...chart.querySelectorAll('.mark')].map((mark) => mark.textContent))"
    )
    assert labels == [[label for label, _ in RADII[norm]] for norm in NORMS]


def test_tables_sort_both_ways(browser, pages):
    open_page(browser, pages / "report.html")
    column = """
        const headings = [...document.querySelectorAll('#summary thead th')];
        const heading = headings.find((h) => h.textContent === arguments[0]);
        heading.querySelector('button').click();
        const rows = [...document.querySelectorAll('#summary tbody tr')];
        return [heading.ariaSort, rows.map((row) => row.cells[heading.cellIndex].dataset.sort ??
          row.cells[heading.cellIndex].textContent.trim())];
    """
    direction, found = browser.execute_script(column, "Median distance")
    numbers = [float(value) for value in found]
    assert (direction, numbers) == ("descending", sorted(numbers, reverse=True))
    direction, found = browser.execute_script(column, "Median distance")
    assert (direction, [float(value) for value in found]) == ("ascending", sorted(numbers))
    direction, found = browser.execute_script(column, "Model")
    assert (direction, found) == ("ascending", ["net"] * 4 + ["other"] * 4)
    assert (
        browser.execute_script("return document.querySelectorAll('#summary [aria-sort]').length")
        == 1
    )


def test_tables_say_that_they_scroll(browser, pages):
    cue = """
        return [...document.querySelectorAll('.scroll')].map((box) => [
          box.scrollWidth > box.clientWidth + 2, getComputedStyle(box, '::before').content]);
    """
    open_page(browser, pages / "report.html", width=390)
    boxes = browser.execute_script(cue)
    assert any(wide for wide, _ in boxes)
    for wide, content in boxes:
        assert ("Scroll sideways" in content) == wide
    browser.execute_async_script(
        "const box = document.querySelector('.scroll'); box.scrollLeft = 9999;"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    )
    assert "all columns seen" in browser.execute_script(cue)[0][1]
    open_page(browser, pages / "report.html", width=1280)
    assert not any(wide for wide, _ in browser.execute_script(cue))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_the_system_and_can_be_changed(browser, pages, scheme):
    open_page(browser, pages / "report.html", scheme=scheme)
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    colours = (
        "return [document.documentElement.dataset.theme,"
        " getComputedStyle(document.documentElement).backgroundColor,"
        " getComputedStyle(document.querySelector('path.model')).stroke]"
    )
    first = browser.execute_script(colours)
    assert first[0] == scheme
    click(browser, "#theme")
    changed = browser.execute_script(colours)
    assert all(new != old for new, old in zip(changed, first, strict=True))
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
        const colours = Array.from({ length: 10 }, (_, k) => `c${k}`);
        for (const name of ['text', 'muted', 'accent', ...colours]) pairs.push([`--${name}`, '--paper']);
        return pairs.map(([front, back]) => ratio(light(front), light(back)));
        """
    )
    assert min(ratios) >= 4.5  # WCAG 2, level AA


def test_charts_shrink_onto_paper(browser, pages):
    open_page(browser, pages / "report.html")
    look_at(browser, width=700, media="print")
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map((chart) => [chart.clientWidth, "
        "chart.querySelector('.plot').getBoundingClientRect().width])"
    )
    assert len(widths) == 8
    assert all(100 < plot < chart <= 700 for chart, plot in widths)


def test_comparison_draws_curves_and_their_difference(browser, pages):
    open_page(browser, pages / "comparison.html")
    assert shown(browser, "model") == [2, 0, 2, 0]
    assert shown(browser, "gap") == [0, 1, 0, 1]
    assert shown(browser, "lead") == [0, 2, 0, 2]
    rows = point(browser, 0.4, 0.5, chart=1)
    assert rows[1][0] == "net less other"
    assert rows[1][-1].endswith(" points")
    assert quiet(browser)


def test_leaderboard_shows_the_curve_of_a_row(browser, pages):
    open_page(browser, pages / "leaderboard.html")
    model, on, left = browser.execute_script(
        """
        const board = document.getElementById('L2');
        const row = board.querySelectorAll('tbody tr')[2];
        row.focus();
        const on = [...board.querySelectorAll('path.on')].map((path) => path.dataset.name);
        row.blur();
        return [row.querySelector('th').textContent.trim(), on, board.querySelectorAll('.on').length];
        """
    )
    assert (on, left) == ([model], 0)
    for _ in range(2):  # best first, then worst first: who is in doubt stays below
        click(browser, "#L2 thead th:nth-child(3) button")
        last = "return document.querySelector('#L2 tbody tr:last-child th').textContent.trim()"
        assert browser.execute_script(last) == "C"
    assert quiet(browser)


@pytest.mark.parametrize(("width", "scheme", "media"), SIZES)
def test_leaderboard_tells_lines_apart_and_names_them(browser, pages, width, scheme, media):
    open_page(browser, pages / "leaderboard.html", width=width, scheme=scheme, media=media)
    boards = browser.execute_script(
        """
        const look = (path) => ["stroke", "stroke-dasharray"].map((name) => getComputedStyle(path)[name]).join(" ");
        const box = (item) => ["left", "top", "right", "bottom"].map((side) => item.getBoundingClientRect()[side]);
        return [...document.querySelectorAll(".board")].map((board) => ({
          rows: [...board.querySelectorAll("tbody tr")].map((row) =>
            [row.querySelector("th").textContent.trim(), look(row.querySelector(".swatch path"))]),
          curves: [...board.querySelectorAll("path.model")].map((path) => [path.dataset.name, look(path)]),
          labels: [...board.querySelectorAll(".label")].map((text) => [text.textContent, box(text)]),
          chart: box(board.querySelector(".chart")),
          table: box(board.querySelector(".scroll")),
        }));
        """
    )
    assert len(boards) == 4
    for board in boards:
        looks = dict(board["rows"])
        assert looks == dict(board["curves"])  # the table is the legend
        assert len(set(looks.values())) == 4
        assert looks == dict(boards[0]["rows"])  # one look per model on the whole page
        assert not overlapping([box for _, box in board["labels"]])
        assert not overlapping([board["table"], board["chart"]])
        for name, (left, top, right, bottom) in board["labels"]:
            assert name in looks
            assert board["chart"][0] <= left < right <= board["chart"][2]
            assert bottom - top >= 11  # pixels: it can be read on a phone


def overlapping(boxes):
    for index, a in enumerate(boxes):
        for b in boxes[:index]:
            beside = a[0] >= b[2] - 0.5 or b[0] >= a[2] - 0.5
            apart = a[1] >= b[3] - 0.5 or b[1] >= a[3] - 0.5
            if not beside and not apart:
                return True
    return False


def test_hostile_names_run_nothing_and_are_read_as_they_are(browser, hostile):
    for path in sorted(hostile.iterdir()):
        open_page(browser, path)
        assert browser.execute_script("return document.querySelectorAll('main b b').length") == 0
        assert (
            browser.execute_script(
                "return document.querySelectorAll('img:not([src^=\"data:\"])').length"
            )
            == 0
        )
        if path.name == "report.html":
            names = [row[0] for row in point(browser, 0.3)[1:]]
            assert any("<b>b</b></script><script>alert(1)</script>" in name for name in names)
            assert any("&amp;" in name for name in names)
        assert quiet(browser)  # an alert would also have made the commands above fail
