"""Tables of a pool and its tiers, from distances alone: against the paper's and against definitions."""

import numpy as np
import pytest
from bench_subjects import BUDGETS, LEVELS, RUNS, pool_of_four, rows_by, subject, traced

from advfrontier.bench import NormResults, attack_tables, model_tables
from advfrontier.bench.subject import Subject, growth_grid
from advfrontier.errors import FrontierError
from advfrontier.frontier import allocate, aoi
from advfrontier.pool import paper_ensemble


def test_rows_of_the_papers_ensembles_are_its_table():
    tiers = {4000: paper_ensemble("paper-4k", "L2"), 12000: paper_ensemble("paper-12k", "L2")}
    found = rows_by(
        attack_tables.ensembles(tiers, {}, [subject("a", "train", {20: [1.0]})], norm="L2"),
        "attack",
        "runs",
    )
    rows = {key: (row["4k"], row["12k"]) for key, row in found.items()}
    assert rows["alma", "base"] == (1000, 1000)
    assert rows["alma", "targets"] == (None, 2000)
    assert rows["pdgd", "restarts"] == (1000, 2600)
    assert sum(row[1] for row in rows.values()) == 12000
    assert [variant for attack, variant in rows if attack == "pdgd"] == [
        "base",
        "restarts",
        "targets",
    ]


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
    assert [row["model"] for row in found["aoi"].records()] == [
        "A",
        "C",
        "B",
        "D",
    ]  # training models first
    spreads = rows_by(found["aoi_summary"], "split")
    for budget, ensemble in ensembles.items():
        assert spreads["train",][f"greedy-{budget // 1000}k"].mean == pytest.approx(ensemble.aoi)
        assert ensemble.aoi <= ensemble.bound
    last = {split: spreads[split,]["greedy-2k"].mean for split in ("train", "held-out")}
    assert spreads["train minus held-out",]["greedy-2k"] == pytest.approx(
        last["train"] - last["held-out"]
    )
    assert (
        rows_by(found["tiers"], "tier")["greedy-2k",]["aoi of held-out models"] == last["held-out"]
    )
    first = spreads["held-out",]["greedy-1k"].mean
    assert rows_by(found["gains"], "split")["held-out",]["greedy"] == pytest.approx(
        last["held-out"] - first
    )
    group = part.groups["d"]
    assert np.array_equal(
        group.frontier, np.max([s.tiers[BUDGETS[-1]] for s in part.subjects], axis=0)
    )
    tables = model_tables.tables(group, title="ℓ2")
    last = tables["doi"].records()[-1]
    assert last["model"] == "B"
    own = next(subject for subject in part.subjects if subject.model == "B").tiers[BUDGETS[0]]
    expected = np.mean(own) / np.mean(np.max([s.tiers[BUDGETS[0]] for s in part.subjects], axis=0))
    assert last["1k"] == pytest.approx(expected)
    radii = [name for name in tables["ranks_by_2k"].records()[0] if name.startswith("rank at ")]
    assert "rank at 0.5" in radii
    assert len(radii) == 10


def test_other_samples_are_refused():
    subjects = [
        subject("a", "train", {20: [1.0, 2.0]}, samples=("x", "y")),
        subject("b", "train", {20: [1.0, 2.0]}, samples=("x", "z")),
    ]
    with pytest.raises(FrontierError, match="different samples"):
        NormResults("L2", subjects, {20: paper_ensemble("paper-4k", "L2")})


def test_paper_ensembles_stand_beside_only_where_all_their_runs_were_traced():
    trajectories = traced(1)
    ensembles = dict(
        zip(BUDGETS, allocate([trajectories], budgets=BUDGETS, levels=LEVELS), strict=True)
    )
    others = {
        "paper": {4000: paper_ensemble("paper-4k", "L2").queries},
        "mine": {1000: {"fmn": 500, "ddn": 500}},
    }
    found = Subject.of(trajectories, ensembles, others=others, model="a", data="d", split="train")
    assert list(found.families) == ["greedy", "mine"]
