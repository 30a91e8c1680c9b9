"""A table that fits, figures of exact widths, and CSV behind each: everything a paper needs."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from report_records import alone, evaluation, summary

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import summarise
from advfrontier.report.paper import parse_columns, write_paper

pytest.importorskip("matplotlib", reason="figures need the extra of that name")
NAMES = [
    "Standard",
    "Engstrom2019Robustness",
    "Rade2021Helper_extra",
    "Wang2023Better_WRN-28-10",
    "Gowal2021Improving_70_16_ddpm_100m",
    "m & m_2",
]
RADII = (("4/255", 4 / 255), ("8/255", 8 / 255), ("16/255", 16 / 255))
BASELINES = {
    (name, "Linf"): KnownPoints((4 / 255, 8 / 255), (0.5, 0.25), (900.0, 800.0)) for name in NAMES
}


@pytest.fixture(scope="module")
def six():
    """Six models at three radii."""
    figures = summarise(evaluation("net", "Linf"), radii=RADII, gallery=0)
    others = summarise(evaluation("other", "Linf"), radii=RADII, gallery=0)
    return [replace(figures if k % 2 else others, model=name) for k, name in enumerate(NAMES)]


def box_width(folder):
    """Return the width of the table's box in points, as pdflatex measures it."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed: apt-get install texlive-latex-recommended")
    text = (folder / "table.tex").read_text("utf-8")
    inner = text[text.index(r"\label") : text.index(r"\end{table}")].partition("\n")[2]
    (folder / "measure.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        f"\\setbox0=\\hbox{{{inner}}}\\typeout{{WIDTH=\\the\\wd0}}\\end{{document}}\n",
        "utf-8",
    )
    command = ["pdflatex", "-interaction=nonstopmode", "measure.tex"]
    log = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    return float(re.search(r"WIDTH=([0-9.]+)pt", log.stdout)[1])


def table_lines(folder):
    return (folder / "table.tex").read_text("utf-8").splitlines()


@pytest.mark.parametrize("baselines", [{}, BASELINES])
def test_table_of_six_models_at_three_radii_fits_the_text(six, baselines, tmp_path):
    write_paper(tmp_path, six, baselines=baselines)
    assert box_width(tmp_path) <= 397


def test_narrow_table_goes_without_intervals_and_with_shorter_names(six, tmp_path):
    write_paper(tmp_path, six, width=234)
    text = "\n".join(table_lines(tmp_path))
    assert r"\tiny" not in text
    assert "confidence intervals are at most" in text
    assert box_width(tmp_path) <= 234
    with pytest.raises(FrontierError, match="does not fit 60 points: expected fewer radii"):
        write_paper(tmp_path, six, width=60)


def test_best_figures_are_bold_and_autoattack_stands_beside(six, tmp_path):
    write_paper(tmp_path, six, baselines=BASELINES, columns=("robust", "autoattack"))
    rows = [line for line in table_lines(tmp_path) if line.startswith(("Standard", "m \\& m"))]
    heading = next(line for line in table_lines(tmp_path) if line.startswith("model"))
    columns = [part.strip() for part in heading.removesuffix(r" \\").split("&")]
    assert columns == ["model", "4/255", r"4/255\,AA", "8/255", r"8/255\,AA", "16/255"]
    first, last = (
        [re.sub(r"\{\\tiny.*", "", part.strip(" \\")) for part in re.split(r" & ", row)]
        for row in rows
    )
    assert "50.0" in first[2]
    pairs = zip(six[0].robust, six[-1].robust, strict=True)
    for place, (one, other) in zip((1, 3, 5), pairs, strict=True):
        best = max(one.accuracy.estimate, other.accuracy.estimate)
        for figures, at in ((first, one), (last[-6:], other)):
            bold = "textbf" in figures[place]
            assert bold == (at.accuracy.estimate == best)
            assert f"{100 * at.accuracy.estimate:.1f}" in figures[place]


def test_csv_files_hold_the_figures(six, tmp_path):
    write_paper(tmp_path, six, baselines=BASELINES)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == NAMES
    for row, one in zip(rows, six, strict=True):
        assert float(row["Linf 8/255"]) == one.robust[1].accuracy.estimate
        assert float(row["Linf 8/255 AutoAttack"]) == 0.25
    with (tmp_path / "curve-Linf.csv").open(encoding="utf-8", newline="") as file:
        steps = list(csv.DictReader(file))
    own = [row for row in steps if row["model"] == NAMES[0] and row["source"] == "advfrontier"]
    assert [float(row["epsilon"]) for row in own] == six[0].curve.epsilons.tolist()
    assert sum(row["source"] == "AutoAttack" for row in steps) == 12


@pytest.mark.parametrize("font", ["serif", "sans"])
def test_figures_are_exactly_as_wide_as_their_names_say(font, tmp_path):
    found = [summary("net", norm) for norm in ("L2", "Linf")]
    written = write_paper(tmp_path, found, font=font)
    widths = {}
    for path in written:
        if path.endswith(".pdf"):
            content = (tmp_path / path.rpartition("/")[2]).read_bytes()
            box = re.search(rb"/MediaBox \[([^\]]*)\]", content)[1].split()
            widths[path.rpartition("/")[2]] = float(box[2]) / 72
    assert widths == {
        "curve-L2-3.25in.pdf": 3.25,
        "curve-Linf-3.25in.pdf": 3.25,
        "curves-5.5in.pdf": 5.5,
        "curves-6.75in.pdf": 6.75,
    }


def test_document_compiles(six, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed: apt-get install texlive-latex-recommended")
    write_paper(tmp_path, [*six, alone("net", "L1")], baselines=BASELINES, data_name="a_b & c%")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    assert r"on 24 images of a\_b \& c\%." in (tmp_path / "table.tex").read_text("utf-8")
    assert r"a\_b \& c\%" in (tmp_path / "sentence.tex").read_text("utf-8")
    entry = (tmp_path / "advfrontier.bib").read_text("utf-8")
    assert re.search(r"year = \{20\d\d\}", entry)


def test_caption_has_the_settings(six, tmp_path):
    write_paper(tmp_path, six)
    caption = next(line for line in table_lines(tmp_path) if line.startswith(r"\caption"))
    for words in ("24 images", "100 queries per image", "seed 42", "Best in bold", r"\cite{"):
        assert words in caption


def test_wrong_wishes_are_refused(six, tmp_path):
    assert parse_columns("robust, clean") == ("clean", "robust")
    with pytest.raises(FrontierError, match="--columns speed: expected some of clean, robust"):
        parse_columns("speed")
    with pytest.raises(FrontierError, match="--font comic: expected one of serif, sans"):
        write_paper(tmp_path, six, font="comic")
    with pytest.raises(FrontierError, match="two records are of Standard in Linf"):
        write_paper(tmp_path, [six[0], six[0]])
    with pytest.raises(FrontierError, match="nothing to write"):
        write_paper(tmp_path, [])
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(FrontierError, match="was not written by advfrontier"):
        write_paper(tmp_path, six)
