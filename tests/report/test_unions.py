"""Tables and rows of unions: which norm breaks a sample, at which t, and of how many."""

import csv
import io

import numpy as np
import pytest

from advfrontier.evaluation.union import UnionOfModel, compare_unions
from advfrontier.flags import Flag, Kind
from advfrontier.report.unions import UNIONS_MARK, union_tables, unions_compared, unions_csv
from advfrontier.threat.names import name_union

INF = float("inf")


def united(model="net", *, l1=(0.0, 1.0, 6.0, INF), linf=(0.0, 0.5, 0.1, INF), flags=()):
    """Return a union by hand: of four samples, L1 breaks one, Linf one, neither the last."""
    return UnionOfModel(
        by_norm={"L1": np.array(l1), "Linf": np.array(linf)},
        radii={"L1": 2.0, "Linf": 0.1},
        model=model,
        data="digits",
        name=name_union({"L1": "2", "Linf": "0.1"}),
        samples=("a", "b", "c", "d"),
        queries=4000,
        flags=flags,
    )


def test_table_has_a_row_per_t_and_columns_for_each_norm():
    (table,) = union_tables([united()], [("1/2", 0.5), ("1", 1.0)])
    assert [column.name for column in table.columns] == [
        "t",
        "robust accuracy %",
        "L1 alone %",
        "Linf alone %",
        "broken by L1 only %",
        "broken by Linf only %",
    ]
    half, whole = table.rows
    # At t = 1/2 both radii are halved: L1 breaks b at 1 = 2/2, and Linf nothing yet.
    assert half[0] == "1/2"
    assert half[1].estimate == 0.5
    assert half[2:] == (0.5, 0.75, 0.25, 0.0)
    assert whole[1].estimate == 0.25
    assert whole[2:] == (0.5, 0.5, 0.25, 0.25)


def test_title_and_notes_name_models_samples_and_flags():
    doubt = Flag(Kind.NOISE, "noise breaks it, too")
    (table,) = union_tables([united(flags=(doubt,))], [("1", 1.0)])
    assert table.title == (
        "net on digits against L1=2,Linf=0.1 at once: 4 samples, 4k queries in each norm"
    )
    assert table.notes[-1] == "flag: noise breaks it, too"
    area, meaning = table.notes[:-1]
    assert area.startswith("AUREC 0.6250 (")  # 0.75 up to t = 1/2, 0.5 up to 1
    assert area.endswith("), in units of t")
    assert meaning.startswith("t scales all radii together")


def test_union_that_nothing_breaks_has_no_area():
    (table,) = union_tables([united(l1=(INF,) * 4, linf=(INF,) * 4)], [("1", 1.0)])
    assert not any(note.startswith("AUREC") for note in table.notes)


def test_rows_hold_t_the_norm_that_breaks_first_and_all_distances():
    text = unions_csv([united(), united("other", l1=(0.0, 4.0, 6.0, INF))])
    assert text.encode().startswith(UNIONS_MARK)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["model"] for row in rows] == ["net"] * 4 + ["other"] * 4
    found = [(row["sample"], float(row["t"]), row["weakest"]) for row in rows[:4]]
    assert found == [("a", 0.0, ""), ("b", 0.5, "L1"), ("c", 1.0, "Linf"), ("d", INF, "")]
    assert rows[5] == {
        "model": "other",
        "sample": "b",
        "t": "2.0",
        "weakest": "L1",
        "L1": "4.0",
        "Linf": "0.5",
    }


def test_comparison_shows_both_areas_and_their_difference():
    comparison = compare_unions(united(), united("other", l1=(0.0, 4.0, 6.0, INF)))
    table = unions_compared(comparison)
    assert table.title == comparison.verdict
    assert table.columns[1].name == "AUREC up to 2"
    names = [row[0] for row in table.rows]
    assert names == ["net", "other", "difference"]
    first, second, difference = (row[1] for row in table.rows)
    assert difference.estimate == pytest.approx(first - second)
    assert first < second
