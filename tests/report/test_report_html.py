"""The pages as files: complete, offline, and closed to whatever a model's name may hold."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.records import RADII, SCALES, evaluated, pool, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import summarise
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Curve, compare
from advfrontier.report import write_comparison, write_leaderboard, write_report
from advfrontier.report.charts import points, svg_chart
from advfrontier.report.html import asset, plotly, png, script_json


class Elements(HTMLParser):
    """All elements with their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self._in_script = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self._in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data):
        if self._in_script:
            self.scripts[-1] += data


def without_library(text):
    return text.replace(str(plotly()), "")


@pytest.fixture(scope="module")
def report(summaries, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    assert write_report(path, [*summaries(unbroken=2), *summaries("other", seed=5)]) == str(path)
    return without_library(path.read_text(encoding="utf-8"))


def test_everything_is_inside(report):
    elements = Elements(report)
    addresses = [
        attrs[key] for _, attrs in elements.found for key in ("src", "href") if key in attrs
    ]
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert not re.search(r"https?:|url\(|@import", report)


def test_every_part_is_there(report):
    ids = {attrs["id"] for _, attrs in Elements(report).found if "id" in attrs}
    assert {
        "verdict",
        "summary",
        "curves",
        "standing",
        "queries",
        "wins",
        "gallery",
        "reproduce",
        "data",
    } <= ids
    assert "advfrontier evaluate zoo:F3 --data fashion-mnist" in report
    assert "2 of 60 samples were never broken" in report
    assert "zoo:F3 classifies 90.0\u00a0% of 60 samples correctly, and still" in report


def test_pictures_and_charts_have_words(report):
    elements = Elements(report).found
    images = [attrs for tag, attrs in elements if tag == "img"]
    assert len(images) == 2 * (1 + 4 * 2) - 4 * 2  # the last sample was never broken, in no norm
    assert all(attrs["alt"] for attrs in images)
    charts = [
        attrs
        for _, attrs in elements
        if attrs.get("class", "").startswith("chart ") or attrs.get("data-chart")
    ]
    assert len(charts) == 8
    assert all("zoo:F3" in attrs["aria-label"] for attrs in charts)


def test_chart_data_are_the_curves(report):
    data = json.loads(Elements(report).scripts[-3])
    assert [norm["norm"] for norm in data["norms"]] == list(SCALES)
    linf = data["norms"][3]
    evaluation = record(unbroken=2)
    np.testing.assert_allclose(linf["own"]["x"][1:], np.unique(evaluation.full[6:-2]), rtol=1e-5)
    assert linf["own"]["y"][0] == 0.9
    assert [other["name"] for other in linf["others"]] == ["other"]
    assert sorted(model["name"] for model in linf["pool"]) == [
        "F1",
        "F2",
        "F4",
        "F5",
        "F6",
        "F7",
        "F8",
    ]
    assert [model["name"] for model in linf["pool"] if model["flagged"]] == ["F8"]
    assert linf["queries"]["tiers"] == [4000, 8000, 12000]
    assert [radius["label"] for radius in linf["radii"]] == ["8/255", "16/255"]


def test_one_norm_without_pool_or_pictures(tmp_path):
    evaluation = record()
    evaluation.originals = evaluation.originals.flatten(1)
    text = Path(write_report(tmp_path / "r.html", [summarise(evaluation, radii=())])).read_text(
        encoding="utf-8"
    )
    ids = {attrs.get("id") for _, attrs in Elements(without_library(text)).found}
    assert not {"standing", "gallery", "pool", "frontier"} & ids
    assert len(text) < 6_000_000


def test_without_radii_there_is_no_column_for_them_but_a_note(tmp_path, report):
    text = Path(write_report(tmp_path / "r.html", [summarise(record(), radii=())])).read_text(
        encoding="utf-8"
    )
    for shown in ("Robust accuracy %", "reference radii</li>"):
        assert shown in report
        assert shown not in text
    assert "For robust accuracy give" not in report
    assert "for robust accuracy give some, such as --radii 4/255,8/255." in text
    head, row = (
        part.split("</tr>")[0] for part in text.split('id="summary"')[1].split("<tr", 2)[1:]
    )
    assert head.count("<th") == row.count("<th") + row.count("<td")


def test_a_pool_on_other_samples_is_left_out(tmp_path):
    summary = summarise(record(n=70), radii=(), reference=pool())
    path = Path(write_report(tmp_path / "r.html", [summary]))
    text = without_library(path.read_text(encoding="utf-8"))
    assert json.loads(Elements(text).scripts[-3])["norms"][0]["pool"] == []
    assert "No DOI in ℓ∞: 10 of 70 samples are not among the 60 of the reference pool" in text


def test_models_where_nothing_or_everything_breaks(tmp_path):
    never = summarise(record("never", unbroken=60, wrong=0), radii=RADII["Linf"], reference=pool())
    always = summarise(record("always", wrong=1.0), radii=RADII["Linf"], reference=pool())
    said = {"never": "no run broke any sample in ℓ∞.", "always": "there is nothing to attack."}
    for summary in (never, always):
        text = Path(write_report(tmp_path / f"{summary.model}.html", [summary])).read_text(
            encoding="utf-8"
        )
        assert "no sample was broken" in text
        assert said[summary.model] in text
        assert "settled" not in without_library(text)
        assert not re.search(r"\bnan\b", without_library(text), re.IGNORECASE) or "NaN" in asset(
            "page.js"
        )
    assert "(0–0)" not in text


def test_flags_of_every_kind_are_shown(tmp_path):
    one = record()
    one.flags = tuple(
        Flag(kind, f"a flag about {kind}") for kind in Kind if kind is not Kind.UNBROKEN
    )
    text = Path(write_report(tmp_path / "r.html", [summarise(one, radii=())])).read_text(
        encoding="utf-8"
    )
    for flag in one.flags:
        assert f"<li>ℓ∞: {flag}</li>" in text


def test_a_model_beside_keeps_its_colour_where_others_are_missing(tmp_path, summaries):
    others = [*summaries("b", seed=1)[:2], *summaries("c", seed=2)]
    path = Path(write_report(tmp_path / "r.html", [*summaries(), *others]))
    norms = json.loads(Elements(without_library(path.read_text(encoding="utf-8"))).scripts[-3])[
        "norms"
    ]
    lines = [{other["name"]: other["line"] for other in norm["others"]} for norm in norms]
    assert lines == [{"b": [1, 1], "c": [2, 2]}] * 2 + [{"c": [2, 2]}] * 2


def test_names_cannot_break_out(hostile, evil):
    for path in hostile:
        text = without_library(path.read_text(encoding="utf-8"))
        elements = Elements(text)
        assert not [
            attrs for _, attrs in elements.found if "onerror" in attrs or attrs.get("src") == "x"
        ]
        assert not [script for script in elements.scripts if script.startswith("alert")]
        assert "<script>alert" not in text
        if path.name != "leaderboard.html":
            assert json.loads(elements.scripts[-3])["norms"][0]["own"]["name"] == evil


def test_script_json_cannot_end_its_element(evil):
    text = script_json({"a": evil})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"a": evil}
    with pytest.raises(ValueError, match="JSON compliant"):
        script_json([float("inf")])


