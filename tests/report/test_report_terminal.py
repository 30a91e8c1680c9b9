"""Terminal tables: aligned where they are piped, drawn where someone looks, harmless whatever a model is called."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from support.records import RADII, SCALES, evaluated, pool, record

from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import summarise, summarise_all
from advfrontier.frontier import Interval, compare
from advfrontier.report import comparison_table, print_tables, rank_tables, summary_tables
from advfrontier.report.numbers import column_decimals, ends, size
from advfrontier.report.render import as_text
from advfrontier.table import Column, Doubted, Strong, Table


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def found(summaries):
    return summaries()


def compared(first, second):
    return compare(evaluated(first), evaluated(second))


def text_of(summaries):
    return "\n\n".join(map(as_text, summary_tables(summaries)))


def test_plain_text_holds_the_figures(found):
    text = text_of(found)
    assert text.startswith(
        "zoo:F3 on fashion-mnist, 60 samples, at most 12k queries per sample, seed 42\n"
    )
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
    text = text_of([one])
    assert "at ε" not in text
    assert "robust" not in text.split("\n\n")[1]
    assert "for robust accuracy give some, such as --radii 4/255,8/255" in text
    both = text_of([one, other])
    assert "at ε" in both
    assert "--radii" not in both


def test_piped_output_is_the_plain_text(found):
    piped = io.StringIO()
    print_tables(*summary_tables(found), stream=piped)
    assert piped.getvalue() == text_of(found) + "\n"


def test_a_terminal_gets_a_drawn_table(found, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    seen = Terminal()
    print_tables(*summary_tables(found), stream=seen)
    assert "─" in seen.getvalue()
    assert found[3].standing.position in seen.getvalue()


@pytest.mark.parametrize("columns", ["60", "80", "100", "140"])
def test_no_figure_is_cut_short(found, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    seen = Terminal()
    print_tables(*summary_tables(found), stream=seen)
    print_tables(*rank_tables(rank([record("a/long-name/of-a-model.py:build")])), stream=seen)
    assert "…" not in seen.getvalue().replace("(…)", "")
    for summary in found:
        assert ends(summary.aurec, size) in seen.getvalue()
        assert summary.standing.position in seen.getvalue()


def test_flags_missing_standings_and_falling_areas_are_said():
    late = record(unbroken=2, tier="paper-4k")
    late.first[:] = 4000
    text = text_of([summarise(late, radii=RADII["Linf"], reference=pool())])
    assert "flag in Linf: 2 of 60 samples were never broken" in text
    assert "no DOI in Linf: zoo:F3 was evaluated in Linf with 4k queries" in text
    assert "not settled in Linf: the last quarter of the queries lowered AUREC by" in text
    assert " DOI  " not in text.split("\n\n")[1]  # no column for what no norm has


def test_names_are_text_not_commands(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    name = "[bold red]x[/]\x1b[2J\x07"
    odd = [
        summarise(record(name, norm), radii=RADII[norm], reference=pool(norm), gallery=0)
        for norm in SCALES
    ]
    other = summarise(record("b", seed=4), radii=RADII["Linf"], gallery=0)
    ranking = rank([record(name), record("b", seed=4)])
    for tables in (
        summary_tables(odd),
        rank_tables(ranking),
        [comparison_table(compared(odd[3], other), odd[3], other)],
    ):
        for stream in (Terminal(), io.StringIO()):
            print_tables(*tables, stream=stream)
            assert "\x1b[2J" not in stream.getvalue()
            assert "\x07" not in stream.getvalue()
            assert "[bold red]x" in stream.getvalue()


def test_comparison_says_the_verdict_first(found):
    pair = found[2], summarise(record("other", "L2", seed=7), radii=RADII["L2"], gallery=0)
    comparison = compared(*pair)
    text = as_text(comparison_table(comparison, *pair))
    assert text.startswith(f"L2: {comparison.verdict}\n")
    assert f"({ends(comparison.difference, size)})" in text
    assert "the curves cross at ε = " in text
    assert "at 0.5" in text
    bare = [
        summarise(record(name, "L2", seed=seed), radii=(), gallery=0)
        for seed, name in enumerate("ab")
    ]
    assert "robust %" not in as_text(comparison_table(compared(*bare), *bare))


def test_where_no_run_broke_any_sample_a_dash_is_printed():
    never = summarise(record(unbroken=54), radii=RADII["Linf"], reference=pool())
    text = text_of([never])
    row = next(line for line in text.split("\n") if line.startswith("Linf"))
    assert row.split()[-6:] == ["∞", "–", "–", "–", "–", "12,000"]
    assert "no AUREC in Linf: no run broke any sample" in text
    assert "settled" not in text


def test_a_doi_in_doubt_is_printed_in_brackets():
    odd = record(strength=9.0, unbroken=1)
    summary = summarise(odd, radii=(), reference=pool())
    doi = summary.standing.row.doi.estimate
    assert doi > 1
    assert f"  ({doi:.3f})  (1) of 6  " in text_of([summary])


def test_columns_line_up():
    cells = {"a": Interval(1.0, 0.5, 2.0), "wide名": Strong(12.5), "é": Doubted(7.0), "b": None}
    table = Table("", (Column("name"), Column("two words", "score")), tuple(cells.items()))
    lines = as_text(table).split("\n")
    assert lines[:2] == ["name              two words", "------  -------------------"]
    assert {cell_len(line) for line in lines} == {27}
    assert [line.split()[-1] for line in lines[2:]] == ["(0.500–2.000)", "12.500", "(7.000)", "–"]


def test_intervals_go_below_their_figures_where_a_table_is_wide():
    columns = tuple(Column(f"figure {k}", "score") for k in range(5))
    text = as_text(Table("", columns, ((Interval(0.5, 0.25, 0.75),) * 5,)))
    assert text.split("\n")[2:] == [
        "        0.500" + "          0.500" * 4,
        "(0.250–0.750)" + "  (0.250–0.750)" * 4,
    ]


def test_ranking_columns_share_their_decimals():
    tables = rank_tables(
        rank([record(f"m{k}", "L2", seed=k, strength=0.1 * 5**k) for k in range(3)])
    )
    table = as_text(tables[0]).split("\n\n")[1].split("\n")
    start = next(k for k, line in enumerate(table) if line.startswith("---")) + 1
    areas = [line.split()[-3] for line in table[start:]]
    assert len(areas) == 3
    assert len({len(area.split(".")[1]) for area in areas}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0412345, "0.04123"), (14.2, "14.20"), (7, "7"), (0, "0"), (float("inf"), "∞"), (12345.6, "12346"),
     (1.2e-9, "1.200e-09"), (-0.43, "-0.4300")],
)  # fmt: skip
def test_sizes(value, text):
    assert size(value) == text


def test_decimals_of_a_column():
    assert column_decimals([0.2355, 0.02266, float("inf")]) == 4
    assert column_decimals([3, 12, float("inf")]) == 0
    assert column_decimals([float("inf")]) == 0


def test_several_models_are_one_table_norm_by_norm():
    both = [record(name, norm, seed=k) for k, name in enumerate("ab") for norm in ("L2", "Linf")]
    (table,) = summary_tables(summarise_all(both, radii="0.1"))
    assert (
        table.title
        == "2 models on fashion-mnist, 60 samples, at most 12k queries per sample, seed 42"
    )
    assert [row[:2] for row in table.rows] == [
        ("L2", "a"),
        ("L2", "b"),
        ("Linf", "a"),
        ("Linf", "b"),
    ]
