"""Summaries: every figure agrees with the room it comes from, and JSON can hold all of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.models import conv_problem
from support.records import RADII, SCALES, pool, record

from advfrontier import evaluate
from advfrontier.evaluation.summary import most_wins, summarise, summarise_all, total_counts
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import aurec, robust_accuracy, wilson
from advfrontier.jsonable import jsonable
from advfrontier.pool import find_ensemble
from advfrontier.report.words import headline


@pytest.mark.parametrize("norm", SCALES)
def test_figures_are_those_of_the_frontier_room(norm):
    evaluation = record(norm=norm)
    summary = summarise(evaluation, radii=RADII[norm])
    d = evaluation.distances
    assert summary.clean == wilson(54, 60)
    assert [at.accuracy.estimate for at in summary.robust] == [
        robust_accuracy(d, ε) for _, ε in RADII[norm]
    ]
    assert all(at.accuracy.low < at.accuracy.estimate < at.accuracy.high for at in summary.robust)
    assert d.max() == summary.E
    assert summary.aurec.estimate == pytest.approx(aurec(d).value)
    assert summary.median == np.sort(d)[29]
    assert summary.margin == pytest.approx(np.sqrt(np.log(40) / 120))
    assert (summary.queries, summary.queries_per_sample) == (54 * 12000, 12000)


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
    assert [win.samples for win in summary.wins] == sorted(
        (win.samples for win in summary.wins), reverse=True
    )
    assert (summary.misclassified, summary.unbroken) == (6, 4)


def test_unbroken_samples_are_flagged_once():
    evaluation = record(unbroken=4)
    odd = Flag(Kind.BATCH, "the model is odd")
    evaluation.flags = (Flag(Kind.UNBROKEN, "4 samples were never broken by any run"), odd)
    recounted = Flag(Kind.UNBROKEN, "4 of 60 samples were never broken")
    assert summarise(evaluation, radii=()).flags == (odd, recounted)


@pytest.mark.parametrize("more", [{"unbroken": 60, "wrong": 0}, {"unbroken": 54}, {"wrong": 1.0}])
def test_where_no_run_broke_any_sample_nothing_is_known(more):
    """All samples never broken, all but those misclassified anyway, or all of them misclassified anyway."""
    summary = summarise(record(**more), radii=RADII["Linf"])
    assert not summary.aurec.known
    assert summary.convergence.queries == ()
    assert summary.convergence.settled is None
    content = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert (
        content["aurec"]["estimate"]
        is content["aurec"]["low"]
        is content["convergence"]["settled"]
        is None
    )
    assert content["convergence"]["last_drop"] is None


def test_a_model_that_was_never_broken_has_no_doi_among_others():
    standing = summarise(record(unbroken=54), radii=(), reference=pool()).standing
    assert (standing.position, standing.row.rank) == ("–", None)
    assert not standing.row.doi.known
    assert standing.table.rows[-1].model == "zoo:F3"


def test_standing_counts_the_trusted_models():
    summary = summarise(record(), radii=(), reference=pool())
    standing, row = summary.standing, summary.standing.row
    assert (
        standing.position == f"{row.rank} of 7"
    )  # of F1 … F8 this is F3, and F8 was never broken on 3 samples
    assert [row.model for row in standing.table.rows if row.bracketed] == ["F8"]
    assert [row.model for row in standing.table.rows if row.given] == ["zoo:F3"]
    assert "F3" not in [row.model for row in standing.table.rows]
    assert row.ranks[0] <= row.rank <= row.ranks[1]
    assert row.doi.low < row.doi.estimate < row.doi.high
    assert summary.E == standing.table.E


@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.VERSIONS])
def test_how_a_record_was_made_is_no_doubt(kind):
    evaluation = record()
    evaluation.flags = (Flag(kind, "something about how it was made"),)
    assert not summarise(evaluation, radii=(), reference=pool()).standing.row.bracketed


@pytest.mark.parametrize("kind", [Kind.RANDOM, Kind.CLEAN_ACCURACY, Kind.ZERO_GRADIENTS])
def test_a_doubtful_model_stands_in_brackets(kind):
    evaluation = record()
    evaluation.flags = (Flag(kind, "two passes over the same images differ"),)
    summary = summarise(evaluation, radii=(), reference=pool())
    assert summary.standing.position == f"({summary.standing.row.rank}) of 6"
    assert summary.flags == evaluation.flags


def test_a_record_that_went_further_is_ranked_at_the_pools_tier():
    evaluation = record()
    standing = summarise(evaluation, radii=(), reference=pool(queries=4000)).standing
    late = summarise(evaluation, radii=(), reference=pool(queries=12000)).standing
    assert standing.row.doi.estimate > late.row.doi.estimate
    assert standing.table.queries == 4000


@pytest.mark.parametrize(
    ("evaluation", "said"),
    [
        (record(tier="paper-4k"), "extend"),
        (record(n=61), "1 of 61 samples are not among the 60 of the reference pool"),
    ],
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
    assert (
        first.difference == np.round(255 * (0.5 + change * first.magnification)).clip(0, 255)
    ).mean() > 0.99
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
    assert back["schema"] == 2
    assert back["median"] == "inf"
    assert back["distances"].count("inf") == 40
    assert back["robust"][0]["label"] == "8/255"
    assert back["standing"]["row"]["rank"] == summary.standing.row.rank
    assert len(back["standing"]["table"]["rows"]) == 8
    assert back["curve"]["epsilons"] == summary.curve.epsilons.tolist()
    assert back["flags"] == [{"kind": "unbroken", "text": "40 of 60 samples were never broken"}]
    assert "original" not in back["gallery"][0]
    assert back["gallery"][0]["sample"] == summary.gallery[0].sample


def test_what_json_can_hold():
    found = jsonable(
        {"a": np.float64("nan"), "b": -np.inf, "c": (np.int64(3), 0.5), 4: None, "d": Kind.BATCH}
    )
    assert found == {"a": None, "b": "-inf", "c": [3, 0.5], "4": None, "d": "batch"}
    assert jsonable({"a": np.array([[1.0, np.inf], [np.nan, 2.0]])}) == {
        "a": [[1.0, "inf"], [None, 2.0]]
    }
    assert jsonable([Flag(Kind.BATCH, "x")], without=("text",)) == [{"kind": "batch"}]


def test_passes_and_wins_are_added_up():
    both = [summarise(record(norm=norm), radii=(), gallery=0) for norm in ("L1", "L2")]
    assert total_counts(both)["attack"] == 2 * 54 * 12000
    one = both[0]
    *shown, rest = most_wins(one, 2)
    assert tuple(shown) == one.wins[:2]
    assert rest.run == f"{len(one.wins) - 2} more"
    assert rest.samples == 54 - sum(win.samples for win in shown)
    assert most_wins(one, 99) == one.wins


def test_models_shown_together_share_one_end_and_are_ranked_among_each_other():
    three = [
        record(f"m{k}", norm, seed=k, strength=1.0 + k) for k in range(3) for norm in ("L2", "Linf")
    ]
    found = summarise_all(three, radii="0.1")
    for norm in ("L2", "Linf"):
        group = [summary for summary in found if summary.norm == norm]
        assert {summary.E for summary in group} == {
            max(d for summary in group for d in summary.distances)
        }
        assert [summary.standing.position for summary in group] == ["3 of 3", "2 of 3", "1 of 3"]
        assert not any(summary.standing.referenced for summary in group)
        areas = [summary.aurec.estimate for summary in group]
        assert areas == [pytest.approx(np.mean(summary.distances)) for summary in group]


def test_models_on_other_samples_share_an_end_and_have_no_ranks():
    found = summarise_all([record("a"), record("b", n=50, strength=2.0)], radii="0.1")
    assert len({summary.E for summary in found}) == 1
    assert all(
        summary.standing is None and "different samples" in summary.no_standing for summary in found
    )


def test_models_attacked_by_other_kinds_of_ensembles_have_no_ranks():
    other = record("b", strength=2.0)
    other.ensemble = find_ensemble("greedy-12k", "Linf", 10)
    found = summarise_all([record("a"), other], radii="0.1")
    assert all(
        s.standing is None and "expected the same attacks for all" in s.no_standing for s in found
    )


def test_a_single_checkpoint_says_nothing_about_settling():
    found = summarise(evaluate(*conv_problem(3), norm="L2", ensemble=10), radii=())
    assert found.convergence.queries == (10,)
    assert found.convergence.settled is None


def test_the_headline_names_the_customary_radius():
    found = summarise_all([record(norm="L2"), record()])
    share = 100 * found[1].robust[-1].accuracy.estimate
    assert headline(found).endswith(f"and {share:.1f}\u00a0% by 0.1 in ℓ∞, the customary radii.")
    (asked,) = summarise_all([record()], radii="0.02,0.1,0.2")
    assert headline([asked]).endswith("by 0.1 in ℓ∞, the customary radius.")
    (other,) = summarise_all([record()], radii="0.02")
    assert headline([other]).endswith("by 0.02 in ℓ∞.")
