"""Tables as data: every kind of cell in every form they are drawn in."""

import csv
import io
import json

import pytest

from advfrontier.frontier.confidence import Interval
from advfrontier.frontier.optimality import BaselineAOI
from advfrontier.report.render import as_csv, as_json, as_latex, as_markdown, as_text, print_tables
from advfrontier.table import Column, Doubted, Share, Spread, Strong, Table, stacked

COLUMNS = (
    Column("ℓ2", key="model"),
    Column("source", "code"),
    Column("norm", "norm"),
    Column("DOI (%)", "percent", key="doi"),
    Column("AOI (%)", "fine", key="aoi"),
    Column("matched", "integer"),
    Column("disk", "bytes"),
)
TABLE = Table(
    "Cells",
    COLUMNS,
    (
        ("a|b", "zoo:F1", "L2", 0.5, BaselineAOI(0.98, 0.9, 1.1), Share(3, 13), 2.5e6),
        ("c_d", None, "Linf", Doubted(1.367), Strong(0.5), 4, 900),
        (
            "e",
            None,
            "L0",
            Interval(float("nan"), float("nan"), float("nan")),
            Spread(0.5, 0.25),
            (2, 4),
            None,
        ),
    ),
    ("a note",),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_text_lines_up_and_ends_with_the_notes():
    title, _, headings, rule, *rows, _, note = as_text(TABLE).splitlines()
    assert (title, note) == ("Cells", "a note")
    assert headings.split() == [
        "ℓ2",
        "source",
        "norm",
        "DOI",
        "(%)",
        "AOI",
        "(%)",
        "matched",
        "disk",
    ]
    assert rows[0].split() == [
        "a|b",
        "zoo:F1",
        "ℓ2",
        "50.0",
        "98.00",
        "[90.00–110.00]",
        "3/13",
        "2.5",
        "MB",
    ]
    assert rows[1].split() == ["c_d", "–", "ℓ∞", "(136.7)", "50.00", "4", "1", "kB"]
    assert rows[2].split() == ["e", "–", "ℓ0", "–", "50.00", "±", "25.00", "2–4", "–"]
    assert len(rule) == max(len(line) for line in (headings, *rows))


def test_markdown_keeps_bars_out_of_cells_and_makes_strong_cells_bold():
    lines = as_markdown(TABLE).splitlines()
    assert lines[2] == "| a/b | `zoo:F1` | ℓ2 | 50.0 | 98.00 [90.00–110.00] | 3/13 | 2.5 MB |"
    assert lines[3] == "| c_d | – | ℓ∞ | (136.7) | **50.00** | 4 | 1 kB |"
    assert lines[-1] == "- a note"


def test_json_has_raw_values_by_key_and_null_for_what_is_not_known():
    content = json.loads(json.dumps(as_json(TABLE), allow_nan=False))
    first, second, third = content["rows"]
    assert list(first) == ["model", "source", "norm", "doi", "aoi", "matched", "disk"]
    assert first["aoi"] == {"value": 0.98, "low": 0.9, "high": 1.1, "flags": []}
    assert first["matched"] == {"count": 3, "of": 13}
    assert (second["doi"], second["aoi"], second["source"]) == (
        {"value": 1.367, "in_doubt": True},
        0.5,
        None,
    )
    assert third["doi"]["estimate"] is None


def test_csv_gives_every_part_of_a_cell_a_column():
    first, second, _ = csv.DictReader(io.StringIO(as_csv(TABLE)))
    assert (first["aoi"], first["aoi low"], first["aoi high"]) == ("0.98", "0.9", "1.1")
    assert (first["matched"], first["matched of"], first["doi in doubt"]) == ("3", "13", "")
    assert (second["doi"], second["doi in doubt"]) == ("1.367", "1")


def test_latex_escapes_names_and_sets_strong_cells_bold():
    lines = as_latex(TABLE).splitlines()
    assert lines[0] == r"\begin{tabular}{lllrrrr}"
    assert r"c\_d & -- & $\ell_{\infty}$ & (136.7) & \textbf{50.00} & 4 & 1 kB \\" in lines
    forged = as_latex(Table("", (Column("model"),), (("a\n\\input{b}",),), ("a\n\\input{b}",)))
    assert not [line for line in forged.splitlines() if line.startswith("\\input")]


def test_a_terminal_gets_a_drawn_table_and_a_narrow_one_a_figure_a_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    wide = Terminal()
    print_tables(TABLE, TABLE, stream=wide)
    assert wide.getvalue().count("━" * 3) or wide.getvalue().count("─" * 3)
    assert wide.getvalue().count("(136.7)") == 2
    monkeypatch.setenv("COLUMNS", "30")
    narrow = Terminal()
    print_tables(TABLE, stream=narrow)
    lines = [line.split() for line in narrow.getvalue().splitlines()]
    assert ["DOI", "(%)", "(136.7)"] in lines
    assert ["matched", "3/13"] in lines


def test_stacked_tables_say_which_row_is_from_which():
    small = Table("", (Column("x", "integer"),), ((1,), (2,), (3,)))
    both = stacked("both", Column("norm"), {"ℓ0": small.head(2), "ℓ1": small})
    assert both.rows == (("ℓ0", 1), ("ℓ0", 2), ("ℓ1", 1), ("ℓ1", 2), ("ℓ1", 3))
    assert both.notes == ("ℓ0: and 1 more",)


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        Table("x", (Column("a"), Column("b")), (("only",),))


def test_a_column_of_nothing_takes_no_letter_from_others():
    table = Table(
        "",
        (Column(""), Column("model", folds=True), Column("DOI", "score")),
        (("", "F1", 0.5), ("", "F2", 0.7)),
    )
    assert as_text(table).splitlines()[0] == "   model    DOI"
