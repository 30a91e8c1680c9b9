"""The site in a browser: pages fit window and paper, follow the system, and ask no other host."""

from __future__ import annotations

import re
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.browser import fetched, look_at, open_page

from advfrontier.cli.app import COMMANDS

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

# Faults of a page as it is shown now. Tables scroll in their own box. On paper, where nobody can
# scroll, tables and code fit.
FAULTS = """
const [dark, paper] = arguments;
const right = (item) => item.getBoundingClientRect().right;
const scrolls = (box) =>
  box && getComputedStyle(box).overflowX === "auto" && right(box) <= innerWidth + 1;
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


# Addresses of the pages that the search shows, which has a document tree of its own.
RESULTS = """
const trees = [...document.querySelectorAll("*")].map((item) => item.shadowRoot).filter(Boolean);
const links = trees.flatMap((tree) => [...tree.querySelectorAll("a[role=option]")]);
return links.map((link) => link.href.split("#")[0]);
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


def search(browser, words):
    """Search as a reader does; return the addresses of the pages found, once there are any."""
    browser.find_element("css selector", ".md-search__button").click()
    inside = "return document.activeElement.shadowRoot !== null"
    assert within_seconds(lambda: browser.execute_script(inside))
    browser.switch_to.active_element.send_keys(words)
    assert within_seconds(lambda: browser.execute_script(RESULTS)), "nothing found"
    return browser.execute_script(RESULTS)


def test_search_finds_pages(browser, address):
    open_page(browser, f"{address}/index.html", width=1280)
    assert f"{address}/certified.html" in search(browser, "soundness")
    assert browser.get_log("browser") == []


def test_search_finds_pages_opened_as_files(browser, site):
    open_page(browser, site / "reference/python.html", width=1280)
    assert (site / "certified.html").as_uri() in search(browser, "soundness")
    assert [name for name in fetched(browser) if not name.startswith(site.as_uri())] == []
    assert browser.get_log("browser") == []


def test_pages_can_be_opened_as_files(browser, site):
    open_page(browser, site / "reference/python.html")
    assert [name for name in fetched(browser) if not name.startswith(site.as_uri())] == []
    assert browser.get_log("browser") == []
    browser.execute_script(
        "document.querySelector('a.md-nav__link[href$=\"tutorial.html\"]').click()"
    )
    assert within_seconds(lambda: browser.title.startswith("Tutorial"))


def test_commands_page_has_the_help_of_every_command(site):
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f">advfrontier {name}<" in page
    assert "help of every command --" not in page


def test_pages_name_no_script_of_another_host(site):
    pages = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    assert {*PAGES, "404.html"} == set(pages)
    for name in pages:
        page = (site / name).read_text(encoding="utf-8")
        sources = re.findall(
            r"""<(?:script|link|img|iframe)[^>]* (?:src|href)=["'](http[^"']*)""", page
        )
        assert sources == [], name
