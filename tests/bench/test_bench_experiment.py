"""The tables, from distances alone: against figures that the paper publishes, and against definitions."""

import numpy as np
import pytest

from advfrontier.errors import FrontierError
from advfrontier.evaluation.experiment import (
    KnownPoints,
    ModelFacts,
    Subject,
    experiment,
    norm_experiment,
    reduce_traces,
)
from advfrontier.evaluation.experiment.attacks import (
    AoiRow,
    AttackTables,
    Growth,
    RobustTable,
    aoi_summaries,
    cases,
    ensemble_rows,
    robust_table,
    totals,
)
from advfrontier.evaluation.experiment.defences import baseline_instability
from advfrontier.evaluation.experiment.subject import growth_grid, holds
from advfrontier.frontier import Curve, Trajectories, allocate, aoi, rank_stability
from advfrontier.frontier.baseline import BaselineAOI, baseline_aoi, baseline_radii
from advfrontier.pool import paper_ensemble

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
    return Subject(model, data, split, names, last, rows, {}, growth, known, tuple(doubts))


def pool_of_four():
    traces = {"A": traced(1), "B": traced(2, robust=0.3), "C": traced(3, robust=1.1), "D": traced(4, robust=0.9)}
    splits = {"A": "train", "B": "held-out", "C": "train", "D": "held-out"}
    training = [traces[model] for model in traces if splits[model] == "train"]
    ensembles = dict(zip(BUDGETS, allocate(training, budgets=BUDGETS, levels=LEVELS), strict=True))
    subjects = [reduce_traces(model, "d", splits[model], traces[model], ensembles) for model in traces]
    return traces, ensembles, subjects


def test_summary_of_published_aois_is_the_published_one():
    rows = [
        AoiRow(model, "held-out", BaselineAOI(aa, aa, aa), {4000: four, 12000: twelve}, {}, {4000: aa, 12000: aa - 1})
        for model, (aa, four, twelve) in PUBLISHED_AOI.items()
    ]
    (found,) = aoi_summaries(rows)
    assert (found.models, found.compared) == (13, 13)
    assert (round(found.tiers[4000].mean, 2), round(found.tiers[4000].deviation, 2)) == (97.83, 0.53)
    assert (round(found.tiers[12000].mean, 2), round(found.tiers[12000].deviation, 2)) == (98.94, 0.23)
    assert found.matched == {4000: 8, 12000: 13}
    assert found.matched_straight == {4000: 13, 12000: 0}
    assert found.straight[4000] == found.baseline


def test_robust_accuracies_as_published_match_as_published():
    subjects = []
    for model, (aa, ours) in PUBLISHED_ROBUST.items():
        known = KnownPoints((0.5,), (aa / 1000,), (100.0,))
        subjects.append(subject(model, "held-out", {12000: [1.0] * ours + [0.1] * (1000 - ours)}, known=known))
    (summary,) = robust_table(subjects, {"d": [0.5]}).summaries
    assert (summary.split, summary.compared, summary.matched) == ("held-out", 13, {12000: 13})
    gain = summary.gain[12000]
    assert (round(100 * gain.mean, 1), round(100 * gain.deviation, 1)) == (1.5, 1.6)


