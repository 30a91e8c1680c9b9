"""Summaries: every figure agrees with the room it comes from, and JSON can hold all of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.records import RADII, SCALES, pool, record

from advfrontier.engine.checks import TRAINING
from advfrontier.evaluation.plain import CurveData, plain
from advfrontier.evaluation.summary import summarise
from advfrontier.frontier import Curve, aurec, robust_accuracy, wilson


@pytest.mark.parametrize("norm", SCALES)
def test_figures_are_those_of_the_frontier_room(norm):
    evaluation = record(norm=norm)
    summary = summarise(evaluation, radii=RADII[norm])
    d = evaluation.distances
    assert summary.clean == wilson(54, 60)
    assert [at.accuracy.estimate for at in summary.robust] == [robust_accuracy(d, ε) for _, ε in RADII[norm]]
    assert all(at.accuracy.low < at.accuracy.estimate < at.accuracy.high for at in summary.robust)
    assert d.max() == summary.E
    assert summary.aurec.estimate == pytest.approx(aurec(d).value)
    assert summary.median == np.sort(d)[29]
    assert summary.margin == pytest.approx(np.sqrt(np.log(40) / 120))
    assert (summary.queries, summary.queries_per_sample) == (54 * 12000, 12000)


def test_curve_data_is_the_curve():
    d = record(unbroken=2).distances
    found = CurveData.of(d)
    for ε in (0.0, 0.01, 0.05, 0.05, 5.0):
        assert found.at(ε) == Curve.of(d).at(ε)


def test_convergence_falls_to_the_reported_area_and_knows_its_tiers():
    found = summarise(record(), radii=RADII["Linf"]).convergence
    assert found.queries[-1] == 12000
    assert found.tiers == (4000, 8000, 12000)
    assert set(found.tiers) <= set(found.queries)
    assert list(found.aurec) == sorted(found.aurec, reverse=True)
    assert found.aurec[-1] == pytest.approx(summarise(record(), radii=()).aurec.estimate)
    assert 24 <= len(found.queries) <= 60
    assert found.settled


def test_an_area_that_still_falls_is_not_settled():
    late = record()
    late.first = np.full(60, 11000)  # the last queries break every sample
    found = summarise(late, radii=()).convergence
    assert not found.settled
    assert found.last_drop > 0.5


def test_wins_count_the_broken_samples_only():
    evaluation = record(unbroken=4)
    summary = summarise(evaluation, radii=())
    assert sum(win.samples for win in summary.wins) == 50
    assert sum(win.share for win in summary.wins) == pytest.approx(1)
    assert [win.samples for win in summary.wins] == sorted((win.samples for win in summary.wins), reverse=True)
    assert (summary.misclassified, summary.unbroken) == (6, 4)


def test_unbroken_samples_are_flagged_once():
    evaluation = record(unbroken=4)
    evaluation.flags = ("4 samples were never broken by any run", "the model is odd")
    assert summarise(evaluation, radii=()).flags == ("the model is odd", "4 of 60 samples were never broken")


def test_standing_counts_the_trusted_models():
    summary = summarise(record(), radii=(), reference=pool())
    standing = summary.standing
    assert standing.position == f"{standing.rank} of 7"  # of F1 … F8 this is F3, and F8 was never broken on 3 samples
    assert [row.model for row in standing.table if row.bracketed] == ["F8"]
    assert [row.model for row in standing.table if row.own] == ["zoo:F3"]
    assert "F3" not in [row.model for row in standing.table]
    assert standing.ranks[0] <= standing.rank <= standing.ranks[1]
    assert standing.doi.low < standing.doi.estimate < standing.doi.high
    assert summary.E == standing.E


def test_a_doubtful_model_stands_in_brackets_but_train_mode_is_no_doubt():
    evaluation = record()
    evaluation.flags = (TRAINING.text,)
    assert not summarise(evaluation, radii=(), reference=pool()).standing.bracketed
    evaluation.flags = ("the model is random: two passes over the same images differ, and so will distances",)
    standing = summarise(evaluation, radii=(), reference=pool()).standing
    assert standing.position == f"({standing.rank}) of 6"


def test_a_record_that_went_further_is_ranked_at_the_pools_tier():
    evaluation = record()
    standing = summarise(evaluation, radii=(), reference=pool(queries=4000)).standing
    assert standing.doi.estimate > summarise(evaluation, radii=(), reference=pool(queries=12000)).standing.doi.estimate
    assert standing.queries == 4000


@pytest.mark.parametrize(
    ("evaluation", "said"),
    [(record(tier="paper-4k"), "extend"), (record(n=61), "1 of 61 samples are not among the 60 of the reference pool")],
)
def test_what_does_not_fit_the_pool_has_no_standing_and_says_why(evaluation, said):
    summary = summarise(evaluation, radii=(), reference=pool())
    assert summary.standing is None
    assert said in summary.no_standing


def test_gallery_shows_the_same_samples_in_every_norm():
    summaries = [summarise(record(norm=norm), radii=(), gallery=5) for norm in SCALES]
    rows = [[item.row for item in summary.gallery] for summary in summaries]
    assert len(rows[0]) == 5
    assert all(found == rows[0] for found in rows)


def test_gallery_pictures():
    evaluation = record(channels=3, unbroken=1)
    evaluation.class_names = tuple("abcdefghij")
    first, *_, last = summarise(evaluation, radii=()).gallery
    assert first.original.shape == first.difference.shape == (12, 12, 3)
    assert first.original.dtype == np.uint8
    change = (evaluation.adversarials - evaluation.originals)[first.row].numpy().transpose(1, 2, 0)
    assert first.magnification == pytest.approx(0.5 / np.abs(change).max())
    assert (first.difference == np.round(255 * (0.5 + change * first.magnification)).clip(0, 255)).mean() > 0.99
    assert {0, 255} & set(np.unique(first.difference).tolist())
    assert (first.label_name, first.prediction_name) == ("g", "h")
    assert last.distance == np.inf
    assert (last.magnification, last.run) == (0, None)
    assert (last.difference == 128).all()


def test_large_pictures_are_reduced_and_keep_the_strongest_change():
    evaluation = record(n=3, wrong=0, side=230)
    evaluation.adversarials = evaluation.originals.clone()
    evaluation.adversarials[:, 0, 101, 57] = 1.0
    item = summarise(evaluation, radii=(), gallery=1).gallery[0]
    assert item.reduced == 3
    assert item.original.shape == (76, 76, 1)
    assert item.difference[33, 19] == 255
    assert (item.difference != 128).sum() == 1


def test_what_is_no_picture_has_no_gallery():
    evaluation = record()
    evaluation.originals = evaluation.originals.flatten(1)
    assert summarise(evaluation, radii=()).gallery == ()


def test_json_holds_everything_but_the_pictures():
    summary = summarise(record(unbroken=40), radii=RADII["Linf"], reference=pool())
    text = json.dumps(summary.to_dict(), allow_nan=False)  # which refuses bare Infinity and NaN
    back = json.loads(text)
    assert back["schema"] == 1
    assert back["median"] == "inf"
    assert back["distances"].count("inf") == 40
    assert back["robust"][0]["label"] == "8/255"
    assert back["standing"]["rank"] == summary.standing.rank
    assert "original" not in back["gallery"][0]
    assert back["gallery"][0]["sample"] == summary.gallery[0].sample


def test_plain_numbers():
    found = plain({"a": np.float64("nan"), "b": -np.inf, "c": (np.int64(3), 0.5), 4: None})
    assert found == {"a": None, "b": "-inf", "c": [3, 0.5], "4": None}
