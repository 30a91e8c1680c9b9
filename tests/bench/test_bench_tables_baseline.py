"""Tables beside AutoAttack, from distances alone: against figures that the paper publishes, and against definitions."""

import numpy as np
import pytest
from bench_subjects import BUDGETS, pool_of_four, rows_by, scored, subject

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench import NormResults, baseline_tables
from advfrontier.bench.results import Results
from advfrontier.frontier import Curve
from advfrontier.frontier.optimality import BaselineAOI, baseline_aoi, baseline_radii
from advfrontier.table import Share, Strong

# AOI of the thirteen held-out models in L1, as published: AutoAttack, 4k and 12k.
PUBLISHED_AOI = {
    "C3": (97.54, 97.98, 99.19), "C4": (97.57, 97.83, 99.07), "C6": (97.33, 97.95, 99.00), "C10": (97.53, 96.58, 98.77),
    "C12": (97.76, 97.80, 98.97), "C16": (99.22, 98.52, 99.22), "C18": (98.17, 97.48, 98.78),
    "C19": (97.41, 97.59, 98.90), "I3": (96.26, 97.08, 98.31), "I6": (98.36, 98.40, 99.04), "I8": (98.38, 98.24, 99.04),
    "I9": (97.93, 97.87, 98.83), "I10": (98.31, 98.44, 99.15),
}  # fmt: skip
# Robust accuracy of the same models in L2: AutoAttack and 12k, in promille, so that 1000 samples can have it exactly.
PUBLISHED_ROBUST = {
    "C3": (649, 641), "C4": (709, 701), "C6": (642, 627), "C10": (657, 653), "C12": (673, 667), "C16": (74, 74),
    "C18": (593, 586), "C19": (711, 703), "I3": (203, 155), "I6": (43, 34), "I8": (22, 16), "I9": (316, 274),
    "I10": (314, 275),
}  # fmt: skip


def test_summary_of_published_aois_is_the_published_one():
    subjects = [
        scored(model, "held-out", aa, {4000: four, 12000: twelve}, {4000: aa, 12000: aa - 1})
        for model, (aa, four, twelve) in PUBLISHED_AOI.items()
    ]
    found = rows_by(baseline_tables.aoi_summary(subjects, norm="L1"), "what")
    mean, matched, by_lines = (
        found["mean",],
        found["at least AutoAttack",],
        found["the same by lines",],
    )
    assert (mean["models"], matched["models"]) == (13, 13)
    assert (round(mean["greedy-4k"].mean, 2), round(mean["greedy-4k"].deviation, 2)) == (
        97.83,
        0.53,
    )
    assert (round(mean["greedy-12k"].mean, 2), round(mean["greedy-12k"].deviation, 2)) == (
        98.94,
        0.23,
    )
    assert (matched["greedy-4k"], matched["greedy-12k"]) == (Share(8, 13), Share(13, 13))
    assert (by_lines["greedy-4k"], by_lines["greedy-12k"]) == (Share(13, 13), Share(0, 13))
    for tier in ("4k", "12k"):  # the figures that stand beside are those of the same models
        assert matched[f"published {tier}"] == matched[f"greedy-{tier}"]
        ours, theirs = mean[f"greedy-{tier}"], mean[f"published {tier}"]
        assert (100 * theirs.mean, 100 * theirs.deviation) == pytest.approx(
            (ours.mean, ours.deviation), abs=1e-3
        )


def test_robust_accuracies_as_published_match_as_published():
    subjects = []
    for model, (aa, ours) in PUBLISHED_ROBUST.items():
        known = KnownPoints((0.5,), (aa / 1000,), (100.0,))
        subjects.append(
            subject(model, "held-out", {12000: [1.0] * ours + [0.1] * (1000 - ours)}, known=known)
        )
    found = rows_by(
        baseline_tables.robust_summary(subjects, {"d": (0.5,)}, norm="L2"), "what", "split"
    )
    matched, gained = (
        found["at least as strong", "held-out"],
        found["points below AutoAttack", "held-out"],
    )
    assert matched["greedy-12k"] == matched["published 12k"] == Share(13, 13)
    gain, theirs = gained["greedy-12k"], gained["published 12k"]
    assert (round(100 * gain.mean, 1), round(100 * gain.deviation, 1)) == (1.5, 1.6)
    assert (gain.mean, gain.deviation) == pytest.approx((theirs.mean, theirs.deviation), abs=1e-5)


