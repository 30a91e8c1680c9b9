"""The page of a benchmark: its order, its sentences, its length, and what it says of missing
rows.
"""

import re
from pathlib import Path

import pytest
from bench_tiny import NORMS, rows_of, write_tiny

from advfrontier.bench.folder import Bench
from advfrontier.bench.frame import pd
from advfrontier.errors import FrontierError
from advfrontier.report import benchmark as page
from advfrontier.report.benchmark import View, markdown, update_page

ROOT = Path(__file__).parents[2]


def written(bench, target, **options):
    files = update_page(bench, target, **options)
    return target.read_text(encoding="utf-8"), files


@pytest.fixture(scope="module")
def made(finished, tmp_path_factory):
    """Return the page of the finished benchmark, and its files."""
    target = tmp_path_factory.mktemp("page") / "results.md"
    return *written(finished[0], target, norms=NORMS), target


@pytest.fixture
def view(tmp_path, results_of):
    """Return a function that makes the tables of hand-written rows."""

    def make(*parts, points=None, flags=()):
        results = results_of(*parts)
        if points is not None:
            results.put_points(points)
        for norm, model, source, text, doubtful in flags:
            results.put_flags(norm, model, source, {text: doubtful})
        bench = Bench.open(write_tiny(tmp_path), tmp_path / "out")
        return View(bench, results)

    return make


def headings(text):
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def table_rows(text, heading):
    """Return the cells of the rows of the first table below a heading."""
    lines = text.partition(f"## {heading}\n")[2].splitlines()
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[0], rows[2:]


def test_page_is_at_a_glance_first_and_warnings_last(made):
    text, _, _ = made
    assert headings(text)[0] == "At a glance"
    assert headings(text)[1:3] == ["ℓ0", "ℓ2"]
    order = ["Models by DOI", "Against AutoAttack", "The order of models", "Models and attacks"]
    assert [name for name in headings(text) if name in order] == order
    assert headings(text)[-1] == "Warnings"
    assert text.count("<details>") == text.count("</details>") == 2
    assert text.index("<details>") > text.index("## Models and attacks")


def test_page_links_to_files_that_are_there(made):
    text, files, target = made
    links = re.findall(r"\]\((.+?)\)", text)
    assert "results/results.parquet" in links
    for link in links:
        assert (target.parent / link).is_file()
        assert (target.parent / link) in files or link.endswith(".toml")


def test_no_table_is_wider_than_a_phone_can_scroll_past(made):
    text, _, _ = made
    widths = [line.count("|") - 1 for line in text.splitlines() if line.startswith("|")]
    assert max(widths) <= 6


def test_page_of_this_site_is_short_enough_and_made_of_its_table():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 4000
    assert not re.search(r"\b(race|polish)", text)
    widths = [line.count("|") - 1 for line in text.splitlines() if line.startswith("|")]
    assert max(widths) <= 6


def test_glance_shows_the_smallest_budget_of_the_default_ensembles_on_held_out_models(made):
    text, _, _ = made
    names, rows = table_rows(text, "At a glance")
    assert names == [
        "norm",
        "AOI of 40",
        "above",
        "as strong as AutoAttack",
        "AutoAttack's queries",
    ]
    assert [row[0] for row in rows] == ["ℓ0", "ℓ2"]
    assert rows[0][3:] == ["–", "–"]
    assert re.fullmatch(r"[01]/1", rows[1][3])


def test_a_second_page_is_the_same_byte_for_byte(finished, tmp_path):
    target = tmp_path / "results.md"
    _, files = written(finished[0], target, norms=NORMS)
    before = {path: path.read_bytes() for path in files}
    nothing = Bench(finished[0].name, finished[0].benchmark, str(tmp_path / "nothing"))
    written(nothing, target)  # from the tables alone
    assert {path: path.read_bytes() for path in files} == before


def test_rows_of_other_norms_stay_on_the_page(finished, tmp_path):
    target = tmp_path / "results.md"
    assert "## ℓ2" not in written(finished[0], target, norms=["L0"])[0]
    text, _ = written(finished[0], target, norms=["L2"])
    assert headings(text)[1:3] == ["ℓ0", "ℓ2"]


def test_a_page_without_a_row_says_what_to_type(tmp_path):
    bench = Bench.open(write_tiny(tmp_path), tmp_path / "out")
    with pytest.raises(FrontierError, match="type `advfrontier bench run tiny`"):
        update_page(bench, tmp_path / "results.md")
    with pytest.raises(FrontierError, match="expected a file such as"):
        update_page(bench, tmp_path / "results")
    assert not (tmp_path / "results.md").exists()


