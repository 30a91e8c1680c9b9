"""The tables, from distances alone: against figures that the paper publishes, and against definitions."""

import numpy as np
import pytest

from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.bench import NormResults, attack_tables, baseline_tables, model_tables
from advfrontier.bench.benchmark import BenchmarkModel
from advfrontier.bench.results import ModelGroup, Results
from advfrontier.bench.subject import Subject, growth_grid
from advfrontier.errors import FrontierError
from advfrontier.flags import Flag, Kind
from advfrontier.frontier import Curve, Trajectories, allocate, aoi, rank_stability
from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi, baseline_radii
from advfrontier.frontier.measure import Measure
from advfrontier.pool import paper_ensemble
from advfrontier.table import Doubted, Share, Strong

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

BUDGETS = (1000, 2000)
LEVELS = (250, 500, 750, 1000)
RUNS = ("fmn", "fmn:restart1", "fmn:target1", "ddn", "alma")

NO_GRADIENT = Flag(Kind.ZERO_GRADIENTS, "the margin has no gradient")
RANDOM = Flag(Kind.RANDOM, "random")


def traced(seed, *, robust=1.0, samples=60):
    """Trajectories of one model; `robust` scales its distances."""
    rng = np.random.default_rng(seed)
    truth = robust * rng.lognormal(0, 0.3, samples)
    ends = truth * (1 + rng.exponential(0.2, (len(RUNS), samples)) * (rng.random((len(RUNS), samples)) < 0.6))
    found = ends[:, None, :] * (1 + 0.5 * (1 - np.array(LEVELS) / 1000))[None, :, None]
    found[:, :, rng.random(samples) < 0.1] = 0
    return Trajectories(RUNS, np.array(LEVELS), found, tuple(f"{i:03}" for i in range(samples)), "L2")


def subject(model, split, tiers, *, known=None, data="d", doubts=(), samples=None):
    """A model known by its distances at each budget alone."""
    rows = {budget: np.asarray(d, dtype=float) for budget, d in tiers.items()}
    last = rows[max(rows)]
    names = samples or tuple(str(i) for i in range(last.size))
    growth = {budget: aoi(d, last).value for budget, d in rows.items()}
    return Subject(model, data, split, names, last, {"greedy": rows}, growth, known=known, doubts=tuple(doubts))


def scored(model, split, baseline, tiers, straight):
    """A model known by its AOIs alone."""
    found = subject(model, split, {tier: [1.0] for tier in tiers})
    vars(found).update(
        aois={"greedy": {tier: Measure(value) for tier, value in tiers.items()}},
        straight_aois={"greedy": straight},
        baseline=BaselineAOI(baseline, baseline, baseline),
    )
    return found


def rows_by(table, *names):
    """The rows of a table by what stands in these columns."""
    return {tuple(row[name] for name in names): row for row in table.records()}


