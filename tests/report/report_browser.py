"""What the tests of pages ask of charts."""

from __future__ import annotations

import time

from support.browser import fetched


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


def wait(condition, seconds=5):
    """Charts are redrawn soon, not at once."""
    end = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return done


SIZES = [(1280, "light", ""), (390, "dark", ""), (720, "light", "print")]
