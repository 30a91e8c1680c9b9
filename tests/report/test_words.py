"""Findings as sentences."""

from __future__ import annotations

from dataclasses import replace

from report_records import all_norms, alone, evaluation, summary

from advfrontier.evaluation.further import Further
from advfrontier.evaluation.summary import Averaged, summarise_all
from advfrontier.flags import Flag, Kind
from advfrontier.frontier.confidence import Interval
from advfrontier.report import words


def test_headline_names_accuracy_radius_and_norm():
    assert words.headline([summary("net", "L2"), summary("net", "Linf")]) == (
        "net classifies 91.7 % of 24 samples correctly, and still 58.3 % when each may be changed "
        "by 0.2 in ℓ₂ and 58.3 % by 8/255 in ℓ∞."
    )


def test_headline_says_which_radius_is_customary():
    found = summary("net", "L2")
    first, last = found.robust
    one = replace(found, robust=(replace(first, customary=True), last))
    assert words.headline([one]).endswith("by 0.1 in ℓ₂, the customary radius.")
    assert words.headline([one, one]).endswith("by 0.1 in ℓ₂, the customary radii.")
    assert words.headline([one, found]).endswith("by 0.2 in ℓ₂.")
    assert words.quoted(one).label == "0.1"
    assert words.quoted(found).label == "0.2"


def test_headline_where_nothing_or_everything_breaks():
    assert words.headline([alone("safe")]) == (
        "safe classifies 100.0 % of 24 samples correctly; no run broke any sample in ℓ∞."
    )
    assert words.headline([alone("wrong")]) == (
        "wrong classifies 0.0 % of 24 samples correctly: there is nothing to attack."
    )


def test_headline_names_the_norm_whose_samples_are_counted():
    few = summarise_all([evaluation("net", "L2", count=6)])[0]
    text = words.headline([few, alone("net", "Linf")])
    assert "of 6 samples correctly (the samples of ℓ₂)" in text


def test_details_order_and_content():
    found = [summary("net", "L2"), summary("net", "Linf")]
    medians, ranks, *further, bound = words.details(found)
    assert medians == (
        "Half of the samples are misclassified within a distance of 0.2290 in ℓ₂ and 0.03650 "
        "(9.31/255) in ℓ∞."
    )
    assert ranks == (
        "By DOI among the reference models of noise it ranks 2 of 3 in ℓ₂ and 2 of 3 in ℓ∞."
    )
    unknown = (
        "distances after 100 queries are first estimates: how much further queries lower them is "
        "not known."
    )
    assert further == [f"In ℓ₂, {unknown}", f"In ℓ∞, {unknown}"]
    assert bound == "Every curve is an upper bound: a stronger attack could only lower it."


def test_details_without_ranks_and_without_medians():
    assert len(words.details([replace(alone(), tier=1000)])) == 2
    assert words.details([alone("safe")])[0] == "In no norm was half of the samples broken."


def expected(low, median, high, *, mean=None):
    """Return an expectation up to 12k queries."""
    area = Interval(median, low, high, level=0.9)
    return Further(12000, area, mean or area, models=9, data="fashion-mnist")


def test_further_queries_of_a_first_look():
    found = replace(alone(), tier=400, further=expected(0.012, 0.034, 0.27))
    assert words.further_text(found) == (
        "distances after 400 queries are first estimates: queries up to 12k are expected to lower "
        "AUREC and the mean distance by 3.4 % (1.2–27 %) (median and 90 % interval of 9 embedded "
        "models on fashion-mnist)"
    )


def test_further_queries_of_a_later_budget():
    mean = Interval(0.02, 0.0, 0.04, level=0.9)
    found = replace(alone(), tier=4000, further=expected(0.0, 0.0015, 0.0099, mean=mean))
    assert words.further_text(found).startswith(
        "queries up to 12k are expected to lower AUREC by 0.15 % (0.00–0.99 %) and the mean "
        "distance by 2.0 % (0.00–4.0 %) ("
    )
    assert words.further_text(replace(found, further=None)) == ""
    assert words.further_text(replace(alone("safe"), tier=400)) == ""  # nothing was broken


