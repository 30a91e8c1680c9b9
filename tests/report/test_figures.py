"""Figures for papers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_records import alone, evaluation, summary

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import Certified, QueryCurve
from advfrontier.report import figures, write_figures
from advfrontier.report.figures import COLUMN, PAGE, lines_of

matplotlib = pytest.importorskip("matplotlib", reason="figures need the extra of that name")


def new_axes():
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    return Figure(layout="constrained").subplots()


def drawn(axes):
    """Return the lines of axes by their labels."""
    return {line.get_label(): line for line in axes.get_lines()}


def test_write_figures_writes_files_of_every_norm(tmp_path):
    own = [replace(alone("net", norm), model="a $x$ _b_") for norm in ("L2", "Linf")]
    written = write_figures(tmp_path / "f", [*own, alone("other", "L2")])
    names = {"curve-L2", "queries-L2", "curve-Linf", "queries-Linf", "curves"}
    expected = sorted(str(tmp_path / "f" / f"{n}.{end}") for n in names for end in ("pdf", "png"))
    assert sorted(written) == expected
    assert sorted(str(path) for path in (tmp_path / "f").iterdir()) == expected
    for path in map(Path, written):
        assert path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")


def test_figures_are_as_wide_as_a_column_or_a_page(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the size")
    write_figures(tmp_path, [alone("net", "L2"), alone("net", "Linf")], formats=["png"])
    for name, inches in (("curve-L2", COLUMN), ("curves", PAGE)):
        with image.open(tmp_path / f"{name}.png") as figure:
            assert figure.width == pytest.approx(300 * inches, abs=2)
    assert round(72 * COLUMN) == 234
    assert round(72 * PAGE) in (396, 397)


def test_draw_curves_draws_the_curve():
    axes, one = new_axes(), summary("net", "Linf")
    figures.draw_curves(axes, [one], lines_of(["net"]))
    own = drawn(axes)["net"]
    assert own.get_drawstyle() == "steps-post"
    assert list(own.get_xdata()[:-1]) == one.curve.epsilons.tolist()
    assert list(own.get_ydata()[:-1]) == one.curve.accuracies.tolist()
    assert own.get_ydata()[-1] == one.curve.accuracies[-1]
    grey = [line for line in axes.get_lines() if line.get_color() == "#b4bbc2"]
    assert len(grey) == 3
    assert "defence frontier" in drawn(axes)
    assert [text.get_text() for text in axes.texts] == ["2/255", "8/255"]
    assert axes.get_xlim()[1] >= 1.2 * 8 / 255
    assert axes.get_xlabel() == r"$\varepsilon$ in $\ell_{\infty}$"


def test_bands_are_drawn_for_one_model_only():
    axes = new_axes()
    figures.draw_curves(axes, [alone()], lines_of(["net"]))
    assert len(axes.collections) == 1
    axes = new_axes()
    figures.draw_curves(axes, [alone(), alone("other")], lines_of(["net", "other"]))
    assert not axes.collections
    assert {"net", "other"} <= set(drawn(axes))


def test_certified_curves_are_dotted():
    axes, found = new_axes(), alone("net", "L2")
    certified = Certified.of(evaluation("net", "L2").distances * 0.6, ())
    figures.draw_curves(axes, [replace(found, certified=certified)], lines_of(["net"]))
    line = drawn(axes)["net, certified"]
    assert line.get_linestyle() == ":"
    assert line.get_color() == drawn(axes)["net"].get_color()


def test_draw_queries_draws_all_models_without_cutting_them_off():
    axes, both = new_axes(), [alone("net", "L2"), alone("other", "L2")]
    figures.draw_queries(axes, both, lines_of(["net", "other"]))
    named = {label.partition(",")[0] for label in drawn(axes)}
    assert {"net", "other"} <= named
    low, high = axes.get_ylim()
    assert low == 0
    assert high > max(max(one.by_queries.aurec) for one in both)
    assert axes.get_ylabel() == r"AUREC in $\ell_{2}$"


def test_draw_queries_marks_budgets():
    track = QueryCurve((10, 4000, 8000), (0.3, 0.2, 0.1), (4000, 8000))
    axes = new_axes()
    figures.draw_queries(axes, [replace(alone(), by_queries=track)], lines_of(["net"]))
    assert [text.get_text() for text in axes.texts] == ["4k", "8k"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "100", "1k", "10k"]


def test_a_model_keeps_its_colour_in_every_panel():
    lines = lines_of(["net", "absent", "other"])
    axes = new_axes()
    figures.draw_curves(axes, [alone("net"), alone("other")], lines)
    for name in ("net", "other"):
        assert drawn(axes)[name].get_color() == lines[name]["color"]
    many = lines_of(f"m{k}" for k in range(25))
    assert len({(line["color"], str(line["linestyle"])) for line in many.values()}) == 25


def test_a_model_that_was_never_broken_has_a_curve_and_no_area(tmp_path):
    written = write_figures(tmp_path, [alone("safe")], formats=["png"])
    assert written == [str(tmp_path / "curve-Linf.png")]


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_a_figure_is_written_again_bit_for_bit(kind, tmp_path):
    first = write_figures(tmp_path, [alone("safe")], formats=[kind])
    content = Path(first[0]).read_bytes()
    assert write_figures(tmp_path, [alone("safe")], formats=[kind]) == first
    if kind != "svg":  # its ids are drawn at random
        assert Path(first[0]).read_bytes() == content


def test_a_foreign_file_is_left_alone(tmp_path):
    (tmp_path / "curve-Linf.png").write_bytes(b"my own figure")
    with pytest.raises(FrontierError, match=r"curve-Linf.png was not written by advfrontier"):
        write_figures(tmp_path, [alone("safe")], formats=["png"])


def test_nothing_to_draw(tmp_path):
    with pytest.raises(FrontierError, match="nothing to draw"):
        write_figures(tmp_path, [])


def test_names_are_cleaned_and_never_formulas(tmp_path):
    odd = replace(alone("safe"), model="$\\frac$ \x1b[2J\u202e")
    axes = new_axes()
    figures.draw_curves(axes, [odd], lines_of([odd.model]))
    (label,) = (label for label in drawn(axes) if label.startswith("$"))
    assert not {"\x1b", "\u202e"} & set(label)
    write_figures(tmp_path, [odd], formats=["png"])  # parsed as a formula it would raise


def test_norms_are_formulas():
    assert figures.norm_formula("L0") == r"$\ell_{0}$"
    assert figures.norm_formula("Linf") == r"$\ell_{\infty}$"


def test_missing_matplotlib_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(FrontierError, match=r'pip install "advfrontier\[figures\]"'):
        write_figures(tmp_path, [alone()])
