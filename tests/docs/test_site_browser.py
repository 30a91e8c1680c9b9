"""The site in a browser: pages fit their window and the paper, follow the system's colours and ask no other host."""

from __future__ import annotations

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.browser import fetched, look_at, open_page

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md"))
WIDEST = {"results.html", "solvers.html", "other_nets.html", "reference/commands.html"}
VIEWS = [
    (1280, "light", ""),
    (1280, "dark", ""),
    (390, "dark", ""),
    (390, "light", ""),
    (700, "light", "print"),
]

# What is wrong with a page as it is shown now: tables scroll in their own box, and on paper, where nobody can scroll,
# tables and code fit.
FAULTS = """
const [dark, paper] = arguments;
const right = (item) => item.getBoundingClientRect().right;
const scrolls = (box) => box && getComputedStyle(box).overflowX === "auto" && right(box) <= innerWidth + 1;
const cut = (item) => paper
  ? right(item) > innerWidth + 1 || item.scrollWidth > item.clientWidth + 2
  : right(item) > innerWidth + 1 && !scrolls(item.closest(".md-typeset__scrollwrap"));
const faults = [...document.querySelectorAll(".md-content :is(table, pre)")].filter(cut)
  .map((item) => `cut: ${item.textContent.trim().slice(0, 40)}`);
const wide = document.documentElement.scrollWidth;
if (wide > innerWidth) faults.push(`the page is ${wide} wide, its window ${innerWidth}`);
const ground = getComputedStyle(document.body).backgroundColor;
if (Math.max(...ground.match(/[0-9]+/g)) < 64 !== dark) faults.push(`its ground is ${ground}`);
return faults;
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing of each request."""


@pytest.fixture(scope="module")
def address(site):
    """Of the site, as a web server on this machine has it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def within_seconds(condition, seconds=5):
    """Whether it comes true: colours and widths change in a moment, not at once."""
    end = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return done


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in WIDEST else pytest.mark.slow) for page in PAGES]
)
def test_a_page_fits_every_window_and_the_paper(browser, address, page):
    open_page(browser, f"{address}/{page}", width=1280)
    for width, scheme, media in VIEWS:
        look_at(browser, width=width, scheme=scheme, media=media)
        seen = partial(browser.execute_script, FAULTS, scheme == "dark", media == "print")
        assert within_seconds(lambda seen=seen: not seen()), (width, scheme, media, seen())
    assert [name for name in fetched(browser) if not name.startswith(address)] == []
    assert browser.get_log("browser") == []


def test_the_search_finds_pages(browser, address):
    open_page(browser, f"{address}/index.html", width=1280)
    box = browser.find_element("css selector", ".md-search__input")
    box.send_keys("soundness")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map((a) => new URL(a.href).pathname)"
    assert within_seconds(lambda: "/certified.html" in browser.execute_script(found))
    assert browser.get_log("browser") == []


def test_pages_can_be_opened_as_files(browser, site):
    open_page(browser, site / "reference/python.html")
    assert [name for name in fetched(browser) if not name.startswith(site.as_uri())] == []
    assert browser.get_log("browser") == []
    browser.execute_script(
        "document.querySelector('a.md-nav__link[href$=\"tutorial.html\"]').click()"
    )
    assert within_seconds(lambda: browser.title.startswith("Tutorial"))