@pytest.mark.parametrize("name", ["charts.js", "page.js", "theme.js", "leaderboard.js", "page.css"])
def test_own_files_may_stand_inside_elements(name):
    assert not re.search(r"</(script|style)|<!--", asset(name))


def test_what_cannot_be_reported(tmp_path):
    with pytest.raises(FrontierError, match="nothing to report"):
        write_report(tmp_path / "r.html", [])
    one = summarise(record(), radii=())
    with pytest.raises(FrontierError, match="two summaries of zoo:F3 in Linf"):
        write_report(tmp_path / "r.html", [one, one])
    with pytest.raises(FrontierError, match="nothing to compare"):
        write_comparison(tmp_path / "c.html", [])


def test_two_records_of_one_model_are_compared_under_their_own_names(tmp_path):
    first, second = (summarise(record(seed=seed), radii=()) for seed in (0, 1))
    found = compare(evaluated(first, "a"), evaluated(second, "b"))
    text = without_library(
        Path(write_comparison(tmp_path / "c.html", [(found, first, second)])).read_text(
            encoding="utf-8"
        )
    )
    norm = json.loads(Elements(text).scripts[-3])["norms"][0]
    assert (norm["own"]["name"], norm["others"][0]["name"]) == ("a", "b")
    gap = dict(zip(norm["difference"]["x"], norm["difference"]["y"], strict=True))
    assert gap[0] == 0
    assert max(map(abs, gap.values())) > 0.05
    with pytest.raises(FrontierError, match="expected the same norm"):
        write_comparison(
            tmp_path / "c.html", [(found, first, summarise(record(norm="L2"), radii=()))]
        )


