import json
from pathlib import Path

import pytest
from support.nesting import contains

from advfrontier.errors import FrontierError
from advfrontier.pool import (
    PAPER_TIERS,
    Ensemble,
    Move,
    Run,
    find_ensemble,
    find_larger,
    paper_ensemble,
    tier_queries,
    violations,
)
from advfrontier.pool.paper import published_totals
from advfrontier.threat.names import NORMS

TABLES = Path(__file__).resolve().parents[3] / "shared" / "paper" / "tables.json"


@pytest.mark.parametrize("norm", NORMS)
def test_paper_ensembles_have_their_totals_obey_c_and_nest(norm):
    tiers = [paper_ensemble(name, norm) for name in PAPER_TIERS]
    for ensemble, total in zip(tiers, (4000, 8000, 12000), strict=True):
        assert ensemble.total == total
        ensemble.check(classes=10)
        assert not violations(
            {Run.parse(run): queries for run, queries in ensemble.queries.items()}
        )
        assert tiers[-1].at(total).queries == ensemble.queries
    assert contains(tiers[1], tiers[0])
    assert contains(tiers[2], tiers[1])
    assert not contains(tiers[0], tiers[1])


@pytest.mark.parametrize("norm", NORMS)
def test_paper_ensembles_split_the_published_totals(norm):
    table = published_totals()
    for place, name in enumerate(PAPER_TIERS):
        queries = {Run.parse(run): q for run, q in paper_ensemble(name, norm).queries.items()}
        for attack, groups in table[norm].items():
            for group, variant in (
                ("base", "base"),
                ("restarts", "restart"),
                ("targets", "target"),
            ):
                total = sum(
                    q
                    for run, q in queries.items()
                    if run.attack == attack and run.variant == variant
                )
                assert total == groups.get(group, [0, 0, 0])[place]


@pytest.mark.skipif(not TABLES.exists(), reason="the paper's tables are not on this machine")
def test_published_totals_are_the_papers():
    paper = json.loads(TABLES.read_text())["ensembles"]
    ours = published_totals()
    assert set(paper) == set(NORMS)
    for norm, attacks in paper.items():
        assert set(attacks) == set(ours[norm])
        for attack, groups in attacks.items():
            found = ours[norm][attack]
            assert found["base"] == groups["base"]
            assert found.get("restarts", [0, 0, 0]) == groups["restarts"]
            assert found.get("targets", [0, 0, 0]) == groups["targeted"]


@pytest.mark.parametrize("norm", NORMS)
def test_any_budget_is_spent_and_nested(norm):
    whole = paper_ensemble("paper-12k", norm)
    smaller = whole.at(10)
    for budget in range(10, 12001, 10):
        ensemble = whole.at(budget)
        assert ensemble.total == budget
        assert contains(ensemble, smaller)
        if budget % 500 == 0:
            ensemble.check()
        smaller = ensemble
    assert whole.at(20000) is whole
    assert whole.at(5).total == 0


def test_few_classes_drop_targets_and_the_total_says_so():
    ten, three = paper_ensemble("paper-12k", "L0"), paper_ensemble("paper-12k", "L0", classes=3)
    dropped = {
        run for run in ten.runs if Run.parse(run).variant == "target" and Run.parse(run).index > 2
    }
    assert set(ten.runs) - set(three.runs) == dropped
    assert three.total == 12000 - sum(ten.queries[run] for run in dropped)
    three.check(classes=3)
    with pytest.raises(FrontierError, match="3 classes"):
        ten.check(classes=3)


def test_toml_round_trip(tmp_path):
    ensemble = Ensemble(
        "greedy-4k",
        "l2",
        (
            Move((("fmn", 300),), 4000),
            Move((("ddn:target1", 100), ("ddn:target2", 100)), 4000),
            Move((("fmn", 500),), 8000),
        ),
        aoi=0.9876543210123456,
        bound=0.99,
        flags=("model 1: 2 of 9 samples were never broken",),
    )
    ensemble.save(tmp_path / "e.toml")
    read = Ensemble.load(tmp_path / "e.toml")
    assert read == ensemble
    assert read.queries == {"fmn": 500, "ddn:target1": 100, "ddn:target2": 100}
    assert read.tiers == (4000, 8000)


def test_a_tier_that_left_queries_unspent_comes_back_as_it_was():
    ensemble = Ensemble("x", "L2", (Move((("fmn", 300),), 1000), Move((("ddn", 100),), 2000)))
    assert ensemble.at(1000).queries == {
        "fmn": 300
    }  # ddn would fit, but was given its queries only beyond 1000
    assert ensemble.at(1010) is ensemble  # nothing is left to give beyond
    assert ensemble.at(1000).at(200).queries == {"fmn": 200}