def test_models_are_counted_once_at_each_radius():
    def known(at):
        return KnownPoints((*at,), (0.5,) * len(at), (9.0,) * len(at))

    weak, strong = {10: [0.1, 0.1, 0.1, 9.0]}, {10: [9.0, 9.0, 9.0, 0.1]}
    subjects = [
        subject("a", "train", weak, known=known([1.0, 2.0]), data="one"),
        subject("b", "held-out", strong, known=known([1.0, 2.0]), data="one"),
        subject("c", "held-out", weak, known=known([3.0]), data="two"),
    ]
    radii = {"one": (1.0, 2.0), "two": (3.0,)}
    table = baseline_tables.robust_accuracy(subjects, radii, norm="L2")
    assert [(row["model"], row["epsilon"]) for row in table.records()] == [
        ("a", 1.0), ("b", 1.0), ("c", 3.0), ("a", 2.0), ("b", 2.0),
    ]  # fmt: skip
    assert [isinstance(row[-1], Strong) for row in table.rows] == [True, False, True, True, False]
    summary = baseline_tables.robust_summary(subjects, radii, norm="L2").records()
    found = [
        (row["epsilon"], row["split"], row["greedy-10"])
        for row in summary
        if row["what"] == "at least as strong"
    ]
    assert found == [
        ("1", "train", Share(1, 1)), ("1, 3", "held-out", Share(1, 2)), ("1, 3", "all", Share(2, 3)),
        ("2", "train", Share(1, 1)), ("2", "held-out", Share(0, 1)), ("2", "all", Share(1, 2)),
    ]  # fmt: skip


def test_all_is_said_only_of_models_of_several_splits_that_autoattack_was_run_on():
    points = KnownPoints((1.0,), (0.5,), (9.0,))
    subjects = [
        subject("a", "train", {10: [0.1, 9.0]}),
        subject("b", "held-out", {10: [0.1, 9.0]}, known=points),
    ]
    radii = {"d": (1.0,)}
    for table in (
        baseline_tables.robust_summary(subjects, radii, norm="L2"),
        baseline_tables.queries(subjects, radii, norm="L2"),
        baseline_tables.totals({"L2": subjects}, {"L2": radii}),
    ):
        assert {row["split"] for row in table.records()} == {"held-out"}
    both = [subject("a", "train", {10: [0.1, 9.0]}, known=points), subjects[1]]
    summed = rows_by(
        baseline_tables.totals({"L2": both, "Linf": subjects}, {"L2": radii, "Linf": radii}),
        "what",
        "split",
    )
    assert summed["AOI at least AutoAttack's", "all"]["greedy-10"].of == 3
    means = rows_by(baseline_tables.aoi_summary(subjects, norm="L2"), "what", "split")
    assert means["mean", "all"]["AutoAttack"] is None
    assert means["mean", "held-out"]["AutoAttack"] is not None


def test_totals_count_pairs_of_model_and_norm():
    # The paper's counts at 12k in robust accuracy: 13, 10 and 5 of 13 held-out models, 29, 20 and 13 of all 30.
    norms = {}
    for norm, (held_out, everyone) in zip(
        ("L1", "L2", "Linf"), ((13, 29), (10, 20), (5, 13)), strict=True
    ):
        norms[norm] = [
            subject(
                f"{split}{k}",
                split,
                {12000: [1.0 if k < matched else 3.0, 4.0]},
                known=KnownPoints((2.0,), (0.5,), (1,)),
            )
            for split, count, matched in (
                ("train", 17, everyone - held_out),
                ("held-out", 13, held_out),
            )
            for k in range(count)
        ]
        for found in norms[norm]:
            vars(found).update(
                aoi=lambda _, *, straight=False: 0.89 if straight else 0.95,
                baseline=BaselineAOI(0.9, 0.9, 0.9),
            )
    found = rows_by(
        baseline_tables.totals(norms, {norm: {"d": (2.0, 2.0)} for norm in norms}), "what", "split"
    )
    robust = "at least as strong at the reference radius"
    for column in ("greedy-12k", "published 12k"):
        assert found[robust, "held-out"][column] == Share(28, 39)
        assert found[robust, "all"][column] == Share(62, 90)
    assert found["AOI at least AutoAttack's", "all"]["greedy-12k"] == Share(90, 90)
    assert found["AOI at least AutoAttack's", "held-out"]["published 12k"] == Share(
        13 + 12 + 10, 39
    )
    assert found["the same by lines", "all"]["greedy-12k"] == Share(0, 90)


