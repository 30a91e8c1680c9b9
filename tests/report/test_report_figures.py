"""Figures for papers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.records import RADII, pool, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import summarise
from advfrontier.report import figures, write_figures
from advfrontier.report.figures import lines_of

drawing = pytest.importorskip("matplotlib.figure", reason="figures need the extra of that name")


def summary(model="zoo:F3", norm="Linf", **more):
    return summarise(
        record(model, norm, **more), radii=RADII[norm], reference=pool(norm), gallery=0
    )


def test_files_of_every_norm(tmp_path):
    own = [summary("a $x$ _b_", norm) for norm in ("L2", "Linf")]
    written = write_figures(tmp_path / "f", [*own, summary("b", "L2", seed=3)])
    names = {"curve-L2", "queries-L2", "curve-Linf", "queries-Linf", "curves"}
    assert sorted(written) == sorted(
        str(tmp_path / "f" / f"{n}.{end}") for n in names for end in ("pdf", "png")
    )
    assert sorted(str(path) for path in (tmp_path / "f").iterdir()) == sorted(written)
    for path in map(Path, written):
        assert path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")
        assert path.stat().st_size > 5000


def test_the_drawn_curve_is_the_curve():
    axes = drawing.Figure().subplots()
    one = summary(unbroken=3)
    figures.draw_curves(axes, [one], lines_of([one.model]))
    lines = {line.get_label(): line for line in axes.get_lines()}
    own = lines["zoo:F3"]
    assert own.get_drawstyle() == "steps-post"
    assert list(own.get_xdata()[:-1]) == one.curve.epsilons.tolist()
    assert list(own.get_ydata()[:-1]) == one.curve.accuracies.tolist()
    assert own.get_ydata()[-1] == 3 / 60
    assert (
        sum(line.get_color() == "#b4bbc2" for line in axes.get_lines()) == 7
    )  # F3 is the model itself
    assert {text.get_text() for text in axes.texts} == {"8/255", "16/255"}


def test_the_drawn_area_is_marked_at_tiers():
    axes = drawing.Figure().subplots()
    figures.draw_queries(axes, [summary()], lines_of(["zoo:F3"]))
    assert {text.get_text() for text in axes.texts} == {"4k", "8k", "12k"}
    low, high = axes.get_ylim()
    assert low < summary().convergence.aurec[-1] < high


def test_a_model_keeps_its_colour_in_every_panel():
    lines = lines_of(["a", "b", "c"])
    for group in (["a", "b", "c"], ["a", "c"]):
        axes = drawing.Figure().subplots()
        figures.draw_curves(axes, [summary(name, seed=k) for k, name in enumerate(group)], lines)
        drawn = {line.get_label(): line.get_color() for line in axes.get_lines()}
        assert {name: drawn[name] for name in group} == {
            name: lines[name]["color"] for name in group
        }
    many = lines_of(f"m{k}" for k in range(25))
    assert len({(line["color"], str(line["linestyle"])) for line in many.values()}) == 25


def test_a_model_that_was_never_broken_has_a_curve_and_no_area(tmp_path):
    written = write_figures(tmp_path, [summary(unbroken=54)], formats=["png"])
    assert written == [str(tmp_path / "curve-Linf.png")]


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_a_figure_is_known_as_our_own_when_it_is_drawn_again(kind, tmp_path):
    first, second = (
        write_figures(tmp_path, [summary(unbroken=54)], formats=[kind]) for _ in range(2)
    )
    assert first == second == [str(tmp_path / f"curve-Linf.{kind}")]


def test_nothing_to_draw(tmp_path):
    with pytest.raises(FrontierError, match="nothing to draw"):
        write_figures(tmp_path, [])


def test_missing_matplotlib_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda _: None)
    with pytest.raises(FrontierError, match=r'pip install "advfrontier\[figures\]"'):
        write_figures(tmp_path, [summary()])