def test_models_are_counted_once_at_each_radius():
    def known(at):
        return KnownPoints((*at,), (0.5,) * len(at), (9.0,) * len(at))

    weak, strong = {10: [0.1, 0.1, 0.1, 9.0]}, {10: [9.0, 9.0, 9.0, 0.1]}
    subjects = [
        subject("a", "train", weak, known=known([1.0, 2.0]), data="one"),
        subject("b", "held-out", strong, known=known([1.0, 2.0]), data="one"),
        subject("c", "held-out", weak, known=known([3.0]), data="two"),
    ]
    table = robust_table(subjects, {"one": [1.0, 2.0], "two": [3.0]})
    assert [(row.model, row.place, row.epsilon) for row in table.rows] == [
        ("a", 0, 1.0), ("b", 0, 1.0), ("c", 0, 3.0), ("a", 1, 2.0), ("b", 1, 2.0),
    ]  # fmt: skip
    found = {(s.place, s.split): (s.epsilons, s.compared, s.matched[10]) for s in table.summaries}
    assert found == {
        (0, "train"): ((1.0,), 1, 1),
        (0, "held-out"): ((1.0, 3.0), 2, 1),
        (0, "all"): ((1.0, 3.0), 3, 2),
        (1, "train"): ((2.0,), 1, 1),
        (1, "held-out"): ((2.0,), 1, 0),
        (1, "all"): ((2.0,), 2, 1),
    }


def test_totals_count_pairs_of_model_and_norm():
    # The paper's counts at 12k in robust accuracy: 13, 10 and 5 of 13 held-out models, 29, 20 and 13 of all 30.
    tables = []
    for held_out, everyone in ((13, 29), (10, 20), (5, 13)):
        subjects = [
            subject(
                f"{split}{k}",
                split,
                {12000: [1.0 if k < matched else 3.0, 4.0]},
                known=KnownPoints((2.0,), (0.5,), (1,)),
            )
            for split, count, matched in (("train", 17, everyone - held_out), ("held-out", 13, held_out))
            for k in range(count)
        ]
        rows = [
            AoiRow(s.model, s.split, BaselineAOI(0.9, 0.9, 0.9), {12000: 0.95}, {}, {12000: 0.89}) for s in subjects
        ]
        robust = robust_table(subjects, {"d": [2.0, 2.0]})
        assert isinstance(robust, RobustTable)
        tables.append(AttackTables((), (), tuple(rows), aoi_summaries(rows), robust, Growth((), {}, {})))
    found = {(total.what, total.split): (total.matched[12000], total.compared) for total in totals(tables)}
    assert found["robust", "held-out"] == (28, 39)
    assert found["robust", "all"] == (62, 90)
    assert (found["aoi", "all"], found["straight", "all"]) == ((90, 90), (0, 90))


def test_rows_of_the_papers_ensembles_are_its_table():
    tiers = {4000: paper_ensemble("paper-4k", "L2"), 12000: paper_ensemble("paper-12k", "L2")}
    rows = {(row.attack, row.group): row.queries for row in ensemble_rows(tiers, {})}
    assert rows["alma", ""] == {4000: 1000, 12000: 1000}
    assert rows["alma", "targets"] == {4000: 0, 12000: 2000}
    assert rows["pdgd", "restarts"] == {4000: 1000, 12000: 2600}
    assert sum(row[12000] for row in rows.values()) == 12000
    assert [group for attack, group in rows if attack == "pdgd"] == ["", "restarts", "targets"]


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
    part = norm_experiment("L2", subjects, ensembles, radii={"d": [0.5]})
    assert [row.model for row in part.attacks.aoi] == ["A", "C", "B", "D"]  # training models first
    train = next(summary for summary in part.attacks.aoi_summaries if summary.split == "train")
    for budget, ensemble in ensembles.items():
        assert train.tiers[budget].mean == pytest.approx(ensemble.aoi)
        assert ensemble.aoi <= ensemble.bound
    gap = part.attacks.growth.gap[BUDGETS[-1]]
    held_out = next(summary for summary in part.attacks.aoi_summaries if summary.split == "held-out")
    assert gap == pytest.approx(train.tiers[BUDGETS[-1]].mean - held_out.tiers[BUDGETS[-1]].mean)
    group = part.defences["d"]
    assert np.array_equal(group.frontier, np.max([s.tiers[BUDGETS[-1]] for s in part.subjects], axis=0))
    last = group.tables.doi.rows[-1]
    assert last.model == "B"
    expected = np.mean(part.subject("B").tiers[BUDGETS[0]]) / np.mean(
        np.max([s.tiers[BUDGETS[0]] for s in part.subjects], axis=0)
    )
    assert last.dois[BUDGETS[0]] == pytest.approx(expected)
    assert group.tables.instability.reference in group.tables.instability.epsilons
    assert len(group.tables.instability.epsilons) == 10