def test_a_cut_move_still_obeys_c():
    pair = Ensemble("x", "L2", (Move((("fmn:target1", 400), ("fmn:target2", 400)), 800),))
    assert pair.at(500).queries == {"fmn:target1": 400, "fmn:target2": 100}
    pair.at(500).check()


def test_ensemble_of_queries_orders_runs_so_that_prefixes_obey_c():
    ensemble = Ensemble.of(
        "mine",
        "L2",
        {"fmn:target2": 100, "fmn:restart1": 200, "fmn:target1": 100, "fmn": 100, "ddn": 0},
    )
    ensemble.check()
    assert ensemble.total == 500
    assert "ddn" not in ensemble.queries


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ({"fmn:restart1": 100}, "needs at least 1"),
        ({"fmn:target1": 100, "fmn:target2": 200}, "needs at least 200"),
        ({"sigma_zero": 100}, "does not run in L2"),
        ({"nothing": 100}, "unknown solver"),
    ],
)
def test_infeasible_ensembles_are_refused(queries, message):
    with pytest.raises(FrontierError, match=message):
        Ensemble.of("x", "L2", queries).check()


def test_raises_that_break_c_on_the_way_are_refused():
    pair = Ensemble("x", "L2", (Move((("fmn:target2", 100), ("fmn:target1", 100)), 200),))
    with pytest.raises(FrontierError, match="fmn:target1 needs at least 100"):
        pair.check()  # cut at 100 queries it would hold target 2 alone


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ((Move((("fmn", 300),), 4000), Move((("fmn", 200),), 4000)), "expected a rise"),
        ((Move((("fmn", 1200),), 4000),), "1000 at most"),
        ((Move((("fmn", 300),), 200),), "reach 300"),
        ((Move((("fmn", 300),), 400), Move((("ddn", 100),), 300)), "rising order"),
    ],
)
def test_wrong_moves_are_refused(moves, message):
    with pytest.raises(FrontierError, match=message):
        Ensemble("x", "L2", moves)


MOVE = 'name = "x"\nnorm = "L2"\n[[moves]]\ntier = 100\nraises = { fmn = 100 }\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name = 1",
            "ensemble: has no norm: expected norm = …; `advfrontier allocate` writes such files",
        ),
        ("not toml", "ensemble: not TOML"),
        (MOVE.replace("raises = { fmn = 100 }", ""), "moves 1: has no raises"),
        (
            MOVE.replace("100 }", "true }"),
            "moves 1.raises.fmn = True: expected it to be a valid integer",
        ),
        (MOVE.replace("100 }", '"100" }'), "raises.fmn = '100': expected it to be a valid integer"),
        (MOVE.replace("100 }", "nan }"), "raises.fmn = nan: expected it to be a valid integer"),
        (
            MOVE.replace("{ fmn = 100 }", "{}"),
            "moves 1.raises = ..: expected it to have at least 1 item",
        ),
        (
            MOVE.replace("{ fmn = 100 }", "[]"),
            "moves 1.raises = ..: expected it to be a valid dict",
        ),
        (MOVE.replace("{ fmn", '{ "FMN!"'), "'FMN!' does not name a run"),
        (MOVE.replace("fmn =", f'"fmn:target{"9" * 5000}" ='), "does not name a run"),
        (MOVE.replace("100 }", f"0x{'f' * 5000} }}"), "raises.fmn = a very large int"),
        (MOVE.replace('"L2"', "2"), "norm = 2: expected it to be a valid string"),
        (f"aoi = inf\n{MOVE}", "aoi = inf: expected it to be a finite number"),
        (f"aoi = true\n{MOVE}", "aoi = True: expected it to be a valid number"),
        (f'flags = "few"\n{MOVE}', "flags = 'few': expected it to be a valid tuple"),
        (f"total = 1e2\n{MOVE}", "total = 100.0: expected it to be a valid integer"),
        (f"goal = 4000\n{MOVE}", "unknown key 'goal': expected one of name, norm"),
        (f"moves = 3\n{MOVE.partition('[')[0]}", "moves = 3: expected it to be a valid tuple"),
        (f"name = {'[' * 3000}", "not TOML"),
        (MOVE.encode().replace(b"x", b"\xff"), "not TOML"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    Ensemble.from_toml(MOVE)
    with pytest.raises(FrontierError, match=message):
        Ensemble.from_toml(text)
    (tmp_path / "e.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FrontierError, match=message.removeprefix("ensemble")):
        find_ensemble(str(tmp_path / "e.toml"), "L2", 10)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path, "a\0.toml"):
        with pytest.raises(FrontierError, match="cannot be read"):
            Ensemble.load(path)


def test_any_name_survives_the_file():
    for name in ('a"b\\c', "tab\tline\n", "\x00\x1f\x7f\x80", "ℓ₀ 🦊"):
        ensemble = Ensemble.of(name, "L2", {"fmn": 100})
        assert Ensemble.from_toml(ensemble.to_toml()) == ensemble


def test_a_total_that_does_not_add_up_is_refused():
    text = Ensemble.of("x", "L2", {"fmn": 100}).to_toml().replace("total = 100", "total = 200")
    with pytest.raises(FrontierError, match="says total = 200"):
        Ensemble.from_toml(text)


def test_tiers_by_name():
    assert [tier_queries(t) for t in ("4k", "12K", "6500", 800)] == [4000, 12000, 6500, 800]
    for wrong in ("k", "4.5k", "-1", "0", "9" * 5000, 10**5000):
        with pytest.raises(FrontierError, match="not a budget"):
            tier_queries(wrong)
    with pytest.raises(FrontierError, match="paper-4k"):
        paper_ensemble("paper-5k", "L2")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "ensemble runs has no runs: expected at least one"),
        (Ensemble("none", "L2", ()), "ensemble none has no runs: expected at least one"),
        ("fmn@5", "^5 queries are too few to run anything: expected at least 10"),
        ("race-4k@5", "^5 queries are too few to run anything: expected at least 10"),
        (["fmn", None], "'None' does not name a run"),
        ("-5", "^'-5' is not a budget: expected a number of queries such as 4k"),
    ],
)
def test_what_cannot_be_run_is_named(asked, message):
    with pytest.raises(FrontierError, match=message):
        find_ensemble(asked, "L2", 10)