def test_expectations_of_one_source_share_a_sentence():
    norms = {"L2": expected(0.012, 0.034, 0.27), "Linf": expected(0.0, 0.02, 0.04)}
    found = [replace(summary("net", n), tier=4000, further=f) for n, f in norms.items()]
    further = words.details(found)[-2]
    assert further == (
        "Queries up to 12k are expected to lower AUREC and the mean distance by 3.4 % (1.2–27 %) "
        "in ℓ₂; AUREC and the mean distance by 2.0 % (0.00–4.0 %) in ℓ∞ (median and 90 % interval "
        "of 9 embedded models on fashion-mnist)."
    )
    longer = replace(found[1], further=replace(norms["Linf"], queries=8000))
    assert len(words.details([found[0], longer])) == len(words.details(found)) + 1


def test_ranks_among_models_shown_together():
    both = summarise_all([evaluation("net"), evaluation("other")], gallery=0)
    sentence = words.details(both[:1])[1]
    assert sentence.startswith("By DOI among the 2 models here it ranks ")
    assert sentence.endswith(" of 2 in ℓ∞.")


def test_a_rank_in_doubt_is_explained():
    found = summary("net", "L2")
    row = replace(found.standing.row, bracketed=True)
    doubted = replace(found, standing=replace(found.standing, row=row))
    sentence = words.details([doubted])[1]
    assert "it ranks (2) of 3 in ℓ₂ (in brackets: its distances cannot be trusted)." in sentence


def test_averaged_text_and_passes():
    eot = replace(alone(), averaged=Averaged(eot=4, passes=1000, lowest=0.5, median=0.9))
    assert words.averaged_text(alone()) == ""
    assert words.averaged_text(eot) == (
        "every query is the mean of 4 passes; of 1,000 fresh passes, 90.0 % misclassify the median "
        "adversarial image and 50.0 % the least sure one"
    )
    unknown = replace(eot, averaged=replace(eot.averaged, median=float("nan")))
    assert words.averaged_text(unknown) == "every query is the mean of 4 passes"
    assert words.passes_text([alone()]) == ""
    assert words.passes_text([alone(), eot]) == ", each the mean of 1 or 4 passes"
    assert words.details([eot])[1].startswith("In ℓ∞ every query is the mean of 4 passes;")


def test_flags_come_once_with_their_norms():
    odd = Flag(Kind.RANDOM, "two passes differ")
    found = [replace(one, flags=(odd,), notes=()) for one in all_norms()]
    found[3] = replace(found[3], flags=(odd,), notes=("few samples differ",))
    assert words.flagged(found) == [
        ("two passes differ", ["ℓ₀", "ℓ₁", "ℓ₂", "ℓ∞"]),
        ("DOI: few samples differ", ["ℓ∞"]),
    ]


def test_sentence_for_a_paper():
    both = [replace(one, versions={"advfrontier": "1.2"}) for one in (alone(), alone("net", "L2"))]
    assert words.sentence(both) == (
        "net was evaluated with advfrontier 1.2 (Scionis et al., “Adversarial Frontiers: "
        "Minimum-Norm Attack Ensembles for Robustness Evaluation”) in ℓ∞ and ℓ₂ on 24 samples of "
        f"{both[0].data}, with ensembles of minimum-norm attacks that spend 100 queries per sample "
        "(seed 42)."
    )
    other = replace(both[0], model="other")
    assert words.sentence([*both, other]).startswith("net and other were evaluated")
    apart = words.sentence([both[0], replace(other, seed=7)]).split("\n")
    assert [line.partition(" was")[0] for line in apart] == ["net", "other"]
    assert apart[1].endswith("(seed 7).")


def test_listed():
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_nothing_is_called_settled():
    text = " ".join([*words.details(all_norms()), words.headline(all_norms())])
    assert "settled" not in text
    assert "converged" not in text
