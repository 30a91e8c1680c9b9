"""Tables as data: names of columns, rows that fit, and heads."""

import pytest

from advfrontier.table import Column, Table

COLUMNS = (Column("ε in ℓ2", "size", key="epsilon"), Column("model", "code"))
TABLE = Table("Some", COLUMNS, ((0.5, "a"), (1.0, "b"), (None, "c")), notes=("careful",))


def test_columns_have_names_for_programs_and_sides():
    assert [column.label for column in COLUMNS] == ["epsilon", "model"]
    assert [column.left for column in COLUMNS] == [False, True]


def test_records_are_raw_values_by_name():
    assert TABLE.records()[::2] == [
        {"epsilon": 0.5, "model": "a"},
        {"epsilon": None, "model": "c"},
    ]


def test_head_says_how_many_rows_it_leaves_out():
    assert TABLE.head(3) is TABLE
    head = TABLE.head(1)
    assert head.rows == ((0.5, "a"),)
    assert head.notes == ("careful", "and 2 more")


def test_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="Some: a row of 1 cells under 2 columns"):
        Table("Some", COLUMNS, ((0.5,),))
