"""Ranking: the order, its brackets, its intervals, and what cannot be ranked together."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.records import SCALES, pool, record

from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import doi
from advfrontier.report import rank_tables, ranking_csv, write_leaderboard
from advfrontier.report.render import as_text


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


def text_of(ranking):
    return "\n\n".join(map(as_text, rank_tables(ranking)))


def test_a_flagged_model_takes_nobodys_rank_and_stands_last():
    records = three()
    records[2].flags = (
        Flag(Kind.RANDOM, "the model is random"),
        Flag(Kind.TRAINING, "it was training"),
    )
    rows = rank(records).norms[0].rows
    assert [(row.position, row.model) for row in rows] == [("1", "m1"), ("2", "m0"), ("(1)", "m2")]
    assert rows[-1].flags == (records[2].flags[0],)


def test_a_doi_above_one_is_never_printed_without_its_brackets(tmp_path):
    records = [r for norm in ("L2", "Linf") for r in three(norm)]
    for one in records[2::3]:
        one.flags = (Flag(Kind.ZERO_GRADIENTS, "masked"),)
        one.full = one.full * 5
    found = rank(records)
    above = [
        row.doi.estimate
        for table in (*found.norms,)
        for row in (*table.rows, *found.overall)
        if row.bracketed
    ]
    above += [value for row in found.overall if row.bracketed for value in row.dois.values()]
    assert min(above) > 1
    page = Path(write_leaderboard(tmp_path / "board.html", found)).read_text(encoding="utf-8")
    for shown in (text_of(found), re.sub(r'data-sort="[^"]*"|<small>[^<]*</small>', "", page)):
        for value in above:
            assert f"({value:.3f}" in shown
            assert not re.search(rf"[^(]{value:.3f}", shown)


def test_models_that_were_never_broken_are_a_dash_in_text_csv_and_json(tmp_path):
    found = rank([*three(), record("never", unbroken=54)])
    last = text_of(found).split("\n\n")[1].split("\n")[-1]
    assert re.match(r"\s+–\s+–\s+\*\s+never\s+–\s+–\s", last)
    row = list(csv.DictReader(io.StringIO(ranking_csv(found))))[-1]
    assert (row["model"], row["rank"], row["doi"], row["aurec"], row["bracketed"]) == (
        "never",
        "",
        "",
        "",
        "1",
    )
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))["norms"][0]["rows"][-1]
    assert (content["rank"], content["doi"]["estimate"], content["aurec"]) == (None, None, None)
    page = Path(write_leaderboard(tmp_path / "board.html", found)).read_text(encoding="utf-8")
    assert "no run broke any sample, so there is no DOI" in page
    assert "nan" not in page


def test_samples_in_another_order_are_aligned():
    records = three()
    turned = record("m1", seed=1, strength=2.0)
    turned.samples = turned.samples[::-1]
    turned.full, turned.first, turned.labels = (
        turned.full[::-1],
        turned.first[::-1],
        turned.labels.flip(0),
    )
    mixed, straight = rank([records[0], turned, records[2]]).to_dict(), rank(records).to_dict()
    assert mixed == straight


def test_against_a_pool_on_some_of_its_samples():
    few = record("mine", n=60)
    table = rank([few], reference={"Linf": pool(n=80)}).norms[0]
    assert len(table.rows) == 9
    assert [row.model for row in table.rows if row.given] == ["mine"]
    assert table.samples == 60
    alone = pool(n=80).on(few.samples[:7])
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
    dois = [
        next(row.doi.estimate for row in table.rows if row.model == "m2")
        for table in found.norms[1:]
    ]
    assert best.doi.estimate == pytest.approx(np.mean(dois))
    assert best.doi.low < best.doi.estimate < best.doi.high
    assert best.ranks == (1, 1)


def test_norms_on_different_samples_have_a_mean_without_an_interval():
    found = rank([*three("L2"), *three("Linf", n=50)])
    assert all(row.ranks is None and np.isnan(row.doi.low) for row in found.overall)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["overall"][0]["doi"]["low"] is None


def test_one_norm_has_no_mean():
    assert rank(three()).overall == ()


def test_a_tie_of_two_models_shows_in_their_ranks():
    same = record("a", seed=3), record("b", seed=3)
    rows = rank(same).norms[0].rows
    assert [(row.rank, row.ranks) for row in rows] == [(1, (1, 1)), (1, (1, 1))]
    close = record("a", seed=3), record("b", seed=4)
    assert {row.ranks for row in rank(close).norms[0].rows} == {(1, 2)}


def test_tiers():
    low, high = record("low", tier="paper-4k"), record("high", tier="paper-12k", seed=1)
    table = rank([low, high]).norms[0]
    assert table.queries == 4000  # the other record holds its own 4k
    with pytest.raises(
        FrontierError, match=r"low was evaluated in Linf with 4k queries.*--tier 12k"
    ):
        rank([low], reference={"Linf": pool()})
    high.ensemble = type(high.ensemble).of("own", "Linf", {"fmn": 900, "alma": 800})
    with pytest.raises(
        FrontierError, match=r"low was .* with paper-4k, high with own: expected the same attacks"
    ):
        rank([low, high])


def test_what_cannot_be_ranked():
    with pytest.raises(FrontierError, match=r"nothing to rank.*advfrontier rank"):
        rank([])
    with pytest.raises(FrontierError, match="m0 comes more than once in Linf"):
        rank([record("m0"), record("m0", seed=1)])
    with pytest.raises(
        FrontierError,
        match=r"different samples \(0 only in the former, 10 only in the latter\).*--sample-seed",
    ):
        rank([record("a"), record("b", n=50)])
    with pytest.raises(
        FrontierError, match=r"20 of 80 samples are not among the 60.*--data fashion-mnist"
    ):
        rank([record("a", n=80)], reference={"Linf": pool(n=60)})


def test_text_and_csv_hold_every_model():
    records = [record("mine, a=1", norm, unbroken=2) for norm in SCALES]
    found = rank(records, reference={norm: pool(norm) for norm in SCALES})
    text = text_of(found)
    assert len(re.findall(r"\*  mine, a=1 ", text)) == 5
    assert "flag in L2: mine, a=1: 2 of 60 samples were never broken" in text
    rows = list(csv.DictReader(io.StringIO(ranking_csv(found))))
    assert len(rows) == 5 * 9
    mine = next(row for row in rows if row["norm"] == "L1" and row["model"] == "mine, a=1")
    table = found.norms[1]
    assert float(mine["doi"]) == next(row.doi.estimate for row in table.rows if row.given)
    assert (mine["bracketed"], mine["samples"]) == ("1", "60")