def test_runs_and_budgets_in_other_spellings_are_found():
    assert find_ensemble([Run("fmn")], "L2", 10) == find_ensemble("fmn", "L2", 10)
    assert find_ensemble(" Greedy-4k ", "L2", 10) == find_ensemble("greedy-4k", "L2", 10)


def test_runs_in_turns_take_a_budget_that_reaches_all_of_them_and_that_they_can_spend():
    assert find_ensemble("fmn,ddn,alma@210", "L2", 10).queries == {
        "fmn": 100,
        "ddn": 100,
        "alma": 10,
    }
    with pytest.raises(
        FrontierError,
        match=r"150 queries per sample do not reach all of fmn,ddn,alma.* at least 210",
    ):
        find_ensemble("fmn,ddn,alma@150", "L2", 10)
    with pytest.raises(
        FrontierError, match="5000 queries per sample are more than the 1000 that fmn can spend"
    ):
        find_ensemble("fmn@5000", "L2", 10)


def test_a_file_may_lie_anywhere(tmp_path):
    place = tmp_path / "me@host"
    place.mkdir()
    Ensemble.of("mine", "L2", {"fmn": 40, "ddn": 20}).save(place / "e.toml")
    assert find_ensemble(str(place / "e.toml"), "L2", 10).total == 60
    assert find_ensemble(f"{place / 'e.toml'}@40", "L2", 10).total == 40


@pytest.mark.parametrize("classes", [2, 5, 10])
@pytest.mark.parametrize("kind", ["greedy", "paper"])
def test_any_budget_of_few_classes_is_the_same_by_both_names_and_goes_on(kind, classes):
    for budget in range(500, 12_000, 500):
        part = find_ensemble(f"{kind}-{budget}", "L2", classes)
        assert part.queries == find_ensemble(f"{kind}-12k", "L2", classes).at(budget).queries
        assert contains(find_larger("12k", part, classes), part)


def test_a_total_of_thousands_of_digits_is_one_message():
    text = (
        Ensemble.of("small", "L2", {"fmn": 20})
        .to_toml()
        .replace("total = 20", f"total = 0x{'f' * 5000}")
    )
    with pytest.raises(
        FrontierError, match="total = a very large int: expected it to be less than 2147483648"
    ):
        Ensemble.from_toml(text)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("rase-4k", "race-4k"),
        ("greedi-2500", "greedy-2500"),
        ("blackbox", "black-box"),
        ("fmn,amla:target1", "alma:target1"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_and_with_all_kinds(asked, meant):
    with pytest.raises(FrontierError, match="no such ensemble or run") as error:
        find_ensemble(asked, "L2", 10)
    assert f"(did you mean {meant}?)" in str(error.value)
    assert "a kind (race, greedy, paper) with a tier (4k, 8k, 12k) as in race-4k" in str(
        error.value
    )


def test_a_name_like_no_other_is_not_guessed():
    with pytest.raises(FrontierError, match="xyz: no such ensemble or run: expected"):
        find_ensemble("xyz", "L2", 10)


def test_capital_letters_are_no_other_kind():
    assert find_ensemble("Race-4K", "L2", 10) == find_ensemble("4k", "L2", 10)
