"""Races, other allocations and parts of the pool in the tables: against what is read off the traces by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advfrontier.bench import attack_tables
from advfrontier.bench.rivals import SEEDS, rivals
from advfrontier.bench.subject import Subject
from advfrontier.frontier import Trajectories, allocate, aoi
from advfrontier.frontier.optimality import excess
from advfrontier.frontier.race import learn_race, race_excess, read_off
from advfrontier.table import Share

RUNS = ("fmn", "fmn:restart1", "fmn:target1", "square_min", "ddn", "alma")
BUDGETS = (1000, 2000)


def traced(seed, *, samples=40):
    """Runs that fall at their own pace; on each sample another ends nearest."""
    rng = np.random.default_rng(seed)
    queries = np.arange(10, 1001, 10)
    ends = rng.lognormal(0, 0.3, samples) * (1 + rng.exponential(0.3, (len(RUNS), samples)))
    pace = rng.uniform(20, 400, (len(RUNS), samples))
    distances = ends[:, None] * (1 + np.exp(-queries[None, :, None] / pace[:, None]))
    distances[:, :, 0] = 0
    return Trajectories(RUNS, queries, distances, tuple(map(str, range(samples))), "L2")


@pytest.fixture(scope="module")
def models():
    return {name: traced(seed) for seed, name in enumerate(("a", "b", "c", "d"))}


@pytest.fixture(scope="module")
def learned(models):
    training = [models["a"], models["b"]]
    ensembles = dict(zip(BUDGETS, allocate(training, budgets=BUDGETS), strict=True))
    return (
        ensembles,
        learn_race(training, total=2000),
        rivals(training, RUNS, budgets=BUDGETS, queries=1000),
    )


@pytest.fixture(scope="module")
def subjects(models, learned):
    ensembles, race, others = learned
    return [
        Subject.of(
            traces,
            ensembles,
            raced={budget: read_off(traces, race).at(budget) for budget in BUDGETS},
            others=others,
            model=name,
            data="x",
            split="train" if name < "c" else "held-out",
        )
        for name, traces in models.items()
    ]


def by_first(table, split):
    return {row[table.columns[0].label]: row for row in table.records() if row["split"] == split}


def test_every_rival_spends_its_budget_and_no_more(learned):
    _, _, others = learned
    assert sum(name.startswith("random") for name in others) == SEEDS
    for name, given in others.items():
        for budget, queries in given.items():
            assert sum(queries.values()) == (1000 if name == "best run" else budget)
            assert all(q % 10 == 0 and 0 < q <= 1000 for q in queries.values())
    assert set(others["uniform"][2000].values()) == {330, 340}
    for name in ("best attack", "random 0"):
        small, large = others[name].values()
        assert name == "best attack" or all(large[run] >= q for run, q in small.items())
    assert others["random 0"] != others["random 1"]


def test_the_best_run_and_attack_are_those_of_the_training_models(models, learned):
    _, _, others = learned
    training = [models["a"], models["b"]]

    def mean(queries):
        return np.mean([aoi(traces.best(queries), traces.frontier()).value for traces in training])

    (best,) = others["best run"][1000]
    assert best == max(RUNS, key=lambda run: mean({run: 1000}))
    alone = {"fmn": {"fmn": 1000, "fmn:restart1": 1000}, **{run: {run: 1000} for run in RUNS[3:]}}
    assert others["best attack"][2000] == alone[max(alone, key=lambda attack: mean(alone[attack]))]


def test_races_are_judged_beside_ensembles(models, learned, subjects):
    _, race, _ = learned
    rows = {
        row["model"]: row
        for row in attack_tables.above(subjects, norm="L2").records()
        if row["model"] != "mean"
    }
    for name, traces in models.items():
        assert rows[name]["race-2k"] == race_excess(traces, race, BUDGETS)[2000]
    table = attack_tables.race_against_greedy(subjects, norm="L2")
    found = by_first(table, "held-out")
    better = [rows[name]["race-2k"] <= rows[name]["greedy-2k"] for name in ("c", "d")]
    assert found["at least as near"]["2k"] == Share(sum(better), 2)
    gains = [rows[name]["greedy-1k"] - rows[name]["race-1k"] for name in ("c", "d")]
    assert found["points of distance nearer"]["1k"].mean == pytest.approx(np.mean(gains))


def test_a_race_that_passes_the_traced_runs_moves_the_frontier(models, learned, subjects):
    ensembles, _, _ = learned
    traces = models["a"]
    polished = {budget: 0.9 * found for budget, found in subjects[0].families["race"].items()}
    nearer = Subject.of(traces, ensembles, raced=polished, model="a", data="x", split="train")
    assert np.array_equal(nearer.frontier, np.minimum(traces.frontier(), polished[2000]))
    assert np.array_equal(nearer.traced, traces.frontier())
    assert nearer.aois["race"][2000].value <= 1
    assert nearer.aois["greedy"][2000].value < subjects[0].aois["greedy"][2000].value


def test_allocations_are_compared_on_each_split(models, learned, subjects):
    ensembles, _, others = learned
    found = by_first(
        attack_tables.allocations(subjects, {"uniform": "equal"}, norm="L2"), "held-out"
    )
    assert list(found) == [
        "greedy",
        "race",
        "uniform",
        "best attack",
        "best run",
        f"random, {SEEDS} draws",
    ]
    apart = [models["c"], models["d"]]

    def means(queries):
        pairs = [(traces.best(queries), traces.frontier()) for traces in apart]
        return np.mean([aoi(*pair).value for pair in pairs]), np.mean(
            [excess(*pair) for pair in pairs]
        )

    for name, queries in (
        ("greedy", ensembles[1000].queries),
        ("uniform", others["uniform"][1000]),
    ):
        assert (found[name]["AOI at 1k"], found[name]["above at 1k"]) == pytest.approx(
            means(queries)
        )
    drawn = [means(others[f"random {seed}"][2000])[0] for seed in range(SEEDS)]
    cell = found[f"random, {SEEDS} draws"]["AOI at 2k"]
    assert (cell.mean, cell.deviation) == pytest.approx((np.mean(drawn), np.std(drawn)))


def test_only_what_all_models_have_is_compared(subjects):
    fewer = replace(
        subjects[3], families={name: dict(own) for name, own in subjects[3].families.items()}
    )
    for name in (
        "uniform",
        "random 3",
    ):  # with fewer classes, a model may lack runs that a larger budget takes
        del fewer.families[name][2000]
    found = by_first(attack_tables.allocations([*subjects[:3], fewer], {}, norm="L2"), "held-out")
    assert found["uniform"]["AOI at 1k"] > 0
    assert found["uniform"]["AOI at 2k"] is None
    assert f"random, {SEEDS - 1} draws" in found


def test_what_is_left_out_raises_the_frontier(models, subjects):
    rows = {row["without"]: row for row in attack_tables.without(subjects, norm="L2").records()}
    assert list(rows) == [
        "restarts", "targets", "restarts and targets", "black-box runs", "fmn", "square_min", "ddn", "alma",
    ]  # fmt: skip
    assert rows["black-box runs"]["rise"] == rows["square_min"]["rise"]
    kept = [run for run in RUNS if not run.startswith("fmn")]
    rises = {
        name: excess(traces.select(runs=kept).frontier(), traces.frontier())
        for name, traces in models.items()
    }
    assert rows["fmn"]["rise"] == pytest.approx(np.mean(list(rises.values())))
    assert rows["fmn"]["model"] == max(rises, key=rises.get)
    assert (
        rows["restarts and targets"]["rise"]
        >= max(rows["restarts"]["rise"], rows["targets"]["rise"])
        > 0
    )


def test_wins_of_all_runs_are_all_samples(subjects):
    rows = attack_tables.contributions(subjects, norm="L2").records()
    assert {row["run"] for row in rows} == set(RUNS)
    assert (
        sum(row["nearest"].count for row in rows) == rows[0]["nearest"].of == 4 * 39
    )  # no two are equal here
    assert all(row["nearest"] == row["alone"] for row in rows)


def test_the_pool_is_counted_by_solver(subjects):
    rows = {row["solver"]: row for row in attack_tables.pool({"L2": subjects}).records()}
    assert (rows["fmn"]["runs in L2"], rows["fmn"]["restarts"], rows["fmn"]["targets"]) == (3, 1, 1)
    assert (rows["square_min"]["uses"], rows["square_min"]["in the paper"]) == ("no gradient", "no")
    assert rows["all"]["runs in L2"] == len(RUNS)
