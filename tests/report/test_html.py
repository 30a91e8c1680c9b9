"""The pages as files: complete, offline, small, and closed to whatever a name may hold."""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_records import (
    CLASSES,
    all_norms,
    alone,
    evaluation,
    reference_pool,
    summary,
)

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import Certified, Win
from advfrontier.flags import Flag, Kind
from advfrontier.report import write_comparison, write_leaderboard, write_report
from advfrontier.report.html import PICTURE_BYTES, asset, bitmap, bitmap_uri, typeset
from advfrontier.report.numbers import size


class Elements(HTMLParser):
    """All elements with their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self.text, self._inside = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
            self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data
        else:
            self.text += data

    def all(self, tag, **wanted):
        return [
            attrs
            for found, attrs in self.found
            if found == tag and all(attrs.get(key) == value for key, value in wanted.items())
        ]


def page_of(path):
    return Elements(Path(path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report(pages):
    return page_of(pages / "report.html")


def section_of(text, name):
    """Return the source of one section of a page."""
    return text.split(f'<section id="{name}"')[1].split("</section>")[0]


def plain(source):
    """Return a source without its elements, words one space apart."""
    return " ".join(re.sub(r"<[^>]*>", " ", source).split())


def headings(text, section):
    """Return the headings of the first table of a section."""
    part = re.search(r"<thead>(.*?)</thead>", section_of(text, section), re.DOTALL)[1]
    return [plain(cell) for cell in re.findall(r"<th[^>]*>(.*?)</th>", part, re.DOTALL)]


def rows(text, section):
    """Return the rows of all tables of a section, without headings."""
    found = []
    for body in re.findall(r"<tbody>(.*?)</tbody>", section_of(text, section), re.DOTALL):
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL):
            cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
            found.append([plain(cell) for cell in cells])
    return found


def test_everything_is_inside(report):
    addresses = []
    for _, attrs in report.found:
        addresses += [attrs[key] for key in ("src", "href") if key in attrs]
    assert addresses
    assert all(address.startswith(("data:image/bmp;base64,", "#")) for address in addresses)


@pytest.mark.parametrize("name", ["report.html", "comparison.html", "leaderboard.html"])
def test_pages_fetch_nothing(pages, name):
    text = (pages / name).read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", ["report.html", "comparison.html", "leaderboard.html"])
def test_pages_are_small(pages, name):
    assert (pages / name).stat().st_size < 600_000


def test_parts_of_a_report_come_in_order(report):
    ids = [attrs["id"] for tag, attrs in report.found if tag == "section"]
    assert ids == [
        "verdict",
        "curves",
        "summary",
        "standing",
        "queries",
        "wins",
        "gallery",
        "reproduce",
        "cite",
    ]


def test_a_report_says_what_was_evaluated(report):
    assert (
        f"{summary().data} · 24 samples · at most 100 queries per sample · seed 42" in report.text
    )
    assert "net classifies 91.7\u00a0% of 24 samples correctly, and still" in report.text
    assert "within a distance of 1 in ℓ0, " in report.text  # the index is a <sub>
    assert "(9.31/255) in ℓ∞." in report.text
    assert "settled" not in report.text


def test_every_plot_has_both_models(report):
    charts = report.all("div", role="img")
    assert len(charts) == 8
    names = [attrs.get("data-name") for attrs in report.all("path") if "model" in attrs["class"]]
    assert names == ["other", "net"] * 8
    assert all("net" in attrs["aria-label"] for attrs in charts)
    assert all("other" in attrs["aria-label"] for attrs in charts)


def test_norms_are_set_with_low_indices(pages):
    text = (pages / "report.html").read_text(encoding="utf-8")
    for index in "012∞":
        assert f"ℓ<sub>{index}</sub>" in text
    for low in "₀₁₂":
        assert f"ℓ{low}" not in re.sub(
            r'="[^"]*"|<pre.*?</pre>|<title>.*?</title>', "", text, flags=re.DOTALL
        )


def test_typeset_escapes_and_keeps_percents_together():
    assert typeset("<b> 5 % in ℓ₂ & ℓ∞") == (
        "&lt;b&gt; 5\u00a0% in ℓ<sub>2</sub> &amp; ℓ<sub>∞</sub>"
    )


def test_columns_without_content_are_not_there(tmp_path, pages):
    full = (pages / "report.html").read_text(encoding="utf-8")
    shown = ["Norm", "Model", "Clean accuracy %", "Robust accuracy %", "Median distance", "AUREC"]
    assert headings(full, "summary") == [*shown, "DOI", "Rank", "Queries per sample"]
    text = Path(write_report(tmp_path / "r.html", [alone()])).read_text(encoding="utf-8")
    kept = ["Norm", "Clean accuracy %", "Median distance", "AUREC", "Queries per sample"]
    assert headings(text, "summary") == kept
    assert "For robust accuracy give" not in full
    assert "for robust accuracy give some, such as --radii 4/255,8/255." in text
    elements = Elements(text)
    assert not [a for a in elements.all("input") if a.get("data-shows") in ("pool", "frontier")]
    assert not elements.all("section", id="standing")
    assert not elements.all("section", id="gallery")
    odd = replace(alone(), flags=(Flag(Kind.RANDOM, "odd"),))
    text = Path(write_report(tmp_path / "r.html", [odd])).read_text(encoding="utf-8")
    assert headings(text, "summary")[-1] == "Flags"


def test_distances_in_linf_have_steps_of_eight_bits(tmp_path):
    page = Path(write_report(tmp_path / "r.html", [alone("net", "Linf")])).read_text("utf-8")
    assert rows(page, "summary")[0][2] == "0.03650 9.31/255"
    page = Path(write_report(tmp_path / "r.html", [alone("net", "L2")])).read_text("utf-8")
    assert rows(page, "summary")[0][2] == "0.2290"


def test_class_names_are_shown(report, tmp_path):
    images = report.all("img")
    alts = " ".join(attrs["alt"] for attrs in images)
    assert any(f"Original, {name}" in alts for name in CLASSES)
    assert any(f"classified as {name}" in alts for name in CLASSES)
    assert "class 0" not in alts
    plain = page_of(write_report(tmp_path / "r.html", [summary("net", "L2")]))
    assert re.search(r"classified as class \d", " ".join(a["alt"] for a in plain.all("img")))


def test_gallery_has_an_original_and_two_pictures_per_norm(report):
    assert len(report.all("img")) == 2 * (1 + 4 * 2)
    assert all(attrs["alt"] for attrs in report.all("img"))


def test_never_broken_samples_have_no_pictures(tmp_path):
    found = summary("net", "L2")
    items = [replace(item, magnification=0.0, distance=float("inf")) for item in found.gallery]
    page = page_of(write_report(tmp_path / "r.html", [replace(found, gallery=tuple(items))]))
    assert len(page.all("img")) == len(items)
    assert page.text.count("never broken") == len(items)


def test_large_pictures_never_make_a_report_large(tmp_path):
    big = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    own = []
    for found in all_norms():
        items = []
        for k in range(8):
            item = replace(found.gallery[0], sample=str(k), reduced=2)
            items.append(replace(item, original=big, adversarial=big, difference=big))
        own.append(replace(found, gallery=tuple(items)))
    path = Path(write_report(tmp_path / "r.html", own))
    assert path.stat().st_size < 1_500_000
    shown = len(page_of(path).all("article"))
    assert 1 <= shown < 8
    assert shown * 9 * len(bitmap_uri(big)) <= PICTURE_BYTES
    assert "Drawn at 1/2 of their size" in page_of(path).text


def test_flags_come_before_the_curves_and_the_rest_is_folded(tmp_path):
    kinds = [kind for kind in Kind if kind is not Kind.UNBROKEN]
    flags = tuple(Flag(kind, f"a flag about {kind}") for kind in kinds)
    page = write_report(tmp_path / "r.html", [replace(alone(), flags=flags)])
    text = Path(page).read_text(encoding="utf-8")
    for flag in flags:
        assert f"<li>ℓ<sub>∞</sub>: {flag}</li>" in text
    assert f"<summary>{len(flags) - 2} more</summary>" in text
    assert text.index("Before trusting") < text.index('id="curves"')
    few = write_report(tmp_path / "r.html", [replace(alone(), flags=flags[:2])])
    assert "<details>" not in Path(few).read_text(encoding="utf-8")


def test_runs_that_found_most_come_first_with_the_figures_of_every_model(tmp_path):
    both = [alone("net", "L2"), alone("other", "L2")]
    page = Path(write_report(tmp_path / "r.html", both)).read_text("utf-8")
    found = rows(page, "wins")
    first, second = both[0].wins[0], both[1].wins[0]
    assert found[0][:4] == [first.run, "net", str(first.samples), f"{100 * first.share:.1f}"]
    assert second.run == first.run
    assert found[1][:3] == ["other", str(second.samples), f"{100 * second.share:.1f}"]


def test_rare_runs_are_summed(tmp_path):
    found = alone("net", "L2")
    wins = []
    for k in range(10):
        wins.append(Win(f"r{k}", samples=10 - k, share=(10 - k) / 55))
    page = Path(write_report(tmp_path / "r.html", [replace(found, wins=tuple(wins))]))
    listed = rows(page.read_text("utf-8"), "wins")
    assert [row[0] for row in listed] == [*(f"r{k}" for k in range(8)), "other runs"]
    assert listed[-1][1:3] == ["3", "5.5"]


def test_certified_accuracy_is_a_column_and_a_switch(tmp_path):
    found = summary("net", "L2")
    radii = [(at.label, at.epsilon) for at in found.robust]
    certified = Certified.of(evaluation("net", "L2").distances * 0.6, radii)
    page = write_report(tmp_path / "r.html", [replace(found, certified=certified)])
    text = Path(page).read_text(encoding="utf-8")
    assert "Certified accuracy %" in headings(text, "summary")
    assert Elements(text).all("input", **{"data-shows": "certified"})


def test_models_where_nothing_or_everything_breaks(tmp_path):
    never = page_of(write_report(tmp_path / "n.html", [summary("safe")])).text
    assert "no run broke any sample in ℓ∞." in never
    assert "There is no AUREC in ℓ∞: no run broke any sample." in never
    assert "no sample was broken" in never
    always = page_of(write_report(tmp_path / "a.html", [alone("wrong")])).text
    assert "there is nothing to attack." in always
    for text in (never, always):
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_names_cannot_break_out(hostile):
    for path in hostile.iterdir():
        text = path.read_text(encoding="utf-8")
        elements = Elements(text)
        assert not [attrs for _, attrs in elements.found if "onerror" in attrs]
        assert not [attrs for _, attrs in elements.found if attrs.get("src") == "x"]
        assert not [script for script in elements.scripts if script.startswith("alert")]
        assert "<script>alert" not in text
        assert not {"\x1b", "\u202e", "\u2028"} & set(text)


@pytest.mark.parametrize("name", ["chart.js", "page.js", "theme.js", "page.css", "chart.css"])
def test_own_files_may_stand_inside_elements(name):
    assert not re.search(r"</(script|style)|<!--", asset(name))


def test_what_cannot_be_written(tmp_path, compared):
    with pytest.raises(FrontierError, match="nothing to report"):
        write_report(tmp_path / "r.html", [])
    with pytest.raises(FrontierError, match="two summaries of net in Linf"):
        write_report(tmp_path / "r.html", [alone(), alone()])
    with pytest.raises(FrontierError, match="nothing to compare"):
        write_comparison(tmp_path / "c.html", [])
    comparison, first, _ = compared[0]
    with pytest.raises(FrontierError, match="expected the same norm"):
        write_comparison(tmp_path / "c.html", [(comparison, first, alone("other", "Linf"))])
    assert not list(tmp_path.iterdir())


def test_two_records_of_one_model_are_compared_under_their_own_names(tmp_path, compared):
    comparison, first, second = compared[0]
    named = replace(comparison, names=("a", "b"))
    page = page_of(write_comparison(tmp_path / "c.html", [(named, first, second)]))
    drawn = [attrs["data-name"] for attrs in page.all("path") if attrs["class"].startswith("model")]
    assert drawn == ["b", "a"]
    assert [attrs["data-name"] for attrs in page.all("path") if "gap" in attrs["class"]] == [
        "a less b"
    ]


def test_comparison_has_verdicts_and_figures_in_order(pages, compared):
    text = page_of(pages / "comparison.html").text
    assert text.index(compared[0][0].verdict) < text.index(compared[1][0].verdict)
    for comparison, _, _ in compared:
        assert size(comparison.difference.estimate) in text


def test_leaderboard_names_every_model_and_the_best_one(pages, ranking):
    page = page_of(pages / "leaderboard.html")
    rows = [attrs["data-series"] for attrs in page.all("tr") if "data-series" in attrs]
    assert len(rows) == 4 * 4
    best = ranking.overall[0]
    assert best.rank == 1
    text = f"{best.model} has the highest mean DOI over ℓ0, ℓ1, ℓ2, ℓ∞: {best.doi.estimate:.3f}."
    assert text in page.text
    assert len(page.all("tr", **{"class": "own"})) == 5  # the model asked about, in every table


def test_leaderboard_of_one_norm_names_its_leader(tmp_path):
    ranked = rank([evaluation("net"), evaluation("other")])
    row = ranked.norms[0].rows[0]
    text = page_of(write_leaderboard(tmp_path / "b.html", ranked)).text
    assert f"The highest DOI: {row.model} in ℓ∞ ({row.doi.estimate:.3f})." in text
    assert "All norms" not in text


def test_a_doi_in_doubt_is_never_printed_without_brackets(tmp_path):
    models = {"net": evaluation("net").distances, "odd": evaluation("other").distances * 5}
    models["odd"][-1] = np.inf
    ranked = rank([], reference={"Linf": replace(reference_pool(), distances=models)})
    odd = ranked.norms[0].row("odd")
    assert odd.doi.estimate > 1
    page = Path(write_leaderboard(tmp_path / "b.html", ranked)).read_text(encoding="utf-8")
    text = re.sub(r'data-sort="[^"]*"|<small>[^<]*</small>', "", page)
    assert f"({odd.doi.estimate:.3f}" in text
    assert not re.search(rf"[^(]{odd.doi.estimate:.3f}", text)
    assert "<b>odd</b>: 1 of 24 samples were never broken" in text


def test_highlighted_models_are_the_ones_asked_for(tmp_path):
    ranked = rank([evaluation("net"), evaluation("other")])
    page = page_of(write_leaderboard(tmp_path / "b.html", ranked))
    assert not page.all("tr", **{"class": "own"})
    page = page_of(write_leaderboard(tmp_path / "b.html", ranked, highlight=["other"]))
    assert len(page.all("tr", **{"class": "own"})) == 1
    with pytest.raises(FrontierError, match="no model x to highlight: expected some of "):
        write_leaderboard(tmp_path / "b.html", ranked, highlight=["x"])


def test_reports_are_sorted_by_norm_then_model(tmp_path):
    mixed = [alone("net", "Linf"), alone("other", "L2"), alone("net", "L2"), alone("other", "Linf")]
    text = Path(write_report(tmp_path / "r.html", mixed)).read_text("utf-8")
    norms = [attrs["data-norm"] for attrs in Elements(text).all("div", role="img")]
    assert norms == ["L2", "Linf"] * 2
    assert [row[:2] for row in rows(text, "summary")] == [
        ["ℓ 2", "net"],
        ["ℓ 2", "other"],
        ["ℓ ∞", "net"],
        ["ℓ ∞", "other"],
    ]


def test_robust_accuracy_is_read_at_every_radius(pages):
    text = (pages / "one.html").read_text("utf-8")
    found = summary("net", "Linf")
    (row,) = rows(text, "summary")
    first, last = found.robust
    assert row[2].startswith(f"at 2/255 {100 * first.accuracy.estimate:.1f} ")
    assert f"at 8/255 {100 * last.accuracy.estimate:.1f} " in row[2]
    assert row[4].startswith(f"{size(found.aurec.estimate)} ")
    assert row[4].endswith(f"up to {size(found.E)}")
    assert row[5].startswith(f"{found.standing.row.doi.estimate:.3f} ")
    assert row[6].startswith("2 of 3")
    assert row[7] == "100"


def test_cost_is_in_passes_by_purpose(pages):
    text = (pages / "one.html").read_text("utf-8")
    counts = evaluation("net", "Linf").counts
    assert headings(text, "reproduce")[2:-2] == [purpose.capitalize() for purpose in counts]
    (row,) = rows(text, "reproduce")
    assert row[2:-2] == [f"{count:,}" for count in counts.values()]
    assert row[-2] == "100"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("width", [4, 7])
def test_bitmap_holds_the_pixels(channels, width):
    image = np.random.default_rng(0).integers(0, 256, (5, width, channels), dtype=np.uint8)
    content = bitmap(image)
    mark, length, _, _, offset = struct.unpack("<2sIHHI", content[:14])
    assert (mark, length, offset) == (b"BM", len(content), 54)
    header = struct.unpack("<IiiHHI", content[14:34])
    assert header == (40, width, 5, 1, 24, 0)
    stride = (len(content) - 54) // 5
    assert stride % 4 == 0
    rows = np.frombuffer(content[54:], np.uint8).reshape(5, stride)[::-1, : 3 * width]
    np.testing.assert_array_equal(
        rows.reshape(5, width, 3)[:, :, ::-1], np.broadcast_to(image, (5, width, 3))
    )
    assert base64.b64decode(bitmap_uri(image).partition(",")[2]) == content


def test_bitmap_is_read_by_other_programs(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow reads the bitmap")
    image = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    (tmp_path / "a.bmp").write_bytes(bitmap(image))
    np.testing.assert_array_equal(np.asarray(pillow.open(tmp_path / "a.bmp")), image)
