"""Tables that rank models, from distances alone: DOI, doubts, crossings and early rejection."""

import numpy as np
import pytest
from bench_subjects import rows_by, subject

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench import NormResults, model_tables
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.results import Results
from advfrontier.bench.subject import ModelGroup
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import rank_stability
from advfrontier.pool import paper_ensemble
from advfrontier.table import Doubted

NO_GRADIENT = Flag(Kind.ZERO_GRADIENTS, "the margin has no gradient")
RANDOM = Flag(Kind.RANDOM, "random")


def group_of(subjects, *, radii=None):
    """The models of a data set called d, and its tables."""
    group = NormResults(
        "L2", subjects, {20: paper_ensemble("paper-4k", "L2")}, radii=radii or {}
    ).groups["d"]
    return group, model_tables.tables(group, title="ℓ2")


def test_early_rejection_names_the_strongest_that_is_rejected():
    subjects = [
        subject("weak", "train", {10: [0.9, 1.4, 1.9], 20: [0.5, 1.0, 1.5]}),
        subject("steady", "train", {10: [3.0, 4.0, 5.0], 20: [2.0, 3.0, 4.0]}),
        subject("below steady", "train", {10: [1.9, 2.9, 3.9], 20: [1.7, 2.7, 3.7]}),
        subject("first", "train", {10: [1.8, 2.8, 5.0], 20: [1.8, 2.8, 5.0]}),
    ]
    _, tables = group_of(subjects)
    (found,) = tables["early_rejection"].records()
    assert (found["tier"], found["tier of the other"]) == ("10", "20")
    # `first` has the largest area, and only `weak` lies below it with 10 queries: `below steady` needs 20.
    assert (found["against"], found["rejected"], found["all it rejects"]) == (
        "first",
        "weak",
        "weak",
    )
    assert (found["pairs with one curve below"], found["decided by the smallest tier"]) == (5, 4)
    assert (found["AUREC of the other"], found["AUREC"]) == pytest.approx((9.6 / 3, 4.2 / 3))


def test_nothing_is_rejected_where_curves_cross():
    subjects = [
        subject("a", "train", {10: [1.0, 4.0], 20: [1.0, 4.0]}),
        subject("b", "train", {10: [2.0, 3.0], 20: [2.0, 3.0]}),
    ]
    _, tables = group_of(subjects, radii={"d": [1.5]})
    assert "early_rejection" not in tables
    (pair,) = tables["crossing_pairs"].records()
    assert (pair["ahead at the reference"], pair["overtaken by"], pair["epsilon"]) == (
        "b",
        "a",
        3.0,
    )
    (count,) = tables["crossings"].records()
    assert (count["pairs"], count["change places"], count["change by more"]) == (1, 1, 0)


def test_models_in_doubt_are_bracketed_and_last_and_a_pool_of_them_has_no_doi():
    fine = subject("fine", "train", {10: [1.0, 2.0], 20: [1.0, 2.0]})
    masked = subject(
        "masked",
        "train",
        {10: [9.0, 9.0], 20: [9.0, 9.0]},
        doubts=[NO_GRADIENT],
    )
    group, tables = group_of([masked, fine])
    first, last = tables["doi"].records()
    assert (first["model"], first["rank"], first["20"]) == ("fine", 1, 1.0)
    assert (last["model"], last["rank"]) == ("masked", Doubted(1))
    assert last["20"].value > 1
    assert tables["doi"].notes == ("masked: the margin has no gradient",)
    (steady,) = tables["doi_between_tiers"].records()
    assert (steady["models"], steady["trusted at every tier"]) == (2, 1)
    assert (steady["same order at every tier"], steady["most that a DOI moves"]) == (None, None)
    assert "early_rejection" not in tables  # though `fine` lies below `masked` everywhere
    assert [row["model"] for row in tables["ranks_by_20"].records()] == ["fine"]
    assert any("in doubt: masked" in note for note in group.notes)
    alone, tables = group_of([masked])
    assert "doi" not in tables
    assert any("no DOI" in note for note in alone.notes)


def test_a_model_that_a_small_tier_leaves_unbroken_is_bracketed_there_alone():
    subjects = [
        subject("late", "train", {10: [9.0, 9.0, np.inf], 20: [4.0, 4.0, 4.0]}),
        subject("good", "train", {10: [3.0, 3.0, 2.0], 20: [3.0, 3.0, 2.0]}),
        subject("poor", "held-out", {10: [1.0, 1.0, 2.0], 20: [1.0, 1.0, 1.0]}),
    ]
    group, tables = group_of(subjects)
    rows = {row["model"]: row for row in tables["doi"].records()}
    assert rows["late"]["rank"] == 1
    assert isinstance(rows["late"]["10"], Doubted)
    assert rows["late"]["10"].value > 1  # it is no part of that frontier
    assert rows["late"]["20"] == 1
    assert tables["doi"].notes == ("late: 1 of 3 samples were never broken (at 10)",)
    assert (rows["good"]["10"], rows["good"]["20"]) == (
        1.0,
        pytest.approx(8 / 12),
    )  # against a frontier per tier
    assert group.steady == ("good", "poor")
    # Among themselves `good` is the frontier at both tiers, and `poor` goes from 4/8 to 3/8.
    (found,) = tables["doi_between_tiers"].records()
    assert found["most that a DOI moves"] == pytest.approx(1 / 8)
    assert found["same order at every tier"] == "yes"