def test_early_rejection_names_the_strongest_that_is_rejected():
    subjects = [
        subject("weak", "train", {10: [0.9, 1.4, 1.9], 20: [0.5, 1.0, 1.5]}),
        subject("steady", "train", {10: [3.0, 4.0, 5.0], 20: [2.0, 3.0, 4.0]}),
        subject("below steady", "train", {10: [1.9, 2.9, 3.9], 20: [1.7, 2.7, 3.7]}),
        subject("first", "train", {10: [1.8, 2.8, 5.0], 20: [1.8, 2.8, 5.0]}),
    ]
    found = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}).defences["d"].tables.early_rejection
    assert (found.tier, found.largest) == (10, 20)
    # `first` has the largest area, and only `weak` lies below it with 10 queries: `below steady` needs 20.
    assert (found.reference, found.candidate, found.rejected) == ("first", "weak", ("weak",))
    assert (found.pairs, found.decided) == (5, 4)
    assert found.aurec == pytest.approx((9.6 / 3, 4.2 / 3))


def test_nothing_is_rejected_where_curves_cross():
    subjects = [
        subject("a", "train", {10: [1.0, 4.0], 20: [1.0, 4.0]}),
        subject("b", "train", {10: [2.0, 3.0], 20: [2.0, 3.0]}),
    ]
    tables = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}, radii={"d": [1.5]})
    found = tables.defences["d"].tables
    assert found.early_rejection is None
    (reversal,) = found.crossings.reversals
    assert (reversal.leader, reversal.overtaken_by, reversal.epsilon) == ("b", "a", 3.0)
    assert found.crossings.beyond_margin == 0


def test_models_in_doubt_are_bracketed_and_a_pool_of_them_has_no_doi():
    fine = subject("fine", "train", {10: [1.0, 2.0], 20: [1.0, 2.0]})
    masked = subject("masked", "held-out", {10: [9.0, 9.0], 20: [9.0, 9.0]}, doubts=["the margin has no gradient"])
    ensembles = {20: paper_ensemble("paper-4k", "L2")}
    tables = norm_experiment("L2", [fine, masked], ensembles).defences["d"].tables
    rows = {row.model: row for row in tables.doi.rows}
    assert rows["masked"].positions[20] == "(1)"
    assert rows["fine"].positions[20] == "1"
    assert rows["masked"].flags == dict.fromkeys((10, 20), ("the margin has no gradient",))
    assert tables.doi.steady == ("fine",)
    assert (tables.doi.same_order, tables.doi.moved) == (None, None)
    assert tables.early_rejection is None  # though `fine` lies below `masked` everywhere
    assert list(tables.instability.ranks) == ["fine"]
    assert any("in doubt: masked" in note for note in tables.notes)
    alone = norm_experiment("L2", [masked], ensembles).defences["d"].tables
    assert alone.doi is None
    assert any("no DOI" in note for note in alone.notes)


def test_a_model_that_a_small_tier_leaves_unbroken_is_bracketed_there_alone():
    subjects = [
        subject("late", "train", {10: [9.0, 9.0, np.inf], 20: [4.0, 4.0, 4.0]}),
        subject("good", "train", {10: [3.0, 3.0, 2.0], 20: [3.0, 3.0, 2.0]}),
        subject("poor", "held-out", {10: [1.0, 1.0, 2.0], 20: [1.0, 1.0, 1.0]}),
    ]
    found = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}).defences["d"].tables.doi
    rows = {row.model: row for row in found.rows}
    assert rows["late"].positions == {10: "(1)", 20: "1"}
    assert rows["late"].dois[10] > 1  # it is no part of that frontier
    assert rows["late"].flags == {10: ("1 of 3 samples were never broken",)}
    assert (rows["late"].bracketed(10), rows["late"].bracketed(20)) == (True, False)
    assert rows["good"].dois == {10: 1.0, 20: pytest.approx(8 / 12)}  # against another frontier at each tier
    assert found.steady == ("good", "poor")
    # Among themselves `good` is the frontier at both tiers, and `poor` goes from 4/8 to 3/8.
    assert found.moved == pytest.approx(1 / 8)
    assert found.same_order is True


