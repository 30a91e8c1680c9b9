"""Terminal tables: aligned where they are piped, drawn where someone looks, harmless whatever a model is called."""

from __future__ import annotations

import io

import pytest
from support.records import RADII, SCALES, pool, record

from advfrontier.evaluation.ranking import rank
from advfrontier.evaluation.summary import summarise
from advfrontier.frontier import Evaluated, compare
from advfrontier.report import (
    comparison_text,
    print_comparison,
    print_ranking,
    print_summaries,
    ranking_text,
    summaries_text,
)
from advfrontier.report.numbers import column_decimals, size, size_interval, tier
from advfrontier.report.tables import Column, text_table, width


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def found(summaries):
    return summaries()


def compared(first, second):
    return compare(*(Evaluated(s.model, s.distances, s.samples, s.tier) for s in (first, second)))


def test_plain_text_holds_the_figures(found):
    text = summaries_text(found)
    assert text.startswith("zoo:F3 on fashion-mnist, 60 samples, at most 12k queries per sample, seed 42\n")
    assert "\x1b" not in text
    for summary in found:
        assert f"\n{summary.norm} " in text
        assert summary.standing.position in text
        for at in summary.robust:
            assert f"{100 * at.accuracy.estimate:.1f}" in text
            assert f"({100 * at.accuracy.low:.1f}–{100 * at.accuracy.high:.1f})" in text
    assert "queries spent: 320 checks, 480 setup, 2,592,000 attack, 240 verification" in text


def test_without_radii_there_is_no_column_for_them_but_a_note():
    one, other = summarise(record(), radii=()), summarise(record(norm="L2"), radii=RADII["L2"])
    text = summaries_text([one])
    assert "at ε" not in text
    assert "robust" not in text.split("\n\n")[1]
    assert "for robust accuracy give some, such as --radii 4/255,8/255" in text
    both = summaries_text([one, other])
    assert "at ε" in both
    assert "--radii" not in both


def test_piped_output_is_the_plain_text(found):
    piped = io.StringIO()
    print_summaries(found, stream=piped)
    assert piped.getvalue() == summaries_text(found) + "\n"


def test_a_terminal_gets_a_drawn_table(found, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    seen = Terminal()
    print_summaries(found, stream=seen)
    assert "─" in seen.getvalue()
    assert found[3].standing.position in seen.getvalue()


@pytest.mark.parametrize("columns", ["60", "80", "100", "140"])
def test_no_figure_is_cut_short(found, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    seen = Terminal()
    print_summaries(found, stream=seen)
    print_ranking(rank([record("a/long-name/of-a-model.py:build")]), stream=seen)
    assert "…" not in seen.getvalue().replace("(…)", "")
    for summary in found:
        assert size_interval(summary.aurec) in seen.getvalue()
        assert summary.standing.position in seen.getvalue()


def test_flags_missing_standings_and_falling_areas_are_said():
    late = record(unbroken=2, tier="paper-4k")
    late.first[:] = 4000
    text = summaries_text([summarise(late, radii=RADII["Linf"], reference=pool())])
    assert "flag in Linf: 2 of 60 samples were never broken" in text
    assert "no DOI in Linf: zoo:F3 was evaluated in Linf with 4000 queries" in text
    assert "not settled in Linf: the last quarter of the queries lowered AUREC by" in text
    assert " DOI  " not in text.split("\n\n")[1]  # no column for what no norm has


def test_names_are_text_not_commands(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    name = "[bold red]x[/]\x1b[2J\x07"
    odd = [summarise(record(name, norm), radii=RADII[norm], reference=pool(norm), gallery=0) for norm in SCALES]
    other = summarise(record("b", seed=4), radii=RADII["Linf"], gallery=0)
    ranking = rank([record(name), record("b", seed=4)])
    for show in (
        lambda stream: print_summaries(odd, stream=stream),
        lambda stream: print_ranking(ranking, stream=stream),
        lambda stream: print_comparison(compared(odd[3], other), [odd[3], other], norm="Linf", stream=stream),
    ):
        for stream in (Terminal(), io.StringIO()):
            show(stream)
            assert "\x1b[2J" not in stream.getvalue()
            assert "\x07" not in stream.getvalue()
            assert "[bold red]x" in stream.getvalue()


def test_comparison_says_the_verdict_first(found):
    pair = found[2], summarise(record("other", "L2", seed=7), radii=RADII["L2"], gallery=0)
    comparison = compared(*pair)
    text = comparison_text(comparison, pair, norm="L2")
    assert text.startswith(f"L2: {comparison.verdict}\n")
    assert f"({size_interval(comparison.difference)})" in text
    assert "the curves cross at ε = " in text
    assert "at 0.5" in text
    assert "robust %" not in comparison_text(comparison)


def test_columns_line_up():
    text = text_table(
        [Column("name", right=False), Column("two\nlines")], [["a", ("1", "(2–3)")], ["wide名", "12.5"], ["é", "7"]]
    )
    lines = text.split("\n")
    assert lines[0].endswith("  two")
    assert len({width(line) for line in lines if line[-1:] in "57)s"}) == 1
    assert lines[2] == "------  -----"


def test_ranking_columns_share_their_decimals():
    text = ranking_text(rank([record(f"m{k}", "L2", seed=k, strength=0.1 * 5**k) for k in range(3)]))
    table = text.split("\n\n")[1].split("\n")[3:]
    areas = [line.split()[-3] for line in table]
    assert len({len(area.split(".")[1]) for area in areas}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0412345, "0.04123"), (14.2, "14.20"), (7, "7"), (0, "0"), (float("inf"), "∞"), (12345.6, "12346"),
     (1.2e-9, "1.200e-09"), (-0.43, "-0.4300")],
)  # fmt: skip
def test_sizes(value, text):
    assert size(value) == text


def test_small_helpers():
    assert [tier(4000), tier(6500), tier(0)] == ["4k", "6500", "0"]
    assert column_decimals([0.2355, 0.02266, float("inf")]) == 4
    assert column_decimals([3, 12, float("inf")]) == 0
    assert column_decimals([float("inf")]) == 0
