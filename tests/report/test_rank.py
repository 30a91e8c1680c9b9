"""Ranks of real records: order, brackets, intervals, and what cannot be ranked together."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from report_records import NORMS, evaluation, net, reference_pool

from advfrontier import evaluate
from advfrontier.errors import FrontierError
from advfrontier.evaluation.compare import rank
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import doi
from advfrontier.pool import Ensemble


def three(norm="Linf"):
    return [evaluation(name, norm) for name in ("net", "A", "B")]


def pool_of(**distances):
    """Return a pool of models with these distances on the usual samples."""
    return replace(reference_pool(), distances=distances)


def test_models_are_ordered_by_doi_against_their_own_frontier():
    table = rank(three()).norms[0]
    dois = [row.doi.estimate for row in table.rows]
    assert dois == sorted(dois, reverse=True)
    assert [row.position for row in table.rows] == ["1", "2", "3"]
    frontier = np.max([one.distances for one in three()], axis=0)
    assert frontier.max() == table.E
    for row in table.rows:
        own = evaluation(row.model).distances
        assert row.doi.estimate == pytest.approx(doi(own, frontier).value)
        assert row.ranks[0] <= row.rank <= row.ranks[1]
        assert row.clean_accuracy == evaluation(row.model).robust_accuracy(0)
        assert row.median == np.sort(own)[11]
    assert (table.queries, table.samples) == (100, 24)


def test_a_flagged_model_takes_nobodys_rank_and_stands_last():
    distances = {one.model: one.distances for one in three()}
    plain = rank([], reference={"Linf": pool_of(**distances)}).norms[0]
    best = plain.rows[0].model
    flags = {best: (Flag(Kind.RANDOM, "random"),)}
    table = rank([], reference={"Linf": replace(pool_of(**distances), flags=flags)}).norms[0]
    assert [row.position for row in table.rows] == ["1", "2", "(1)"]
    assert table.rows[-1].model == best
    assert table.rows[-1].flags == flags[best]


def test_a_model_that_was_never_broken_has_no_doi():
    found = evaluation("net").distances
    never = np.where(found > 0, np.inf, 0.0)
    ranking = rank([], reference={"Linf": pool_of(net=found, never=never)})
    row = ranking.norms[0].rows[-1]
    assert (row.model, row.position, row.rank) == ("never", "–", None)
    content = json.loads(json.dumps(ranking.to_dict(), allow_nan=False))["norms"][0]["rows"][-1]
    assert (content["rank"], content["doi"]["estimate"], content["aurec"]) == (None, None, None)


def test_records_are_ranked_on_some_samples_of_a_pool():
    few = evaluation("net", "L2", count=12)
    table = rank([few], reference={"L2": reference_pool("L2")}).norms[0]
    assert len(table.rows) == 4
    assert [row.model for row in table.rows if row.given] == ["net"]
    assert table.samples == 12


def test_mean_is_over_the_norms_all_models_share():
    records = three("L2") + three("Linf") + three("L1")[:2]
    ranking = rank(records)
    assert ranking.shared == ("L2", "Linf")
    assert [table.norm for table in ranking.norms] == ["L1", "L2", "Linf"]
    best = ranking.overall[0]
    dois = [table.row(best.model).doi.estimate for table in ranking.norms[1:]]
    assert best.doi.estimate == pytest.approx(np.mean(dois))
    assert best.doi.low < best.doi.estimate < best.doi.high
    means = [row.doi.estimate for row in ranking.overall]
    assert means == sorted(means, reverse=True)


def test_norms_on_different_samples_have_a_mean_without_an_interval():
    few = [evaluation(name, "L1", count=12) for name in ("net", "A", "B")]
    ranking = rank(three("L2") + few)
    assert all(row.ranks is None and np.isnan(row.doi.low) for row in ranking.overall)
    assert ranking.to_dict()["overall"][0]["doi"]["low"] is None


def test_one_norm_has_no_mean():
    assert rank(three()).overall == ()


def test_equal_models_share_the_better_rank():
    found = evaluation("net").distances
    rows = rank([], reference={"Linf": pool_of(a=found, b=found)}).norms[0].rows
    assert [(row.rank, row.ranks) for row in rows] == [(1, (1, 1)), (1, (1, 1))]


def test_a_pool_alone_can_be_ranked():
    ranking = rank([], reference={norm: reference_pool(norm) for norm in ("L2", "L0")})
    assert [table.norm for table in ranking.norms] == ["L0", "L2"]
    assert len(ranking.overall) == 3
    assert not any(row.given for row in ranking.overall)


def test_all_norms_have_a_table(ranking):
    assert [table.norm for table in ranking.norms] == list(NORMS)
    assert ranking.shared == NORMS


def test_other_attacks_cannot_be_ranked_together():
    one = evaluation("net", "L2")
    own = Ensemble.of("own", "L2", {"ddn": 100})
    other = evaluate(net(), one.images(), one.labels, norm="L2", ensemble=own, name="b")
    with pytest.raises(FrontierError, match="expected the same attacks"):
        rank([one, other])


def test_what_cannot_be_ranked():
    with pytest.raises(FrontierError, match=r"nothing to rank.*advfrontier rank"):
        rank([])
    with pytest.raises(FrontierError, match="net comes more than once in Linf"):
        rank([evaluation("net"), evaluation("net")])
    with pytest.raises(FrontierError, match=r"different samples .*--sample-seed"):
        rank([evaluation("net", "L2"), evaluation("A", "L2", count=12)])
    small = reference_pool().on(reference_pool().samples[:10])
    with pytest.raises(FrontierError, match="14 of 24 samples are not among the 10"):
        rank([evaluation("net")], reference={"Linf": small})
