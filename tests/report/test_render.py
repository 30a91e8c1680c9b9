"""Tables on a terminal, as plain text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest
from rich.cells import cell_len

from advfrontier.frontier.confidence import Interval
from advfrontier.report.render import as_csv, as_latex, as_markdown, as_text, clean, print_tables
from advfrontier.table import Column, Doubted, Table

NAN = float("nan")
COLUMNS = (
    Column("model", key="name"),
    Column("source", "code"),
    Column("norm", "norm"),
    Column("DOI (%)", "percent", key="doi"),
    Column("matched", "integer"),
    Column("disk", "bytes"),
)
TABLE = Table(
    "Cells",
    COLUMNS,
    (
        ("a|b", "zoo:F1", "L2", 0.5, 3, 2.5e6),
        ("c_d", None, "Linf", Doubted(1.367), 4, 900),
        ("e", None, "mean", Interval(NAN, NAN, NAN), "", None),
        ("f", None, "", Doubted(Interval(0.5, 0.25, 0.75)), None, None),
    ),
    ("a note",),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_as_text_has_title_headings_rule_rows_and_notes():
    title, _, headings, rule, *rows, _, note = as_text(TABLE).splitlines()
    assert (title, note) == ("Cells", "a note")
    assert headings.split() == ["model", "source", "norm", "DOI", "(%)", "matched", "disk"]
    assert rows[0].split() == ["a|b", "zoo:F1", "ℓ₂", "50.0", "3", "2.5", "MB"]
    assert rows[1].split() == ["c_d", "–", "ℓ∞", "(136.7)", "4", "1", "kB"]
    assert rows[2].split() == ["e", "–", "mean", "–", "–"]
    assert rows[3].split() == ["f", "–", "(50.0)", "–", "–"]  # in doubt: no interval
    assert len(rule) == max(len(line) for line in (headings, *rows))


def test_as_text_of_no_rows_is_title_and_notes():
    assert as_text(Table("Nothing", COLUMNS, (), ("none found",))) == "Nothing\n\nnone found"


def test_as_text_lines_up_wide_letters():
    cells = {"a": Interval(1.0, 0.5, 2.0), "wide名": 12.5, "é": Doubted(7.0), "b": None}
    table = Table("", (Column("name"), Column("two words", "score")), tuple(cells.items()))
    lines = as_text(table).split("\n")
    assert lines[:2] == ["name              two words", "------  -------------------"]
    assert {cell_len(line) for line in lines} == {27}
    ends = ["(0.500–2.000)", "12.500", "(7.000)", "–"]
    assert [line.split()[-1] for line in lines[2:]] == ends


def test_as_text_breaks_headings_of_wide_tables():
    columns = (Column("a rather long heading", "score"),) * 5
    lines = as_text(Table("", columns, ((0.5,) * 5,))).split("\n")
    assert [line.split() for line in lines[:2]] == [["a", "rather"] * 5, ["long", "heading"] * 5]
    narrow = as_text(Table("", columns[:4], ((0.5,) * 4,))).split("\n")
    assert narrow[0] == "  ".join(["a rather long heading"] * 4)


def test_intervals_go_below_their_figures_in_wide_tables():
    columns = tuple(Column(f"figure {k}", "score") for k in range(5))
    text = as_text(Table("", columns, ((Interval(0.5, 0.25, 0.75),) * 5,)))
    assert text.split("\n")[2:] == [
        "        0.500" + "          0.500" * 4,
        "(0.250–0.750)" + "  (0.250–0.750)" * 4,
    ]


def test_sizes_of_a_column_share_their_decimals():
    rows = ((12.5,), (0.031,), (Doubted(1.25),), (float("inf"),))
    lines = as_text(Table("", (Column("d", "sizes"),), rows)).split("\n")
    assert [line.strip() for line in lines[2:]] == ["12.50", "0.03", "(1.25)", "∞"]


def test_a_column_of_nothing_takes_no_letter_from_others():
    columns = (Column(""), Column("model", folds=True), Column("DOI", "score"))
    table = Table("", columns, (("", "F1", 0.5), ("", "F2", 0.7)))
    assert as_text(table).splitlines()[0] == "   model    DOI"


def test_markdown_keeps_bars_out_of_cells():
    lines = as_markdown(TABLE).splitlines()
    assert lines[1] == "| :-- | :-- | :-- | --: | --: | --: |"
    assert lines[2] == "| a/b | `zoo:F1` | ℓ₂ | 50.0 | 3 | 2.5 MB |"
    assert lines[3] == "| c_d | – | ℓ∞ | (136.7) | 4 | 1 kB |"
    assert lines[-1] == "- a note"


def test_csv_gives_both_ends_of_an_interval_a_column():
    rows = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert rows[0]["name"] == "a|b"
    assert (rows[0]["doi"], rows[0]["doi low"], rows[0]["doi in doubt"]) == ("0.5", "", "")
    assert (rows[1]["doi"], rows[1]["doi in doubt"]) == ("1.367", "1")
    parts = ("doi", "doi low", "doi high", "doi in doubt")
    assert [rows[3][part] for part in parts] == ["0.5", "0.25", "0.75", "1"]
    assert as_csv(Table("", COLUMNS, ())) == "name,source,norm,doi,matched,disk\n"


def test_latex_escapes_names_and_sets_norms_as_formulas():
    lines = as_latex(TABLE).splitlines()
    assert lines[0] == r"\begin{tabular}{lllrrr}"
    assert r"c\_d & -- & $\ell_{\infty}$ & (136.7) & 4 & 1 kB \\" in lines
    assert r"a|b & zoo:F1 & $\ell_{2}$ & 50.0 & 3 & 2.5 MB \\" in lines
    assert lines[-1] == "% a note"
    forged = as_latex(Table("", (Column("model"),), (("a\n\\input{b}",),), ("a\n\\input{b}",)))
    assert not [line for line in forged.splitlines() if line.startswith("\\input")]


def test_print_tables_draws_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    wide = Terminal()
    print_tables(TABLE, TABLE, stream=wide)
    assert wide.getvalue().count("───") > 2
    assert wide.getvalue().count("(136.7)") == 2


def test_print_tables_lists_figures_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    narrow = Terminal()
    print_tables(TABLE, stream=narrow)
    lines = [line.split() for line in narrow.getvalue().splitlines()]
    assert ["DOI", "(%)", "(136.7)"] in lines
    assert ["matched", "3"] in lines


def test_print_tables_is_plain_text_where_output_is_piped():
    piped = io.StringIO()
    print_tables(TABLE, TABLE, stream=piped)
    assert piped.getvalue() == f"{as_text(TABLE)}\n\n{as_text(TABLE)}\n"


@pytest.mark.parametrize(
    "draw", [as_text, as_markdown, as_csv, as_latex], ids=lambda draw: draw.__name__
)
def test_no_form_of_a_table_prints_control_or_bidi_characters(draw):
    bad = "x\x1b[2J\x07\u202e\u2066y"
    table = Table(bad, (Column("model"), Column("n", "integer")), ((bad, 1), (bad, bad)), (bad,))
    text = draw(table)
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(text)
    assert "x" in text
    assert "y" in text


def test_a_terminal_prints_brackets_in_names_as_they_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    seen = Terminal()
    bad = "[bold red]x[/]\x1b[2J"
    print_tables(Table(bad, (Column("model"),), ((bad,),), (bad,)), stream=seen)
    assert seen.getvalue().count("[bold red]x") == 3
    assert "\x1b[2J" not in seen.getvalue()


def test_clean_keeps_line_breaks_only():
    assert clean("a\nb\x00\u202ec").split("\n")[0] == "a"
    assert not {"\x00", "\u202e"} & set(clean("a\nb\x00\u202ec"))


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        Table("x", (Column("a"), Column("b")), (("only",),))


def test_head_says_how_many_rows_are_left_out():
    table = Table("", (Column("x", "integer"),), ((1,), (2,), (3,)), ("first",))
    assert table.head(2).rows == ((1,), (2,))
    assert table.head(2).notes == ("first", "and 1 more")
    assert table.head(3) is table