def test_a_tier_that_breaks_no_model_wholly_has_no_doi_and_the_others_do():
    group, tables = group_of([subject("a", "train", {10: [1.0, np.inf], 20: [1.0, 2.0]})])
    (row,) = tables["doi"].records()
    assert (row["10"], row["20"]) == (None, 1.0)
    assert any("no DOI with 10 queries" in note for note in group.notes)


def test_ranks_by_autoattack_are_read_off_its_lines_where_every_model_is_known():
    def at(radii, accuracies):
        return KnownPoints(radii, accuracies, (1.0,) * len(radii))

    subjects = [
        subject(
            "steep",
            "train",
            {20: [1.0, 2.0, 3.0, 4.0, 0.0]},
            known=at((1.0, 2.0, 3.0), (0.8, 0.3, 0.2)),
        ),
        subject("flat", "train", {20: [1.5, 2.5, 3.5, 4.5, 0.0]}, known=at((1.5, 4.0), (0.6, 0.5))),
        subject(
            "gone", "held-out", {20: [0.1, 0.2, 0.3, 0.4, 0.5]}, known=at((0.5, 0.6), (0.1, 0.0))
        ),
        subject("unknown", "held-out", {20: [1.0, 1.0, 1.0, 1.0, 1.0]}),
    ]
    by_lines, by_tier = model_tables.baseline_stability(ModelGroup("L2", "d", tuple(subjects), 1.5))
    assert by_lines.models == ("steep", "flat", "gone")  # nobody asked AutoAttack about the last
    ε = by_lines.epsilons.tolist()
    assert 1.5 in ε
    assert (
        max(ε) == 2.5
    )  # between 2 and 3: `steep` is not known beyond; `gone` is, as nothing of it is left at 0.6
    assert by_tier.epsilons.tolist() == ε
    by_hand = {
        "steep": np.interp(ε, [0, 1, 2, 3], [0.8, 0.8, 0.3, 0.2]),
        "flat": np.interp(ε, [0, 1.5, 4], [0.8, 0.6, 0.5]),
        "gone": np.interp(ε, [0, 0.5, 0.6], [1.0, 0.1, 0.0]),
    }
    table = rows_by(model_tables.ranks_by_radius(by_lines, by="AutoAttack"), "model")
    for k, radius in enumerate(ε):
        order = sorted(by_hand, key=lambda model, k=k: -by_hand[model][k])
        assert [table[model,][f"rank at {radius!r}"] for model in order] == [1, 2, 3]
    assert table["steep",]["ranks moved"] == 1
    distances = {s.model: s.tiers[20] for s in subjects[:3]}
    assert by_tier.moved == rank_stability(distances, epsilons=ε).moved
    assert model_tables.baseline_stability(ModelGroup("L2", "d", tuple(subjects[2:]), 1.5)) is None


def test_models_are_listed_with_their_rank_in_every_norm():
    ensembles = {20: paper_ensemble("paper-4k", "L2")}
    first = [
        subject("a", "train", {20: [1.0, 0.0]}),
        subject("b", "held-out", {20: [2.0, 3.0]}, doubts=[RANDOM]),
    ]
    second = [subject("a", "train", {20: [5.0, 0.0]}), subject("b", "held-out", {20: [2.0, 3.0]})]
    models = tuple(
        BenchmarkModel(id=name, source="zoo:F1", data="d", split=split, batch=5, baseline_batch=5)
        for name, split in (("a", "train"), ("b", "held-out"), ("c", "train"))
    )
    norms = {
        "L1": NormResults("L1", first, ensembles),
        "L2": NormResults("L2", second[:1], ensembles),
    }
    found = Results("x", (20,), norms, models).model_tables()["d"].records()
    assert [(row["model"], row["accuracy"], row["rank in L1"], row["rank in L2"]) for row in found] == [
        ("a", 0.5, 1, 1), ("b", 1.0, Doubted(1), None), ("c", None, None, None),
    ]  # fmt: skip


def test_mean_doi_is_over_the_norms_in_which_a_model_is_trusted():
    ensembles = {20: paper_ensemble("paper-4k", "L2")}
    first = [
        subject("a", "train", {20: [1.0, 1.0]}),
        subject("b", "train", {20: [2.0, 3.0]}, doubts=[RANDOM]),
    ]
    second = [subject("a", "train", {20: [1.0, 3.0]}), subject("b", "train", {20: [4.0, 4.0]})]
    norms = {"L1": NormResults("L1", first, ensembles), "L2": NormResults("L2", second, ensembles)}
    assert Results("x", (20,), norms).mean_dois() == {"b": 1.0, "a": 0.75}


def test_models_are_ranked_within_their_data_set_only():
    subjects = [
        subject("a", "train", {10: [1.0, 2.0], 20: [1.0, 2.0]}, data="one"),
        subject("b", "train", {10: [5.0, 6.0, 7.0], 20: [5.0, 6.0, 7.0]}, data="two"),
    ]
    part = NormResults("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}, radii={"one": [1.0]})
    assert part.groups["one"].order == ("a",)
    assert part.groups["two"].reference is None
    assert [row["model"] for row in part.tables()["robust_accuracy"].records()] == ["a"]
