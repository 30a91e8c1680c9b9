"""Ranking: the order, its brackets, its intervals, and what cannot be ranked together."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest
from support.records import SCALES, pool, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.ranking import rank, rank_interval, select_samples
from advfrontier.frontier import doi
from advfrontier.report import ranking_csv, ranking_text


def three(norm="Linf", **more):
    return [record(f"m{k}", norm, seed=k, strength=1.0 + k, **more) for k in range(3)]


def test_models_are_ordered_by_doi_against_their_own_frontier():
    records = three()
    table = rank(records).norms[0]
    assert [row.model for row in table.rows] == ["m2", "m1", "m0"]
    assert [row.position for row in table.rows] == ["1", "2", "3"]
    frontier = np.max([r.distances for r in records], axis=0)
    assert table.rows[0].doi.estimate == pytest.approx(doi(records[2].distances, frontier).value)
    assert all(row.ranks[0] <= row.rank <= row.ranks[1] for row in table.rows)
    assert frontier.max() == table.E
    assert (table.queries, table.samples) == (12000, 60)


def test_a_flagged_model_takes_nobodys_rank():
    records = three()
    records[2].flags = ("the model is random",)
    rows = rank(records).norms[0].rows
    assert [(row.position, row.model) for row in rows] == [("(1)", "m2"), ("1", "m1"), ("2", "m0")]
    assert rows[0].flags[0] == "the model is random"


def test_samples_in_another_order_are_aligned():
    records = three()
    turned = record("m1", seed=1, strength=2.0)
    turned.samples = turned.samples[::-1]
    turned.full, turned.first = turned.full[::-1], turned.first[::-1]
    assert rank([records[0], turned, records[2]]) == rank(records)


def test_against_a_pool_on_some_of_its_samples():
    few = record("mine", n=60)
    table = rank([few], reference={"Linf": pool(n=80)}).norms[0]
    assert len(table.rows) == 9
    assert [row.model for row in table.rows if row.given] == ["mine"]
    assert table.samples == 60
    alone = select_samples(pool(n=80), few.samples[:7])
    assert alone.samples == few.samples[:7]
    np.testing.assert_array_equal(alone.distances["F2"], pool(n=80).distances["F2"][:7])


def test_a_pool_alone_can_be_ranked():
    found = rank([], reference={norm: pool(norm) for norm in ("L2", "L0")})
    assert [table.norm for table in found.norms] == ["L0", "L2"]
    assert len(found.overall) == 8
    assert not any(row.given for row in found.overall)


def test_mean_over_the_norms_all_share():
    records = [r for norm in ("L2", "Linf") for r in three(norm)] + three("L0")[:2]
    found = rank(records)
    assert found.shared == ("L2", "Linf")
    best = found.overall[0]
    assert best.model == "m2"
    dois = [next(row.doi.estimate for row in table.rows if row.model == "m2") for table in found.norms[1:]]
    assert best.mean_doi.estimate == pytest.approx(np.mean(dois))
    assert best.mean_doi.low < best.mean_doi.estimate < best.mean_doi.high
    assert best.ranks == (1, 1)


def test_norms_on_different_samples_have_a_mean_without_an_interval():
    found = rank([*three("L2"), *three("Linf", n=50)])
    assert all(row.ranks is None and np.isnan(row.mean_doi.low) for row in found.overall)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["overall"][0]["mean_doi"]["low"] is None


def test_one_norm_has_no_mean():
    assert rank(three()).overall == ()


def test_a_tie_of_two_models_shows_in_their_ranks():
    same = record("a", seed=3), record("b", seed=3)
    rows = rank(same).norms[0].rows
    assert [(row.rank, row.ranks) for row in rows] == [(1, (1, 1)), (1, (1, 1))]
    close = record("a", seed=3), record("b", seed=4)
    assert {row.ranks for row in rank(close).norms[0].rows} == {(1, 2)}


def test_rank_interval_is_the_middle_of_the_shares():
    assert rank_interval(np.array([0.02, 0.9, 0.05, 0.03])) == (2, 4)
    assert rank_interval(np.array([0.0, 1.0, 0.0])) == (2, 2)
    assert rank_interval(np.array([0.025, 0.95, 0.025])) == (2, 2)
    assert rank_interval(np.array([0.03, 0.94, 0.03])) == (1, 3)


def test_tiers():
    low, high = record("low", tier="paper-4k"), record("high", tier="paper-12k", seed=1)
    table = rank([low, high]).norms[0]
    assert table.queries == 4000  # the other record holds its own 4k
    with pytest.raises(FrontierError, match=r"low was evaluated in Linf with 4000 queries.*--tier 12000"):
        rank([low], reference={"Linf": pool()})
    high.ensemble = type(high.ensemble).of("own", "Linf", {"fmn": 900, "alma": 800})
    with pytest.raises(FrontierError, match=r"with 4000 queries, the others with 1700.*no such stage"):
        rank([low, high])


def test_what_cannot_be_ranked():
    with pytest.raises(FrontierError, match=r"nothing to rank.*advfrontier rank"):
        rank([])
    with pytest.raises(FrontierError, match="m0 comes more than once in Linf"):
        rank([record("m0"), record("m0", seed=1)])
    with pytest.raises(
        FrontierError, match=r"different samples \(0 only in the former, 10 only in the latter\).*--sample-seed"
    ):
        rank([record("a"), record("b", n=50)])
    with pytest.raises(FrontierError, match=r"20 of 80 samples are not among the 60.*--data fashion-mnist"):
        rank([record("a", n=80)], reference={"Linf": pool(n=60)})


def test_text_and_csv_hold_every_model():
    records = [record("mine, a=1", norm, unbroken=2) for norm in SCALES]
    found = rank(records, reference={norm: pool(norm) for norm in SCALES})
    text = ranking_text(found)
    assert len(re.findall(r"\*  mine, a=1 ", text)) == 5
    assert "flag in L2: mine, a=1: 2 of 60 samples were never broken" in text
    rows = list(csv.DictReader(io.StringIO(ranking_csv(found))))
    assert len(rows) == 5 * 9
    mine = next(row for row in rows if row["norm"] == "L1" and row["model"] == "mine, a=1")
    table = found.norms[1]
    assert float(mine["doi"]) == next(row.doi.estimate for row in table.rows if row.given)
    assert (mine["bracketed"], mine["samples"]) == ("1", "60")