def test_thinned_curves_keep_both_ends():
    curve = summarise(record(n=1000), radii=()).curve
    found = points(curve, 50)
    assert len(found["x"]) <= 52
    assert (found["x"][0], found["y"][-1]) == (0, curve.accuracies[-1])
    assert found["x"][-1] == pytest.approx(curve.epsilons[-1], rel=1e-5)


def test_leaderboard_is_small_and_names_every_curve(references, tmp_path):
    ranking = rank([record(norm=norm) for norm in SCALES], reference=references)
    text = Path(write_leaderboard(tmp_path / "board.html", ranking)).read_text(encoding="utf-8")
    assert len(text) < 300_000
    elements = Elements(text).found
    curves = [
        attrs for tag, attrs in elements if tag == "path" and attrs["class"].split()[0] == "curve"
    ]
    assert len({attrs["class"] for attrs in curves[:8]}) == 8  # told apart by colour and dashes
    rows = [attrs for tag, attrs in elements if tag == "tr" and "data-curve" in attrs]
    assert len(curves) == len(rows) == 4 * 8
    leader = next(row for row in ranking.overall if not row.bracketed)
    assert (
        f"{leader.model} has the highest mean DOI over ℓ0, ℓ1, ℓ2, ℓ∞: {leader.doi.estimate:.3f}"
        in text
    )


def test_svg_paths_stay_inside_the_picture():
    odd = record("odd", seed=3, strength=4, unbroken=1)
    table = rank([*(record(str(k), seed=k, strength=1 + k) for k in range(3)), odd]).norms[0]
    drawn = svg_chart("Linf", table.curves, frontier=table.frontier, doubted={"odd"})
    assert [path["model"] for path in drawn["paths"]][-1] == "odd"
    for path in drawn["paths"]:
        xs = [float(x) for x in re.findall(r"H([\d.]+)", path["d"])]
        assert xs == sorted(xs)
        assert drawn["left"] <= xs[0]
        assert xs[-1] <= drawn["right"]
    assert xs[-1] == drawn["right"]  # never broken on one sample, it goes on
    assert 3 <= len(drawn["x_ticks"]) <= 8


def test_the_last_step_of_a_picture_is_drawn_however_it_is_rounded():
    (path,) = svg_chart("L2", {"net": Curve.of([0.12345678])})[
        "paths"
    ]  # 0.123457 would be beyond the end
    assert path["d"] == "M48.0 12.0H508.0V336.0"


@pytest.mark.parametrize("channels", [1, 3])
def test_png(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    content = png(image)
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        assert struct.unpack(">I", content[place + 8 + length : place + 12 + length]) == (
            zlib.crc32(kind + body),
        )
        chunks[kind] = body
        place += 12 + length
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (
        7,
        5,
        8,
        0 if channels == 1 else 2,
        0,
        0,
        0,
    )
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(
        5, 1 + 7 * channels
    )
    assert (rows[:, 0] == 0).all()
    np.testing.assert_array_equal(rows[:, 1:].reshape(image.shape), image)
    assert base64.b64encode(content)
