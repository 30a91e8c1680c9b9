"""Tables of results: which rows, columns and notes they have, and in which order."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from report_records import NORMS, all_norms, alone, evaluation, reference_pool, summary

from advfrontier.evaluation.compare import rank
from advfrontier.evaluation.summary import Certified, summarise_all
from advfrontier.flags import Flag, Kind
from advfrontier.report import comparison_table, rank_tables, ranking_csv, summary_tables
from advfrontier.report.numbers import ends, size
from advfrontier.report.render import as_text
from advfrontier.report.summary import in_order
from advfrontier.table import Doubted


def names(table):
    return [column.name for column in table.columns]


def test_summary_table_has_a_row_per_norm_and_radius():
    (table,) = summary_tables(all_norms()[::-1])
    assert names(table) == [
        "norm",
        "clean accuracy %",
        "at ε",
        "robust accuracy %",
        "median distance",
        "AUREC",
        "up to",
        "DOI",
        "rank",
        "queries per sample",
    ]
    assert [row[0] for row in table.rows] == ["L0", "", "L1", "", "L2", "", "Linf", ""]
    found = summary("net", "Linf")
    assert table.rows[6] == (
        "Linf",
        found.clean,
        "2/255",
        found.robust[0].accuracy,
        found.median,
        found.aurec,
        found.E,
        found.standing.row.doi,
        "2 of 3",
        100.0,
    )
    assert table.rows[7][:4] == ("", "", "8/255", found.robust[1].accuracy)
    assert set(table.rows[7][4:]) == {""}


def test_summary_title_and_spent_queries():
    (table,) = summary_tables(all_norms())
    data = summary().data
    assert table.title == f"net on {data}, 24 samples, at most 100 queries per sample, seed 42"
    attack = sum(evaluation("net", norm).counts["attack"] for norm in NORMS)
    assert f"{attack:,} attack" in table.notes[1]
    assert table.notes[0] == "intervals in brackets: 95 %, for other samples of the same source"


def test_columns_without_content_are_left_out():
    (table,) = summary_tables([alone()])
    for absent in ("at ε", "robust accuracy %", "certified accuracy %", "DOI", "rank", "model"):
        assert absent not in names(table)
    assert "--radii 4/255,8/255" in as_text(table)
    (never,) = summary_tables([summary("safe")])
    assert "DOI" not in names(never)
    assert "no AUREC in Linf: no run broke any sample" in never.notes
    first = as_text(never).split("\n\n")[1].splitlines()
    row = next(line for line in first if line.startswith("Linf"))
    assert row.split()[-4:] == ["∞", "–", "–", "100"]


def test_models_share_one_table_norm_by_norm():
    mixed = [alone("net", "Linf"), alone("other", "Linf"), alone("net", "L2"), alone("other", "L2")]
    (table,) = summary_tables(mixed)
    assert table.title.startswith("2 models on ")
    assert [row[:2] for row in table.rows] == [
        ("L2", "net"),
        ("L2", "other"),
        ("Linf", "net"),
        ("Linf", "other"),
    ]


def test_budgets_of_one_model_have_a_table_each():
    tables = summary_tables([alone(), replace(alone("net", "L2"), tier=4000)])
    assert len(tables) == 2
    assert "at most 100 queries" in tables[0].title
    assert "at most 4k queries" in tables[1].title


def test_certified_accuracy_is_a_column_where_there_is_any():
    found = summary("net", "Linf")
    radii = evaluation("net", "Linf").distances * 0.6
    certified = Certified.of(radii, [(at.label, at.epsilon) for at in found.robust])
    (table,) = summary_tables([replace(found, certified=certified), summary("net", "L2")])
    place = names(table).index("certified accuracy %")
    column = [row[place] for row in table.rows]
    assert column[0] is column[1] is None  # L2 comes first and has none
    for row in table.rows[2:]:
        assert row[place].estimate <= row[place - 1].estimate
    text = f"median radius {size(certified.median)}, of a median distance of {size(found.median)}"
    assert f"certified in Linf: {text}" in table.notes


def test_notes_end_with_flags():
    odd = (Flag(Kind.RANDOM, "two passes differ"), Flag(Kind.EOT, "averaged"))
    (table,) = summary_tables([replace(alone(), flags=odd, notes=("few differ",))])
    assert table.notes[-3:] == (
        "flag in Linf: two passes differ",
        "flag in Linf: averaged",
        "flag in Linf: DOI: few differ",
    )
    assert not [note for note in table.notes if "settled" in note]


def test_a_missing_doi_is_explained_once():
    found = [replace(one, no_standing="other samples") for one in (alone(), alone("net", "L2"))]
    (table,) = summary_tables(found)
    assert "no DOI in L2, Linf: other samples" in table.notes


def test_a_doi_at_another_budget_says_so():
    found = summary("net", "L2")
    (table,) = summary_tables([replace(found, tier=8000)])
    assert "DOI and rank in L2 after 100 queries, as the other models" in table.notes


def test_a_doi_in_doubt_is_printed_in_brackets():
    found = summary("net", "L2")
    row = replace(found.standing.row, bracketed=True)
    (table,) = summary_tables([replace(found, standing=replace(found.standing, row=row))])
    assert table.rows[0][names(table).index("DOI")] == Doubted(row.doi)
    assert f"({row.doi.estimate:.3f})" in as_text(table)


def test_in_order_puts_norms_in_their_usual_order():
    assert [one.norm for one in in_order(all_norms()[::-1])] == list(NORMS)


@pytest.mark.parametrize("columns", ["60", "80", "100", "140"])
def test_no_figure_is_cut_short_on_a_terminal(monkeypatch, columns, ranking):
    from test_render import Terminal  # noqa: PLC0415

    from advfrontier.report import print_tables  # noqa: PLC0415

    monkeypatch.setenv("COLUMNS", columns)
    seen = Terminal()
    print_tables(*summary_tables(all_norms()), *rank_tables(ranking), stream=seen)
    assert "…" not in seen.getvalue().replace("(…)", "")
    for found in all_norms():
        assert ends(found.aurec, size) in seen.getvalue()
        assert found.standing.position in seen.getvalue()


# Ranks


def test_rank_tables_start_with_the_mean_over_norms(ranking):
    tables = rank_tables(ranking)
    assert [table.title.partition(" ")[0] for table in tables] == ["All", *NORMS]
    assert names(tables[0])[4:] == ["mean DOI", *(f"DOI {norm}" for norm in NORMS)]
    assert tables[4].title == "Linf on noise: 24 samples, 100 queries each"
    starred = [row[3] for row in tables[1].rows if row[2] == "*"]
    assert starred == ["net"]


def test_rank_rows_are_best_first_and_doubted_last(ranking):
    for table in rank_tables(ranking)[1:]:
        dois = [row[4] for row in table.rows]
        assert isinstance(dois[-1], Doubted)
        sure = [doi.estimate for doi in dois[:-1]]
        assert sure == sorted(sure, reverse=True)
        assert table.rows[-1][3] == "C"
        assert [row[0] for row in table.rows[:-1]] == [1, 2, 3]


def test_rank_notes_name_model_and_norm_of_a_flag(ranking):
    notes = rank_tables(ranking)[-1].notes
    assert notes[0].startswith("* the records asked about")
    assert "flag in L0: C: 1 of 24 samples were never broken" in notes
    both = [evaluation("net", "L2"), evaluation("net", "Linf"), evaluation("other", "L2")]
    apart = rank_tables(rank(both))[-1].notes
    assert "no table over all norms: fewer than two norms hold all models" in apart


def test_rank_tables_read_accuracy_at_the_radii_asked_for():
    ranked = rank([evaluation("net"), evaluation("other")], radii="8/255")
    (table,) = rank_tables(ranked)
    place = names(table).index("at 8/255 %")
    for row in table.rows:
        assert row[place] == evaluation(row[3]).robust_accuracy("8/255")


def test_ranking_csv_has_a_line_per_model_and_norm_and_one_over_all(ranking):
    rows = list(csv.DictReader(io.StringIO(ranking_csv(ranking))))
    assert [row["norm"] for row in rows] == [norm for norm in NORMS for _ in range(4)] + ["all"] * 4
    for row in rows:
        if (row["norm"], row["model"]) == ("L1", "net"):
            assert float(row["doi"]) == ranking.norms[1].row("net").doi.estimate
            assert (row["rank"], row["bracketed"], row["samples"]) == ("2", "0", "24")
            assert row["queries"] == "100"
        if row["model"] == "C" and row["norm"] != "all":
            assert row["bracketed"] == "1"
            assert row["flags"].startswith("1 of 24 samples were never broken; ")


def test_ranking_csv_leaves_what_is_not_known_empty():
    found = evaluation("net").distances
    models = {"net": found, "safe": np.where(found > 0, np.inf, 0.0)}
    ranked = rank([], reference={"Linf": replace(reference_pool(), distances=models)})
    row = list(csv.DictReader(io.StringIO(ranking_csv(ranked))))[-1]
    assert row["model"] == "safe"
    assert (row["rank"], row["doi"], row["aurec"], row["bracketed"]) == ("", "", "", "1")


def test_ranking_csv_reads_accuracy_in_the_norm_of_a_radius():
    both = [evaluation("net", norm) for norm in ("L2", "Linf")]
    ranked = rank(
        both, reference={n: reference_pool(n) for n in ("L2", "Linf")}, radii="Linf=8/255"
    )
    for row in csv.DictReader(io.StringIO(ranking_csv(ranked))):
        known = row["robust_accuracy_Linf_8/255"] != ""
        assert known == (row["norm"] == "Linf")


# Two models


def test_comparison_table_has_the_verdict_and_the_difference(compared):
    comparison, first, second = compared[0]
    table = comparison_table(comparison, first, second)
    assert table.title == f"L2: {comparison.verdict}"
    assert [row[0] for row in table.rows] == ["net", "other", "difference"]
    assert names(table)[2:] == [f"AUREC up to {size(comparison.E)}", *names(table)[3:]]
    assert names(table)[3:] == ["robust % at 0.1", "robust % at 0.2"]
    assert table.rows[1][1:3] == (100, comparison.aurec[1])
    assert table.rows[1][3] == second.robust[0].accuracy
    assert table.rows[2][2] == comparison.difference


def test_comparison_notes_shorten_many_crossings(compared):
    comparison, first, second = compared[0]
    few = replace(comparison, crossings=(0.1, 0.25), flags=("net: odd",))
    assert comparison_table(few, first, second).notes == (
        "the curves cross at ε = 0.1000, 0.2500",
        "flag: net: odd",
    )
    many = replace(comparison, crossings=tuple(range(1, 10)), flags=())
    assert comparison_table(many, first, second).notes == (
        "the curves cross at ε = 1, 2, 3, 4, 5, 6 and 3 more",
    )
    assert comparison_table(replace(many, crossings=()), first, second).notes == ()


def test_models_shown_together_are_ranked_among_each_other():
    found = summarise_all([evaluation("net"), evaluation("other")], gallery=0)
    (table,) = summary_tables(found)
    assert sorted(row[names(table).index("rank")] for row in table.rows if row[0]) == [
        "1 of 2",
        "2 of 2",
    ]
