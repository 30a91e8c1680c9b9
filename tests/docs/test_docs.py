"""The documentation: the tutorial runs, links are valid, and the site builds without a warning."""

import ast
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import torch

from advfrontier.cli.app import app
from advfrontier.solvers import DEPARTURES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def without_code(text):
    """Return a page without its code, where brackets are no links and hashes no headings."""
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def anchors(page):
    """Return the anchors of a page's headings, as the site and the usual viewers make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = torch.get_rng_state()
    names = {}
    for k, block in enumerate(python_blocks(ROOT / "docs/tutorial.md"), 1):
        exec(compile(block, f"tutorial, block {k}", "exec"), names)  # noqa: S102  # our own page
    torch.set_rng_state(state)
    assert {"report.html", "board.html", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert 0 < names["longer"].distances.mean() < names["robust"].distances.mean()
    assert names["robust"].flags == ()  # as the text says


def test_notebook_has_the_cells_of_the_tutorial():
    notebook = json.loads((ROOT / "examples/tutorial.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells == [block.rstrip("\n") for block in python_blocks(ROOT / "docs/tutorial.md")], (
        "type `python docs/notebook.py` to write the notebook again"
    )


def commands(page):
    """Return the commands of a page as words, without comments and redirections."""
    lines = re.findall(
        r"^    (?:\$ )?advfrontier +(.+?)(?: +#.*| +> .*)?$", page.read_text(), re.MULTILINE
    )
    return [shlex.split(line) for line in lines]


@BY_PAGE
def test_commands_on_pages_have_their_options(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('model = "zoo:F3"\n')  # of `--config mine.toml`
    for words in commands(page):
        app.parse_args(
            words, exit_on_error=False, print_error=False
        )  # reads them, and runs nothing


@BY_PAGE
def test_imports_on_pages_exist(page):
    for block in python_blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "advfrontier":
                missing = [
                    name.name
                    for name in node.names
                    if not hasattr(import_module(node.module), name.name)
                ]
                assert missing == [], node.module


@BY_PAGE
def test_links_lead_to_files_and_headings(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_contributing_names_every_make_target_once():
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
        1
    ].split()
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^(?:\| `|    )make (\w+)", text, re.MULTILINE)  # rows, and the set-up
    assert sorted(named) == sorted(targets)


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    missing = [
        name for page in PAGES[1:] if (name := str(page.relative_to(ROOT / "docs"))) not in nav
    ]
    assert missing == []


def test_site_builds_strictly_and_fetches_nothing_from_other_hosts(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(PAGES) - 1
    fetched = re.compile(
        r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    )
    assert {
        (page.name, url) for page in pages for url in fetched.findall(page.read_text())
    } == set()
    styles = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")
    assert {
        url for sheet in [*site.rglob("*.css"), *pages] for url in styles.findall(sheet.read_text())
    } == set()
    commands = (site / "reference/commands.html").read_text()
    assert "advfrontier-evaluate" in commands
    assert "--sample-seed" in commands
    assert (
        "Find the smallest perturbation of every sample"
        in (site / "reference/python.html").read_text()
    )


def test_table_of_departures_lists_them_all():
    text = (ROOT / "docs/solvers.md").read_text()
    table = text.partition("<!-- departures: begin -->")[2].partition("<!-- departures: end -->")[0]
    for each in DEPARTURES:
        assert f"| `{each.attack}` | {each.here} | {each.published} | `{each.switch}` |" in table, (
            "type `python scripts/departures.py --table` to write it again"
        )