def group_of(subjects, *, radii=None):
    """The models of a data set called d, and its tables."""
    group = NormResults("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}, radii=radii or {}).groups["d"]
    return group, model_tables.tables(group, title="ℓ2")


def pool_of_four():
    traces = {"A": traced(1), "B": traced(2, robust=0.3), "C": traced(3, robust=1.1), "D": traced(4, robust=0.9)}
    splits = {"A": "train", "B": "held-out", "C": "train", "D": "held-out"}
    training = [traces[model] for model in traces if splits[model] == "train"]
    ensembles = dict(zip(BUDGETS, allocate(training, budgets=BUDGETS, levels=LEVELS), strict=True))
    subjects = [Subject.of(traces[model], ensembles, model=model, data="d", split=splits[model]) for model in traces]
    return traces, ensembles, subjects


def test_summary_of_published_aois_is_the_published_one():
    subjects = [
        scored(model, "held-out", aa, {4000: four, 12000: twelve}, {4000: aa, 12000: aa - 1})
        for model, (aa, four, twelve) in PUBLISHED_AOI.items()
    ]
    found = rows_by(baseline_tables.aoi_summary(subjects, norm="L1"), "what")
    mean, matched, by_lines = found["mean",], found["at least AutoAttack",], found["the same by lines",]
    assert (mean["models"], matched["models"]) == (13, 13)
    assert (round(mean["greedy-4k"].mean, 2), round(mean["greedy-4k"].deviation, 2)) == (97.83, 0.53)
    assert (round(mean["greedy-12k"].mean, 2), round(mean["greedy-12k"].deviation, 2)) == (98.94, 0.23)
    assert (matched["greedy-4k"], matched["greedy-12k"]) == (Share(8, 13), Share(13, 13))
    assert (by_lines["greedy-4k"], by_lines["greedy-12k"]) == (Share(13, 13), Share(0, 13))
    for tier in ("4k", "12k"):  # the figures that stand beside are those of the same models
        assert matched[f"published {tier}"] == matched[f"greedy-{tier}"]
        ours, theirs = mean[f"greedy-{tier}"], mean[f"published {tier}"]
        assert (100 * theirs.mean, 100 * theirs.deviation) == pytest.approx((ours.mean, ours.deviation), abs=1e-3)


def test_robust_accuracies_as_published_match_as_published():
    subjects = []
    for model, (aa, ours) in PUBLISHED_ROBUST.items():
        known = KnownPoints((0.5,), (aa / 1000,), (100.0,))
        subjects.append(subject(model, "held-out", {12000: [1.0] * ours + [0.1] * (1000 - ours)}, known=known))
    found = rows_by(baseline_tables.robust_summary(subjects, {"d": (0.5,)}, norm="L2"), "what", "split")
    matched, gained = found["at least as strong", "held-out"], found["points below AutoAttack", "held-out"]
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
    found = [(row["epsilon"], row["split"], row["greedy-10"]) for row in summary if row["what"] == "at least as strong"]
    assert found == [
        ("1", "train", Share(1, 1)), ("1, 3", "held-out", Share(1, 2)), ("1, 3", "all", Share(2, 3)),
        ("2", "train", Share(1, 1)), ("2", "held-out", Share(0, 1)), ("2", "all", Share(1, 2)),
    ]  # fmt: skip


def test_totals_count_pairs_of_model_and_norm():
    # The paper's counts at 12k in robust accuracy: 13, 10 and 5 of 13 held-out models, 29, 20 and 13 of all 30.
    norms = {}
    for norm, (held_out, everyone) in zip(("L1", "L2", "Linf"), ((13, 29), (10, 20), (5, 13)), strict=True):
        norms[norm] = [
            subject(
                f"{split}{k}",
                split,
                {12000: [1.0 if k < matched else 3.0, 4.0]},
                known=KnownPoints((2.0,), (0.5,), (1,)),
            )
            for split, count, matched in (("train", 17, everyone - held_out), ("held-out", 13, held_out))
            for k in range(count)
        ]
        for found in norms[norm]:
            vars(found).update(
                aois={"greedy": {12000: Measure(0.95)}},
                straight_aois={"greedy": {12000: 0.89}},
                baseline=BaselineAOI(0.9, 0.9, 0.9),
            )
    found = rows_by(baseline_tables.totals(norms, {norm: {"d": (2.0, 2.0)} for norm in norms}), "what", "split")
    robust = "at least as strong at the reference radius"
    for column in ("greedy-12k", "published 12k"):
        assert found[robust, "held-out"][column] == Share(28, 39)
        assert found[robust, "all"][column] == Share(62, 90)
    assert found["AOI at least AutoAttack's", "all"]["greedy-12k"] == Share(90, 90)
    assert found["AOI at least AutoAttack's", "held-out"]["published 12k"] == Share(13 + 12 + 10, 39)
    assert found["the same by lines", "all"]["greedy-12k"] == Share(0, 90)


def test_rows_of_the_papers_ensembles_are_its_table():
    tiers = {4000: paper_ensemble("paper-4k", "L2"), 12000: paper_ensemble("paper-12k", "L2")}
    found = rows_by(
        attack_tables.ensembles(tiers, {}, [subject("a", "train", {20: [1.0]})], norm="L2"), "attack", "runs"
    )
    rows = {key: (row["4k"], row["12k"]) for key, row in found.items()}
    assert rows["alma", "base"] == (1000, 1000)
    assert rows["alma", "targets"] == (None, 2000)
    assert rows["pdgd", "restarts"] == (1000, 2600)
    assert sum(row[1] for row in rows.values()) == 12000
    assert [variant for attack, variant in rows if attack == "pdgd"] == ["base", "restarts", "targets"]


def test_tiers_are_prefixes_of_the_traced_runs():
    traces, ensembles, subjects = pool_of_four()
    for found in subjects:
        trajectories = traces[found.model]
        for budget, ensemble in ensembles.items():
            by_hand = np.min(
                [
                    trajectories.distances[RUNS.index(run), LEVELS.index(queries)]
                    for run, queries in ensemble.queries.items()
                ],
                axis=0,
            )
            assert np.array_equal(found.tiers[budget], by_hand)
            assert found.growth[budget] == aoi(by_hand, trajectories.frontier()).value
        values = list(found.growth.values())
        assert values == sorted(values)
        assert tuple(found.growth) == growth_grid(BUDGETS)


def test_tables_of_a_pool():
    _, ensembles, subjects = pool_of_four()
    part = NormResults("L2", subjects, ensembles, radii={"d": [0.5]})
    found = part.tables()
    assert [row["model"] for row in found["aoi"].records()] == ["A", "C", "B", "D"]  # training models first
    spreads = rows_by(found["aoi_summary"], "split")
    for budget, ensemble in ensembles.items():
        assert spreads["train",][f"greedy-{budget // 1000}k"].mean == pytest.approx(ensemble.aoi)
        assert ensemble.aoi <= ensemble.bound
    last = {split: spreads[split,]["greedy-2k"].mean for split in ("train", "held-out")}
    assert spreads["train minus held-out",]["greedy-2k"] == pytest.approx(last["train"] - last["held-out"])
    assert rows_by(found["tiers"], "tier")["greedy-2k",]["aoi of held-out models"] == last["held-out"]
    first = spreads["held-out",]["greedy-1k"].mean
    assert rows_by(found["gains"], "split")["held-out",]["greedy"] == pytest.approx(last["held-out"] - first)
    group = part.groups["d"]
    assert np.array_equal(group.frontier, np.max([s.tiers[BUDGETS[-1]] for s in part.subjects], axis=0))
    tables = model_tables.tables(group, title="ℓ2")
    last = tables["doi"].records()[-1]
    assert last["model"] == "B"
    own = next(subject for subject in part.subjects if subject.model == "B").tiers[BUDGETS[0]]
    expected = np.mean(own) / np.mean(np.max([s.tiers[BUDGETS[0]] for s in part.subjects], axis=0))
    assert last["1k"] == pytest.approx(expected)
    radii = [name for name in tables["ranks_by_2k"].records()[0] if name.startswith("rank at ")]
    assert "rank at 0.5" in radii
    assert len(radii) == 10


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
    assert (found["against"], found["rejected"], found["all it rejects"]) == ("first", "weak", "weak")
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
    assert (pair["ahead at the reference"], pair["overtaken by"], pair["epsilon"]) == ("b", "a", 3.0)
    (count,) = tables["crossings"].records()
    assert (count["pairs"], count["change places"], count["change by more"]) == (1, 1, 0)


def test_models_in_doubt_are_bracketed_and_last_and_a_pool_of_them_has_no_doi():
    fine = subject("fine", "train", {10: [1.0, 2.0], 20: [1.0, 2.0]})
    masked = subject(
        "masked",
        "train",
        {10: [9.0, 9.0], 20: [9.0, 9.0]},
        doubts=[Flag(Kind.ZERO_GRADIENTS, "the margin has no gradient")],
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
    assert (rows["good"]["10"], rows["good"]["20"]) == (1.0, pytest.approx(8 / 12))  # against a frontier per tier
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
        subject("steep", "train", {20: [1.0, 2.0, 3.0, 4.0, 0.0]}, known=at((1.0, 2.0, 3.0), (0.8, 0.3, 0.2))),
        subject("flat", "train", {20: [1.5, 2.5, 3.5, 4.5, 0.0]}, known=at((1.5, 4.0), (0.6, 0.5))),
        subject("gone", "held-out", {20: [0.1, 0.2, 0.3, 0.4, 0.5]}, known=at((0.5, 0.6), (0.1, 0.0))),
        subject("unknown", "held-out", {20: [1.0, 1.0, 1.0, 1.0, 1.0]}),
    ]
    by_lines, by_tier = model_tables.baseline_stability(ModelGroup("L2", "d", tuple(subjects), 1.5))
    assert by_lines.models == ("steep", "flat", "gone")  # nobody asked AutoAttack about the last
    ε = by_lines.epsilons.tolist()
    assert 1.5 in ε
    assert max(ε) == 3.0  # `steep` is not known beyond; `gone` is, because nothing of it is left at 0.6
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


def test_tiers_are_scored_like_autoattack_and_flags_are_kept():
    rng = np.random.default_rng(5)
    frontier = rng.lognormal(0, 0.5, 200)
    frontier[:3] = np.inf
    radii = baseline_radii(frontier)
    found = Curve.of(frontier).at(radii)
    below = np.where(np.arange(9) < 2, found - 0.02, found)
    subjects = [
        subject("on it", "train", {10: frontier * 1.1, 20: frontier}, known=known_at(radii, found)),
        subject("below", "held-out", {10: frontier * 1.1, 20: frontier}, known=known_at(radii, below)),
    ]
    table = baseline_tables.aoi(subjects, norm="L2")
    (on, under), (on_lines, under_lines) = table.records(), baseline_tables.aoi_by_lines(subjects, norm="L2").records()
    # The frontier has an AOI of 1; known at these radii alone it has AutoAttack's, which found the same.
    assert on["greedy-20"] == 1
    assert on_lines["greedy-20"] == on["AutoAttack"].value != 1
    assert on_lines["frontier"] == under_lines["frontier"] == on_lines["greedy-20"]
    assert on_lines["greedy-10"] == baseline_aoi(radii, Curve.of(frontier * 1.1).at(radii), frontier).value
    assert under["AutoAttack"].value > under_lines["greedy-20"]
    everyone = rows_by(baseline_tables.aoi_summary(subjects, norm="L2"), "what", "split")["the same by lines", "all"]
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
    norms = {"L1": NormResults("L1", first, ensembles), "L2": NormResults("L2", second[:1], ensembles)}
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


def test_other_samples_are_refused():
    subjects = [
        subject("a", "train", {20: [1.0, 2.0]}, samples=("x", "y")),
        subject("b", "train", {20: [1.0, 2.0]}, samples=("x", "z")),
    ]
    with pytest.raises(FrontierError, match="different samples"):
        NormResults("L2", subjects, {20: paper_ensemble("paper-4k", "L2")})


def test_paper_ensembles_stand_beside_only_where_all_their_runs_were_traced():
    trajectories = traced(1)
    ensembles = dict(zip(BUDGETS, allocate([trajectories], budgets=BUDGETS, levels=LEVELS), strict=True))
    others = {"paper": {4000: paper_ensemble("paper-4k", "L2").queries}, "mine": {1000: {"fmn": 500, "ddn": 500}}}
    found = Subject.of(trajectories, ensembles, others=others, model="a", data="d", split="train")
    assert list(found.families) == ["greedy", "mine"]


def test_cases_are_the_extremes_of_held_out_models_over_all_norms():
    def model(name, split, ours, aa):
        return scored(name, split, aa, {12000: 1.0}, {12000: ours})

    subjects = {
        "L2": [model("a", "train", 0.99, 0.10), model("b", "held-out", 0.99, 0.95)],
        "Linf": [model("c", "held-out", 0.98, 0.99), model("d", "held-out", 0.97, 0.97)],
    }
    best, worst = baseline_tables.cases(subjects).records()
    assert (best["case"], best["model"], best["norm"], round(best["gain"], 6)) == ("best", "b", "L2", 0.04)
    assert (worst["case"], worst["model"], worst["norm"], round(worst["gain"], 6)) == ("worst", "c", "Linf", -0.01)
    _, ensembles, subjects = pool_of_four()
    assert Results("x", BUDGETS, {"L2": NormResults("L2", subjects, ensembles)}).tables().keys() == {"pool"}