def test_a_tier_that_breaks_no_model_wholly_has_no_doi_and_the_others_do():
    subjects = [subject("a", "train", {10: [1.0, np.inf], 20: [1.0, 2.0]})]
    tables = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}).defences["d"].tables
    assert tables.doi.rows[0].dois == {20: 1.0}
    assert any("no DOI with 10 queries" in note for note in tables.notes)


def test_ranks_by_autoattack_are_read_off_its_lines_where_every_model_is_known():
    def at(radii, accuracies):
        return KnownPoints(radii, accuracies, (1.0,) * len(radii))

    subjects = [
        subject("steep", "train", {20: [1.0, 2.0, 3.0, 4.0, 0.0]}, known=at((1.0, 2.0, 3.0), (0.8, 0.3, 0.2))),
        subject("flat", "train", {20: [1.5, 2.5, 3.5, 4.5, 0.0]}, known=at((1.5, 4.0), (0.6, 0.5))),
        subject("gone", "held-out", {20: [0.1, 0.2, 0.3, 0.4, 0.5]}, known=at((0.5, 0.6), (0.1, 0.0))),
        subject("unknown", "held-out", {20: [1.0, 1.0, 1.0, 1.0, 1.0]}),
    ]
    found = baseline_instability(subjects, 1.5)
    assert list(found.baseline.ranks) == ["steep", "flat", "gone"]  # nobody asked AutoAttack about the last
    ε = found.baseline.epsilons
    assert 1.5 in ε
    assert max(ε) == 3.0  # `steep` is not known beyond; `gone` is, because nothing of it is left at 0.6
    assert found.tier.epsilons == ε
    by_hand = {
        "steep": np.interp(ε, [0, 1, 2, 3], [0.8, 0.8, 0.3, 0.2]),
        "flat": np.interp(ε, [0, 1.5, 4], [0.8, 0.6, 0.5]),
        "gone": np.interp(ε, [0, 0.5, 0.6], [1.0, 0.1, 0.0]),
    }
    for k in range(len(ε)):
        order = sorted(by_hand, key=lambda model, k=k: -by_hand[model][k])
        assert [found.baseline.ranks[model][k] for model in order] == [1, 2, 3]
    assert found.baseline.moved["steep"] == 1
    distances = {s.model: s.tiers[20] for s in subjects[:3]}
    assert found.tier.moved == rank_stability(distances, epsilons=ε).moved
    assert baseline_instability(subjects[2:], 1.5) is None


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
    tables = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}).attacks
    on, under = tables.aoi
    # The frontier has an AOI of 1; known at these radii alone it has AutoAttack's, which found the same.
    assert on.tiers[20] == 1
    assert on.straight[20] == on.baseline.value != 1
    assert on.ceiling == under.ceiling == on.straight[20]
    assert on.straight[10] == baseline_aoi(radii, Curve.of(frontier * 1.1).at(radii), frontier).value
    assert under.baseline.value > under.straight[20]
    everyone = tables.aoi_summaries[-1]
    assert (everyone.split, everyone.compared, everyone.matched_straight) == ("all", 2, {10: 0, 20: 1})
    assert on.flags == ("3 of 200 samples were never broken",)
    assert under.flags[0] == on.flags[0]
    assert under.flags[1].startswith("AutoAttack: the attack is below the frontier at 2 radii")
    best, worst = experiment("x", (10, 20), {"L2": norm_experiment("L2", subjects, {})}).cases
    assert best == worst  # one held-out model
    assert best.gain == under.straight[20] - under.baseline.value
    assert best.exact == 1 - under.baseline.value