def test_a_page_of_somebody_else_is_kept(finished, tmp_path):
    target = tmp_path / "results.md"
    target.write_text("my notes")
    with pytest.raises(FrontierError, match="was not written by advfrontier"):
        update_page(finished[0], target)
    assert target.read_text() == "my notes"


TRAIN = rows_of("L2", "plain", "train", {("greedy", 40): [1, 4], ("greedy", 80): [1, 2]})
HELD_OUT = rows_of("L2", "noisy", "held-out", {("greedy", 40): [2, 4], ("greedy", 80): [2, 3]})


def test_summary_of_a_norm_tells_distances_and_the_most_robust_models(view):
    text = page.page_text(view(TRAIN, HELD_OUT), {}, "results")
    section = text.partition("## ℓ2\n\n")[2]
    # On noisy 40 queries are 0 and 33 % above the best known, 80 queries are the best known.
    assert section.startswith(
        "On held-out models, distances are 16.67 % above the best known with 40 queries and 0.00 "
        "% with 80. Most robust by DOI on d: noisy (100.0 %) and plain (60.0 %). Between budgets "
        "a DOI moves by at most 23.3 points."
    )


def test_models_in_doubt_have_no_rank_and_a_warning(view):
    flag = ("L2", "noisy", "trace", "the gradient misleads", True)
    text = page.page_text(view(TRAIN, HELD_OUT, flags=[flag]), {}, "results")
    _, rows = table_rows(text, "Models by DOI")
    assert ["plain", "100.0 (1)"] in rows
    assert ["noisy", "133.3"] in rows
    assert "<li>noisy in ℓ2: the gradient misleads</li>" in text


def test_warnings_that_differ_in_numbers_alone_are_one(view):
    flags = []
    for norm, share in (("L2", 1.5), ("L0", 2.5)):
        flags.append((norm, "noisy", "autoattack", f"Square broke {share} % <more>", False))
    lines = page.warnings(view(TRAIN, HELD_OUT, flags=flags))
    assert lines == ["AutoAttack on noisy in ℓ0, ℓ2: Square broke 1.5 % <more>"]
    text = page.page_text(view(TRAIN, HELD_OUT, flags=flags), {}, "results")
    assert "&lt;more&gt;" in text


def test_missing_rows_are_listed_and_are_no_error(view):
    lines = page.missing(view(TRAIN))
    assert lines == [
        "No rows: greedy ensembles on all models in ℓ0, ℓ1 and ℓ∞.",
        "No rows: default ensembles on all models in ℓ0, ℓ1, ℓ2 and ℓ∞.",
        "No rows: AutoAttack on all models in ℓ1, ℓ2 and ℓ∞.",
        "No rows: greedy ensembles on noisy in ℓ2.",
    ]
    text = page.page_text(view(TRAIN), {}, "results")
    assert headings(text)[:2] == ["At a glance", "ℓ2"]
    assert "Training models with 40 queries per sample." in text
    assert "## Against AutoAttack" not in text
    runs = rows_of("L2", "plain", "train", {("fmn", 80): [1, 2]})
    assert "## ℓ2\n\nNo ensemble has rows." in page.page_text(view(runs), {}, "results")


def test_the_default_ensembles_are_shown_as_soon_as_every_model_has_them(view):
    first = rows_of("L2", "plain", "train", {("default", 40): [1, 3], ("default", 80): [1, 1]})
    second = rows_of("L2", "noisy", "held-out", {("default", 40): [2, 3], ("default", 80): [2, 2]})
    some = page.page_text(view(TRAIN, HELD_OUT, first), {}, "results")
    assert "AOI of greedy-40" in some
    assert "| 40 |" in some  # beside the greedy ensembles
    every = page.page_text(view(TRAIN, HELD_OUT, first, second), {}, "results")
    assert "| norm | AOI of 40 | above |" in every
    assert "- `40`, `80`: the default ensembles of advfrontier." in every


def test_figures_that_reach_autoattack_are_bold(view):
    points = {"norm": "L2", "model": "noisy", "radius": [1.1], "accuracy": [1.0], "queries": [9.0]}
    shown = view(TRAIN, HELD_OUT, points=pd.DataFrame(points))
    text = page.page_text(shown, {}, "results")
    rows = [line for line in text.splitlines() if line.startswith("| noisy | 100.0 | 9 |")]
    assert rows == []  # no reference radius of the data set d
    table = markdown(pd.DataFrame({"model": ["a"], "x": [float("nan")], "y": [None], "z": ["1|2"]}))
    assert table.splitlines() == [
        "| model | x | y | z |",
        "|:--|--:|--:|--:|",
        "| a | – | – | 1/2 |",
    ]
