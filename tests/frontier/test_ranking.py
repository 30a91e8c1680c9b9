"""Ranks: who stands where, who stands in brackets and last, and how easily other samples would
change it.
"""

import json

import numpy as np
import pytest

from advfrontier.flags import Flag, Kind
from advfrontier.frontier import ReferencePool, doi, doi_intervals, rank, rank_ranges, rank_table
from advfrontier.frontier.ranking import mean_rows, rank_range

MASKED = Flag(Kind.ZERO_GRADIENTS, "masked gradients")


def pool(models, *, norm="L2", doubted=(), samples=None):
    table = {name: np.asarray(d, dtype=float) for name, d in models.items()}
    names = (
        tuple(f"s{k}" for k in range(len(next(iter(table.values())))))
        if samples is None
        else samples
    )
    return ReferencePool(
        norm, "fashion-mnist", 12000, names, table, dict.fromkeys(doubted, (MASKED,))
    )


def rows(table):
    return [(row.position, row.model) for row in table.rows]


def test_models_by_doi():
    found = rank_table(pool({"b": [1, 3, 2, 0], "a": [4, 0, 2, 1]}), given={"b"})
    first, second = found.rows
    assert (first.rank, first.model, first.position, first.given) == (1, "a", "1", False)
    assert first.doi.estimate == pytest.approx(7 / 10)
    assert (first.aurec, first.clean_accuracy, first.median) == (7 / 4, 3 / 4, 1)
    assert (second.rank, second.model, second.given) == (2, "b", True)
    assert second.doi.estimate == pytest.approx(6 / 10)
    assert (found.ranked, found.E) == (2, 4)


def test_equal_models_share_a_rank():
    assert rows(rank_table(pool({"a": np.ones(4), "b": np.ones(4), "c": np.full(4, 0.5)}))) == [
        ("1", "a"),
        ("1", "b"),
        ("3", "c"),
    ]


def test_a_model_in_doubt_stands_last_whatever_its_doi_and_takes_nobodys_rank():
    found = rank_table(
        pool(
            {"masked": [9, 9, 9], "a": [2, 3, 4], "b": [1, 2, 3], "wild": [np.inf, 5, 5]},
            doubted=["masked"],
        )
    )
    assert rows(found) == [("1", "a"), ("2", "b"), ("(1)", "masked"), ("(1)", "wild")]
    assert found.ranked == 2
    assert all(row.doi.estimate > 1 for row in found.rows if row.bracketed)
    assert found.row("masked").flags == (MASKED,)
    assert found.row("wild").flags[0].kind is Kind.UNBROKEN


def test_a_model_that_was_never_broken_has_neither_doi_nor_area_nor_rank():
    found = rank_table(
        pool(
            {"never": [np.inf, np.inf, 0], "a": [2, 3, 4], "masked": [9, 9, 9]}, doubted=["masked"]
        )
    )
    assert rows(found) == [("1", "a"), ("(1)", "masked"), ("–", "never")]
    never = found.rows[-1]
    assert (never.rank, never.ranks, never.doi.known) == (None, None, False)
    assert np.isnan(never.aurec)
    assert "no run broke any sample, so there is no DOI" in never.doi.flags


def test_where_nobody_is_ever_correct_there_is_no_order():
    found = rank_table(pool({"a": np.zeros(3), "b": np.zeros(3)}))
    assert rows(found) == [("–", "a"), ("–", "b")]
    assert np.isnan(found.rows[0].aurec)
    content = json.loads(
        json.dumps(rank({"L2": pool({"a": np.zeros(3)})}).to_dict(), allow_nan=False)
    )
    assert content["norms"][0]["rows"][0]["doi"]["estimate"] is None


def test_intervals_are_around_the_figures_they_are_for():
    rng = np.random.default_rng(3)
    models = {"a": rng.lognormal(0, 0.5, 300), "b": rng.lognormal(0, 0.5, 300)}
    found = pool(models)
    for name, interval in doi_intervals(found).items():
        assert interval.estimate == pytest.approx(doi(models[name], found.frontier).value)
        assert 0 <= interval.low < interval.estimate < interval.high <= 1
    assert set(rank_ranges(found).values()) == {(1, 2)}


def test_ranges_tell_how_easily_the_order_changes():
    rng = np.random.default_rng(8)
    d = rng.lognormal(0, 0.5, 300)
    models = {
        "far": d * 3,
        "a": d * rng.lognormal(0, 0.5, 300),
        "b": d * rng.lognormal(0, 0.5, 300),
    }
    assert rank_ranges(pool(models)) == {"far": (1, 1), "a": (2, 3), "b": (2, 3)}
    same = rank_ranges(pool({"wild": 9 * d, "a": 2 * d, "b": d}, doubted=["wild"]), resamples=20)
    assert same == {"wild": (1, 1), "a": (1, 1), "b": (2, 2)}


def test_models_in_doubt_do_not_set_the_frontier_of_intervals():
    rng = np.random.default_rng(9)
    d = rng.lognormal(0, 0.5, 200)
    wild = np.where(rng.random(200) < 0.2, np.inf, 5 * d)
    intervals = doi_intervals(pool({"a": d, "b": d * rng.lognormal(0, 0.3, 200), "wild": wild}))
    assert intervals["a"].estimate > 0.7
    assert intervals["wild"].estimate > 1


def test_means_over_norms_put_models_in_doubt_in_any_norm_last():
    models = {"a": [2, 3, 4], "b": [1, 2, 3], "c": [4, 4, 5]}
    found = rank({"L2": pool(models), "Linf": pool(models, norm="Linf", doubted=["c"])})
    assert [(row.position, row.model) for row in found.overall] == [
        ("1", "a"),
        ("2", "b"),
        ("(1)", "c"),
    ]
    for row in found.overall:
        assert row.doi.estimate == pytest.approx(np.mean(list(row.dois.values())))
        assert set(row.dois) == {"L2", "Linf"}
        assert row.ranks is not None
        assert row.doi.low <= row.doi.estimate <= row.doi.high
    assert max(found.overall[-1].dois.values()) > 1


def test_norms_in_another_order_of_samples_are_aligned():
    rng = np.random.default_rng(0)
    models = {"a": rng.random(50), "b": rng.random(50)}
    turned = pool(
        {name: d[::-1] for name, d in models.items()},
        norm="Linf",
        samples=tuple(f"s{k}" for k in reversed(range(50))),
    )
    one, other = (
        rank({"L2": pool(models), "Linf": second}).overall
        for second in (pool(models, norm="Linf"), turned)
    )
    for first, second in zip(one, other, strict=True):
        assert (first.model, first.rank, first.ranks) == (second.model, second.rank, second.ranks)
        assert [first.doi.low, first.doi.high] == pytest.approx([second.doi.low, second.doi.high])


def test_a_model_that_lacks_a_norm_has_no_mean():
    tables = [
        rank_table(pool({"a": [2, 3], "b": [1, 2]})),
        rank_table(pool({"a": [2, 3]}, norm="L1")),
    ]
    assert [(row.model, row.rank) for row in mean_rows(tables)] == [("a", 1), ("b", None)]


def test_rank_range_is_the_middle_of_the_shares():
    assert rank_range(np.array([0.02, 0.9, 0.05, 0.03])) == (2, 4)
    assert rank_range(np.array([0.0, 1.0, 0.0])) == (2, 2)
    assert rank_range(np.array([0.025, 0.95, 0.025])) == (2, 2)
    assert rank_range(np.array([0.03, 0.94, 0.03])) == (1, 3)
