"""The figures of an evaluation that tables and pages show: each agrees with its room."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from report_records import (
    NORMS,
    RADII,
    alone,
    constant,
    evaluation,
    images_and_labels,
    net,
    reference_pool,
    summary,
)
from torch import nn

from advfrontier import evaluate
from advfrontier.evaluation.summary import summarise, summarise_all, total_counts
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import aurec, robust_accuracy, wilson
from advfrontier.jsonable import jsonable
from advfrontier.pool import Ensemble


@pytest.mark.parametrize("norm", NORMS)
def test_figures_are_those_of_the_frontier_room(norm):
    one, found = evaluation("net", norm), summary("net", norm)
    distances = one.distances
    assert found.clean == wilson(22, 24)
    assert [at.accuracy.estimate for at in found.robust] == [
        robust_accuracy(distances, epsilon) for _, epsilon in RADII[norm]
    ]
    assert reference_end(norm) == found.E
    assert found.aurec.estimate == pytest.approx(aurec(distances, E=found.E).value)
    assert found.median == np.sort(distances)[11]
    assert found.margin == pytest.approx(np.sqrt(np.log(40) / 48))
    assert (found.queries, found.queries_per_sample) == (22 * 100, 100)
    assert found.counts == one.counts
    assert (found.misclassified, found.unbroken, found.broken) == (2, 0, 22)


def reference_end(norm):
    """Return the largest finite distance of the references and the net, sample by sample."""
    pool = reference_pool(norm)
    best = np.max([*pool.distances.values(), evaluation("net", norm).distances], axis=0)
    return float(best[np.isfinite(best)].max())


def test_an_evaluation_alone_has_the_end_of_its_own_curve():
    assert evaluation("net", "L2").distances.max() == alone("net", "L2").E
    assert alone("net", "L2").standing is None


def test_convergence_falls_to_the_reported_area():
    found = summary("net", "L2")
    track = found.by_queries
    assert (track.queries[0], track.queries[-1]) == (10, 100)
    assert track.tiers == (100,)
    assert track.at_tiers() == [track.aurec[-1]]
    assert list(track.aurec) == sorted(track.aurec, reverse=True)
    assert track.aurec[-1] == pytest.approx(found.aurec.estimate)


def test_wins_count_the_broken_samples_most_first():
    found = summary("net", "L1")
    counts = [win.samples for win in found.wins]
    assert sum(counts) == 22
    assert counts == sorted(counts, reverse=True)
    assert sum(win.share for win in found.wins) == pytest.approx(1)


def test_where_no_run_broke_any_sample_nothing_is_known():
    found = summarise(evaluation("safe"), radii=RADII["Linf"])
    assert not found.aurec.known
    assert found.by_queries.queries == ()
    assert (found.median, found.broken, found.unbroken) == (np.inf, 0, 24)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["aurec"]["estimate"] is content["aurec"]["low"] is None
    assert content["median"] == "inf"
    assert content["distances"] == ["inf"] * 24


def test_unbroken_samples_are_flagged_once():
    texts = [str(flag) for flag in alone("safe").flags if flag.kind is Kind.UNBROKEN]
    assert texts == ["24 of 24 samples were never broken"]


def test_standing_counts_the_trusted_models():
    standing = summary("net", "L2").standing
    assert standing.position == f"{standing.row.rank} of 3"  # C was never broken on a sample
    assert [row.model for row in standing.table.rows if row.bracketed] == ["C"]
    assert [row.model for row in standing.table.rows if row.given] == ["net"]
    assert standing.referenced
    low, high = standing.row.ranks
    assert low <= standing.row.rank <= high
    assert standing.row.doi.low < standing.row.doi.estimate < standing.row.doi.high


def test_a_model_in_doubt_stands_in_brackets():
    found = summarise(evaluation("wrong"), radii=(), reference=None)
    assert Kind.CLEAN_ACCURACY in {flag.kind for flag in found.flags}
    pool = replace(reference_pool(), flags={"A": (Flag(Kind.RANDOM, "odd"),)})
    standing = summarise(evaluation("net"), radii=(), reference=pool).standing
    assert {row.model for row in standing.table.rows if row.bracketed} == {"A", "C"}
    assert standing.position == "1 of 2"


def test_other_samples_have_no_standing_and_say_why():
    pool = reference_pool().on(reference_pool().samples[:20])
    found = summarise(evaluation("net"), radii=(), reference=pool)
    assert found.standing is None
    assert "4 of 24 samples are not among the 20 of the reference pool" in found.no_standing


def test_models_shown_together_share_one_end():
    found = summarise_all([evaluation("net", "L2"), evaluation("other", "L2")], radii="0.1")
    best = max(max(one.distances) for one in found)
    assert {one.E for one in found} == {best}
    assert {one.standing.position for one in found} == {"1 of 2", "2 of 2"}
    assert not any(one.standing.referenced for one in found)
    for one in found:
        assert one.aurec.estimate == pytest.approx(np.mean(one.distances))


def test_models_on_other_samples_share_an_end_and_have_no_ranks():
    few = evaluation("other", "L2", count=12)
    found = summarise_all([evaluation("net", "L2"), few], radii="0.1")
    assert len({one.E for one in found}) == 1
    for one in found:
        assert one.standing is None
        assert "different samples" in one.no_standing


def test_gallery_shows_the_same_samples_in_every_norm():
    rows = [[item.row for item in summary("net", norm).gallery] for norm in NORMS]
    assert len(rows[0]) == 2
    assert all(found == rows[0] for found in rows)


def test_gallery_pictures_are_image_point_and_magnified_change():
    one = evaluation("net", "L2")
    for item in summary("net", "L2").gallery:
        image, point = one.images([item.row])[0].double(), one.points([item.row])[0].double()
        change = (point - image).numpy().transpose(1, 2, 0)
        assert item.original.shape == item.difference.shape == (8, 8, 1)
        np.testing.assert_array_equal(item.original[:, :, 0], np.round(255 * image[0].numpy()))
        assert item.magnification == pytest.approx(0.5 / np.abs(change).max())
        magnified = np.round(255 * (0.5 + change * item.magnification)).clip(0, 255)
        assert np.abs(item.difference - magnified).max() <= 1
        assert item.distance == one.distances[item.row]
        assert item.run == one.winners[item.row]
        assert (item.label, item.label_name) == (int(one.labels[item.row]), None)
        assert item.prediction == int(one.predictions[item.row])


def test_samples_that_were_never_broken_have_no_difference():
    item = summarise(evaluation("safe"), radii=(), gallery=1).gallery[0]
    assert (item.magnification, item.run, item.distance) == (0, None, np.inf)
    assert (item.difference == 128).all()


def test_large_pictures_are_reduced():
    images = torch.rand(2, 1, 8, 230, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(8 * 230, 3)).eval()
    with torch.no_grad():
        labels = model(images).argmax(1)
    tiny = Ensemble.of("tiny", "L2", {"fmn": 10})
    one = evaluate(model, images, labels, norm="L2", ensemble=tiny)
    item = summarise_all([one], gallery=1)[0].gallery[0]
    assert item.reduced > 1
    assert item.original.shape == (8 // item.reduced, 230 // item.reduced, 1)


def test_samples_that_are_no_pictures_have_no_gallery():
    images, _ = images_and_labels(3)
    model = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), net()).eval()
    flat = images.flatten(1)
    with torch.no_grad():
        labels = model(flat).argmax(1)
    tiny = Ensemble.of("tiny", "L2", {"fmn": 10})
    assert summarise_all([evaluate(model, flat, labels, norm="L2", ensemble=tiny)])[0].gallery == ()


def test_json_holds_everything_but_pictures_and_reference_curves():
    found = summary("net", "L2")
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert back["schema"] == 3
    assert back["further"] is None
    assert back["robust"][0]["label"] == "0.1"
    assert back["standing"]["row"]["rank"] == found.standing.row.rank
    assert len(back["standing"]["table"]["rows"]) == 4
    assert back["curve"]["epsilons"] == found.curve.epsilons.tolist()
    assert "original" not in back["gallery"][0]
    assert back["gallery"][0]["sample"] == found.gallery[0].sample


def test_jsonable_has_no_infinite_numbers():
    content = {"a": np.float64("nan"), "b": -np.inf, "c": (np.int64(3), 0.5), 4: None}
    assert jsonable(content) == {"a": None, "b": "-inf", "c": [3, 0.5], "4": None}
    assert jsonable([np.array([[1.0, np.inf]])]) == [[[1.0, "inf"]]]
    assert jsonable([Flag(Kind.BATCH, "x")], without=("text",)) == [{"kind": "batch"}]


def test_passes_are_added_up_by_purpose():
    both = [alone("net", "L1"), alone("net", "L2")]
    total = total_counts(both)
    for purpose in total:
        assert total[purpose] == sum(one.counts[purpose] for one in both)


def test_constant_is_never_broken():
    images, _ = images_and_labels()
    low, high = torch.zeros_like(images), torch.ones_like(images)
    assert {int(constant()(x).argmax(1).unique()) for x in (images, low, high)} == {0}