def known_at(radii, accuracies):
    return KnownPoints(tuple(radii.tolist()), tuple(accuracies.tolist()), (1.0,) * len(radii))


def test_models_are_listed_with_their_rank_in_every_norm():
    ensembles = {20: paper_ensemble("paper-4k", "L2")}
    first = [subject("a", "train", {20: [1.0, 0.0]}), subject("b", "held-out", {20: [2.0, 3.0]}, doubts=["random"])]
    second = [subject("a", "train", {20: [5.0, 0.0]}), subject("b", "held-out", {20: [2.0, 3.0]})]
    facts = [ModelFacts(name, "d", split, 5, 5) for name, split in (("a", "train"), ("b", "held-out"), ("c", "train"))]
    norms = {"L1": norm_experiment("L1", first, ensembles), "L2": norm_experiment("L2", second[:1], ensembles)}
    a, b, c = experiment("x", (20,), norms, models=facts).models
    assert (a.clean, b.clean, c.clean) == (0.5, 1.0, None)
    assert a.ranks == {"L1": "1", "L2": "1"}
    assert b.ranks == {"L1": "(1)"}
    assert c.ranks == {}


def test_models_are_ranked_within_their_data_set_only():
    subjects = [
        subject("a", "train", {10: [1.0, 2.0], 20: [1.0, 2.0]}, data="one"),
        subject("b", "train", {10: [5.0, 6.0, 7.0], 20: [5.0, 6.0, 7.0]}, data="two"),
    ]
    part = norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")}, radii={"one": [1.0]})
    assert [row.model for row in part.defences["one"].tables.doi.rows] == ["a"]
    assert part.defences["two"].reference is None
    assert [row.model for row in part.attacks.robust.rows] == ["a"]


def test_other_samples_are_refused():
    subjects = [
        subject("a", "train", {20: [1.0, 2.0]}, samples=("x", "y")),
        subject("b", "train", {20: [1.0, 2.0]}, samples=("x", "z")),
    ]
    with pytest.raises(FrontierError, match="different samples"):
        norm_experiment("L2", subjects, {20: paper_ensemble("paper-4k", "L2")})


def test_paper_ensembles_stand_beside_only_where_all_their_runs_were_traced():
    trajectories = traced(1)
    assert not holds(trajectories, paper_ensemble("paper-4k", "L2"))
    assert subject_of(trajectories).paper == {}


def subject_of(trajectories):
    ensembles = dict(zip(BUDGETS, allocate([trajectories], budgets=BUDGETS, levels=LEVELS), strict=True))
    paper = {4000: paper_ensemble("paper-4k", "L2")}
    return reduce_traces("a", "d", "train", trajectories, ensembles, paper=paper)


def test_cases_are_the_extremes_of_held_out_models_over_all_norms():
    def row(model, split, ours, aa):
        return AoiRow(model, split, BaselineAOI(aa, aa, aa), {12000: 1.0}, {}, {12000: ours})

    tables = {
        "L2": [row("a", "train", 0.99, 0.10), row("b", "held-out", 0.99, 0.95)],
        "Linf": [row("c", "held-out", 0.98, 0.99), row("d", "held-out", 0.97, 0.97)],
    }
    best, worst = cases(tables)
    assert (best.model, best.norm, round(best.gain, 6)) == ("b", "L2", 0.04)
    assert (worst.model, worst.norm, round(worst.gain, 6)) == ("c", "Linf", -0.01)
    _, ensembles, subjects = pool_of_four()
    assert experiment("x", BUDGETS, {"L2": norm_experiment("L2", subjects, ensembles)}).cases is None