def test_tiers_are_scored_like_autoattack_and_flags_are_kept():
    rng = np.random.default_rng(5)
    frontier = rng.lognormal(0, 0.5, 200)
    frontier[:3] = np.inf
    radii = baseline_radii(frontier)
    found = Curve.of(frontier).at(radii)
    below = np.where(np.arange(9) < 2, found - 0.02, found)
    subjects = [
        subject("on it", "train", {10: frontier * 1.1, 20: frontier}, known=known_at(radii, found)),
        subject(
            "below", "held-out", {10: frontier * 1.1, 20: frontier}, known=known_at(radii, below)
        ),
    ]
    table = baseline_tables.aoi(subjects, norm="L2")
    (on, under), (on_lines, under_lines) = (
        table.records(),
        baseline_tables.aoi(subjects, norm="L2", straight=True).records(),
    )
    # The frontier has an AOI of 1; known at these radii alone it has AutoAttack's, which found the same.
    assert on["greedy-20"] == 1
    assert on_lines["greedy-20"] == on["AutoAttack"].value != 1
    assert on_lines["frontier"] == under_lines["frontier"] == on_lines["greedy-20"]
    assert (
        on_lines["greedy-10"]
        == baseline_aoi(radii, Curve.of(frontier * 1.1).at(radii), frontier).value
    )
    assert under["AutoAttack"].value > under_lines["greedy-20"]
    everyone = rows_by(baseline_tables.aoi_summary(subjects, norm="L2"), "what", "split")[
        "the same by lines", "all"
    ]
    assert (everyone["greedy-10"], everyone["greedy-20"]) == (Share(0, 2), Share(1, 2))
    assert table.notes[0] == "on it: 3 of 200 samples were never broken"
    assert table.notes[1].startswith(
        "below: 3 of 200 samples were never broken; AutoAttack: the attack is below the frontier at 2 radii"
    )
    (case,) = baseline_tables.cases({"L2": subjects}).records()  # one held-out model
    assert (case["case"], case["model"], case["norm"]) == ("only", "below", "L2")
    assert case["gain"] == under_lines["greedy-20"] - under["AutoAttack"].value
    assert case["gain by all distances"] == 1 - under["AutoAttack"].value


def known_at(radii, accuracies):
    return KnownPoints(tuple(radii.tolist()), tuple(accuracies.tolist()), (1.0,) * len(radii))


def test_cases_are_the_extremes_of_held_out_models_over_all_norms():
    def model(name, split, ours, aa):
        return scored(name, split, aa, {12000: 1.0}, {12000: ours})

    subjects = {
        "L2": [model("a", "train", 0.99, 0.10), model("b", "held-out", 0.99, 0.95)],
        "Linf": [model("c", "held-out", 0.98, 0.99), model("d", "held-out", 0.97, 0.97)],
    }
    best, worst = baseline_tables.cases(subjects).records()
    assert (best["case"], best["model"], best["norm"], round(best["gain"], 6)) == (
        "best",
        "b",
        "L2",
        0.04,
    )
    assert (worst["case"], worst["model"], worst["norm"], round(worst["gain"], 6)) == (
        "worst",
        "c",
        "Linf",
        -0.01,
    )
    _, ensembles, subjects = pool_of_four()
    assert Results(
        "x", BUDGETS, {"L2": NormResults("L2", subjects, ensembles)}
    ).tables().keys() == {"glance", "pool"}


OTHERS = {"race": 1.01, "paper": 1.5}  # by how much their distances are larger


def test_at_a_glance_held_out_models_are_what_the_larger_tables_say():
    _, ensembles, subjects = pool_of_four()
    for one in subjects:
        greedy = one.families["greedy"]
        one.families.update(
            {name: {b: worse * d for b, d in greedy.items()} for name, worse in OTHERS.items()}
        )
        if one.split == "held-out":
            radii = baseline_radii(one.frontier, reference=0.5)
            object.__setattr__(
                one,
                "known",
                KnownPoints(tuple(radii), (0.6,) * len(radii), tuple(range(len(radii)))),
            )
    results = NormResults("L2", subjects, ensembles, radii={"d": (0.5,)})
    tables, found = (
        results.tables(),
        baseline_tables.glance({"L2": subjects}, {"L2": results.radii}),
    )
    (row,) = found.records()
    assert found.notes[0].startswith("beside AutoAttack: race-1k;")
    above = rows_by(tables["above"], "model", "split")["mean", "held-out"]
    for tier in ("paper-1k", "greedy-1k", "race-1k", "paper-2k"):
        assert row[f"{tier} above"] == pytest.approx(above[tier])
    summary = rows_by(tables["aoi_summary"], "what", "split")
    assert row["AOI at least AutoAttack's"] == summary["at least AutoAttack", "held-out"]["race-1k"]
    assert row["by lines"] == summary["the same by lines", "held-out"]["race-1k"]
    assert row["train minus held-out"] == pytest.approx(
        summary["difference", "train minus held-out"]["race-1k"]
    )
    robust = rows_by(tables["robust_accuracy_summary"], "what", "split")
    assert (
        row["accuracy at most AutoAttack's"] == robust["at least as strong", "held-out"]["race-1k"]
    )
    assert row["AutoAttack queries"] == rows_by(tables["queries"], "split")["held-out",]["mean"]
    assert not baseline_tables.glance(
        {"L2": [one for one in subjects if one.split == "train"]}, {}
    ).rows
    del next(one for one in subjects if one.split == "train").families[
        "race"
    ]  # it failed there, or is not done yet
    found = baseline_tables.glance({"L2": subjects}, {"L2": results.radii})
    assert found.notes[0].startswith("beside AutoAttack: greedy-1k;")
