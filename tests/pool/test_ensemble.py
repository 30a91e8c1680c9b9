"""Ensembles: lists of steps, their prefixes, and their TOML files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ensembles import BLACK_BOX, small_ensemble
from support.examples import EXAMPLES
from support.nesting import contains, obeys_rules

from advfrontier.errors import FrontierError
from advfrontier.pool import (
    Ensemble,
    Fork,
    Raise,
    Refine,
    Run,
    attack_of,
    find_ensemble,
    make_ensemble,
    paper_ensemble,
    tier_label,
    tier_queries,
)
from advfrontier.pool.ensemble import tier_name
from advfrontier.threat.names import NORMS


def ensemble_of(*steps, **fields):
    """Return an ensemble in L2 of steps as a file has them."""
    return make_ensemble(**{"name": "x", "norm": "L2", "steps": steps} | fields)


def raised(run, queries):
    return {"run": run, "queries": queries}


def refined(run, queries, start="best", **options):
    return {"run": run, "queries": queries, "start": start} | options


def forked(gained, otherwise):
    return {"fork": {"gained": gained, "otherwise": otherwise}}


MIXED = (
    raised("fmn", 300),
    raised("ddn:target1", 100),
    forked([refined("fmn", 100)], [refined("pdpgd", 60, "beyond"), refined("ddn", 40)]),
    refined("fmn", 200, "beyond", reach=2.0),
    raised("fmn", 500),
)

# What an ensemble spends


def test_steps_are_of_three_kinds():
    kinds = [type(step) for step in ensemble_of(*MIXED).steps]
    assert kinds == [Raise, Raise, Fork, Refine, Raise]


def test_spans_say_where_every_step_stands_and_what_its_run_had_spent():
    spans = ensemble_of(*MIXED).spans
    assert [(span.begin, span.end, span.reached) for span in spans] == [
        (0, 300, 0),
        (300, 400, 0),
        (400, 500, 0),
        (500, 700, 0),
        (700, 900, 300),
    ]
    assert [span.index for span in spans] == [0, 1, 2, 3, 4]


def test_total_is_the_length_of_the_list_unless_it_is_given():
    assert ensemble_of(*MIXED).total == ensemble_of(*MIXED).longest == 900
    cut = ensemble_of(*MIXED, total=450)
    assert (cut.total, cut.longest) == (450, 900)
    assert ensemble_of().total == 0


@pytest.mark.parametrize(
    ("total", "queries"),
    [
        (
            900,
            {
                "fmn": 500,
                "ddn:target1": 100,
                "pdpgd:refine": 60,
                "ddn:refine": 40,
                "fmn:refine": 200,
            },
        ),
        (
            700,
            {
                "fmn": 300,
                "ddn:target1": 100,
                "pdpgd:refine": 60,
                "ddn:refine": 40,
                "fmn:refine": 200,
            },
        ),
        (480, {"fmn": 300, "ddn:target1": 100, "pdpgd:refine": 60, "ddn:refine": 20}),
        (430, {"fmn": 300, "ddn:target1": 100, "pdpgd:refine": 30}),
        (310, {"fmn": 300, "ddn:target1": 10}),
        (10, {"fmn": 10}),
        (0, {}),
    ],
)
def test_queries_by_run_add_up_to_the_total(total, queries):
    found = ensemble_of(*MIXED, total=total).queries
    assert found == queries
    assert sum(found.values()) == total


def test_names_list_runs_before_refinements_of_the_whole_list():
    ensemble = ensemble_of(*MIXED, total=10)
    assert ensemble.names == (
        "fmn",
        "ddn:target1",
        "fmn:refine",
        "pdpgd:refine",
        "ddn:refine",
    )
    assert ensemble.runs == ("fmn",)
    assert ensemble.attacks == ("ddn", "fmn", "pdpgd")
    assert [attack_of(name) for name in ensemble.names] == ["fmn", "ddn", "fmn", "pdpgd", "ddn"]


def test_steps_between_two_numbers_of_queries():
    ensemble = ensemble_of(*MIXED)
    assert [span.index for span in ensemble.between(0, 900)] == [0, 1, 2, 3, 4]
    assert [span.index for span in ensemble.between(300, 400)] == [1]
    assert [span.index for span in ensemble.between(290, 410)] == [0, 1, 2]
    assert [span.index for span in ensemble.between(400, 400)] == []


def test_tiers_are_the_usual_budgets_below_the_total():
    assert ensemble_of(*MIXED).tiers == (900,)
    whole = paper_ensemble("paper-12k", "L2")
    assert whole.tiers == (4000, 8000, 12000)
    assert whole.at(9000).tiers == (4000, 8000, 9000)


# Prefixes


@EXAMPLES
@given(budgets=st.lists(st.integers(0, 90), min_size=2, max_size=2))
def test_smaller_budget_is_held_by_every_larger_one(budgets):
    small, large = sorted(10 * budget for budget in budgets)
    ensemble = ensemble_of(*MIXED)
    assert ensemble.at(large).holds(ensemble.at(small))
    assert ensemble.at(small).holds(ensemble.at(large)) == (small == large)
    assert ensemble.at(large).at(small) == ensemble.at(small)


@pytest.mark.parametrize(
    "other",
    [
        (raised("fmn", 300), raised("ddn:target2", 100)),
        (raised("fmn", 310),),
        (*MIXED[:2], forked([refined("fmn", 100)], [refined("pdpgd", 100)])),
        (*MIXED[:3], refined("fmn", 200, "beyond", reach=2.5)),
        (*MIXED[:3], refined("fmn", 200, "best")),
    ],
)
def test_other_steps_are_not_held(other):
    assert not ensemble_of(*MIXED).holds(ensemble_of(*other))


def test_raise_cut_in_two_is_held():
    """A run that stops at 200 and goes on to 300 at once is the run to 300."""
    ensemble = ensemble_of(*MIXED)
    assert ensemble.holds(ensemble_of(raised("fmn", 200)))
    assert not ensemble.holds(ensemble_of(raised("fmn", 200), raised("ddn:target1", 50)))


@pytest.mark.parametrize("norm", NORMS)
def test_any_budget_of_a_tier_is_spent_and_nested(norm):
    whole = paper_ensemble("paper-12k", norm)
    smaller = whole.at(10)
    for budget in range(10, 12001, 70):
        ensemble = whole.at(budget)
        assert ensemble.total == budget
        assert contains(ensemble, smaller)
        assert whole.holds(ensemble)
        smaller = ensemble
    assert whole.at(20000) is whole
    assert whole.at(5).total == 0
    assert whole.at(4567).total == 4560


def test_cut_ensemble_forgets_what_was_computed_of_the_whole_one():
    whole = ensemble_of(*MIXED)
    assert (whole.longest, sum(whole.queries.values()), len(whole.runs)) == (900, 900, 2)
    cut = whole.at(310)
    assert cut.queries == {"fmn": 300, "ddn:target1": 10}
    assert cut == ensemble_of(*MIXED, total=310, name="x-310")
    two = ensemble_of(*MIXED, raised("ddn:target2", 100)).for_classes(2)
    assert two.names == whole.names
    assert two.longest == 900


@pytest.mark.parametrize(
    ("name", "queries", "expected"),
    [
        ("12k", 4000, "4k"),
        ("12k", 4500, "4500"),
        ("paper-12k", 8000, "paper-8k"),
        ("my-own", 1000, "my-own-1k"),
        ("mine", 40, "mine-40"),
        ("greedy-4k", 12000, "greedy-12k"),
    ],
)
def test_name_of_another_budget(name, queries, expected):
    assert tier_name(name, queries) == expected


def test_cut_ensemble_has_no_aoi_of_the_whole_one():
    whole = ensemble_of(*MIXED, aoi=0.9, bound=0.95)
    assert (whole.at(900).aoi, whole.at(890).aoi, whole.at(890).bound) == (0.9, None, None)


# Variants


def test_ensemble_of_queries_takes_base_runs_first():
    queries = {"fmn:target2": 100, "fmn:restart1": 200, "fmn:target1": 100, "fmn": 100, "ddn": 0}
    ensemble = Ensemble.of("mine", "l2", queries)
    ensemble.check()
    assert ensemble.norm == "L2"
    assert ensemble.total == 500
    assert ensemble.runs == ("fmn", "fmn:restart1", "fmn:target1", "fmn:target2")
    for budget in range(10, 501, 10):
        assert obeys_rules(ensemble.at(budget).queries)


def test_few_classes_drop_targets_and_keep_refinements():
    ensemble = ensemble_of(*MIXED, raised("ddn:target2", 100))
    assert ensemble.for_classes(3) is ensemble
    two = ensemble.for_classes(2)
    assert (two.total, two.longest) == (900, 900)
    assert "ddn:target2" not in two.names
    assert ensemble.at(400).for_classes(2).total == 400


@pytest.mark.parametrize("norm", NORMS)
def test_without_gradients_one_search_goes_on_from_what_it_has_found(norm):
    search = BLACK_BOX[norm]
    alone = small_ensemble(norm).without_gradients()
    assert alone.runs == (search,)
    assert alone.total == 600
    assert alone.steps[0] == Raise(run=search, queries=1000)
    later = Refine(run=search, queries=1000, start="best")
    assert alone.steps[1:] == (later,) * 11
    assert alone.with_total(2500).queries == {search: 1000, f"{search}:refine": 1500}
    alone.check()
    assert Ensemble.from_toml(alone.to_toml()) == alone


def test_without_gradients_a_refining_ensemble_falls_back_on_the_search_of_its_norm():
    ensemble = ensemble_of(raised("fmn", 300), refined("fmn", 100))
    assert ensemble.without_gradients().runs == ("square_min",)
    assert ensemble.without_gradients().total == 400


def test_without_gradients_a_list_of_gradient_runs_is_nothing():
    assert ensemble_of(raised("fmn", 300), raised("ddn", 300)).without_gradients() is None
    mixed = ensemble_of(raised("fmn", 300), raised("square_min:restart1", 100))
    assert mixed.without_gradients().runs == ("square_min",)


def test_without_gradients_any_budget_is_held_by_a_larger_one():
    whole = find_ensemble("12k", "L2", 10)
    small, large = (whole.at(budget).without_gradients() for budget in (1500, 7000))
    assert (small.total, large.total) == (1500, 7000)
    assert large.holds(small)


def spent_on_searches(ensemble, queries):
    """Return the queries of a budget that go to black-box steps."""
    spent = ensemble.with_total(queries).queries
    return sum(spent[name] for name in spent if name.startswith(tuple(BLACK_BOX.values())))


@pytest.mark.parametrize("norm", NORMS)
def test_larger_search_gets_half_of_every_budget(norm):
    whole = find_ensemble("12k", norm, 10)
    larger = whole.with_larger_search()
    assert larger.total == whole.total
    for budget in (1000, 4000, 8000, 12000):
        assert spent_on_searches(larger, budget) >= 0.4 * budget
        assert larger.holds(whole.at(budget).with_larger_search())
    kept = iter(larger.steps)
    for step in whole.steps:
        if getattr(step, "run", "") != BLACK_BOX[norm]:
            assert step in kept  # in the same order
    larger.check()
    assert larger.with_larger_search() is larger
    assert Ensemble.from_toml(larger.to_toml()) == larger


def test_larger_search_is_no_matter_of_lists_of_runs():
    listed = ensemble_of(raised("fmn", 300), raised("square_min", 100))
    assert listed.with_larger_search() is listed
    assert listed.with_surrogates() is listed


def test_surrogates_give_half_of_every_budget_in_l2_to_apgd():
    whole = find_ensemble("12k", "L2", 10)
    shared = whole.with_surrogates()
    assert shared.total == whole.total
    for budget in (1000, 4000, 8000, 12000):
        spent = shared.with_total(budget).queries
        apgd = sum(spent[run] for run in spent if run.startswith("apgd_min-ce"))
        assert 0.4 * budget <= apgd <= 0.6 * budget
        assert shared.holds(whole.at(budget).with_surrogates())
    shared.check()
    assert shared.with_surrogates() is shared
    assert Ensemble.from_toml(shared.to_toml()) == shared


@pytest.mark.parametrize("norm", ["L0", "L1", "Linf"])
def test_surrogates_change_nothing_in_other_norms(norm):
    whole = find_ensemble("12k", norm, 10)
    assert whole.with_surrogates() is whole


@pytest.mark.parametrize("gradients", ["own", "doubted", "surrogate"])
def test_an_ensemble_goes_by_the_kind_of_gradients(gradients):
    whole = find_ensemble("4k", "L2", 10)
    made = {
        "own": whole,
        "doubted": whole.with_larger_search(),
        "surrogate": whole.with_surrogates(),
    }
    assert whole.for_gradients(gradients) == made[gradients]


def test_larger_search_never_comes_between_a_fork_and_its_step():
    fork = forked([refined("fmn", 100)], [refined("pdgd", 100)])
    ensemble = ensemble_of(raised("fmn", 300), refined("fmn", 100), fork, refined("pdgd", 100))
    larger = ensemble.with_larger_search()
    search = [Raise(run="square_min", queries=queries) for queries in (200, 400)]
    assert larger.steps[:2] == (Raise(run="fmn", queries=200), search[0])
    assert larger.steps[2:6] == (*ensemble.steps[:3], search[1])


# What is refused


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((raised("fmn", 300), raised("fmn", 200)), "fmn goes from 300 to 200 queries"),
        ((raised("fmn", 300), raised("fmn", 300)), "fmn goes from 300 to 300 queries"),
        ((raised("fmn", 1010),), "fmn is raised to 1010 queries: expected at most 1000"),
        ((raised("fmn", 0),), "greater than 0"),
        ((raised("fmn", 15),), "multiple of 10"),
        ((raised("fmn", 100.0),), "valid integer"),
        ((refined("fmn", 1010),), "less than or equal to 1000"),
        ((refined("fmn", 100, "near"),), "'best' or 'beyond'"),
        ((refined("fmn", 100, "beyond", reach=1.0),), "greater than 1"),
        ((refined("fmn", 100, "beyond", reach=101.0),), "less than or equal to 100"),
        ((refined("fmn", 100, "beyond", reach=float("nan")),), "greater than 1|finite"),
        ((forked([refined("fmn", 100)], [refined("fmn", 100)]),), "the first step is a fork"),
        (
            (raised("fmn", 10), forked([refined("fmn", 100)], [refined("fmn", 90)])),
            "a fork spends 100 queries where the step before gained and 90 elsewhere",
        ),
        ((raised("fmn", 10), forked([], [])), "at least 1 item"),
        ((raised("fmn", 10), forked([raised("fmn", 20)], [refined("fmn", 20)])), "has no start"),
    ],
)
def test_wrong_steps_are_refused(steps, message):
    with pytest.raises(FrontierError, match=message):
        ensemble_of(*steps)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"total": 910}, "total = 910, but its steps spend 900 queries"),
        ({"total": 15}, "multiple of 10"),
        ({"norm": "L7"}, "unknown norm 'L7'"),
        ({"aoi": float("inf")}, "finite number"),
        ({"aoi": -0.5}, "greater than or equal to 0"),
        ({"goal": 4000}, "unknown key 'goal'"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(FrontierError, match=message):
        ensemble_of(*MIXED, **fields)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((raised("sigma_zero", 100),), "sigma_zero does not run in L2"),
        ((raised("nothing", 100),), "unknown solver in run nothing"),
        ((raised("fmn:restart6", 100),), "no run fmn:restart6"),
        ((raised("fmn:target4", 100),), "no run fmn:target4 with 4 classes"),
        ((refined("sigma_zero", 100),), "sigma_zero does not run in L2"),
        ((refined("fmn:restart1", 100),), "a refinement by fmn:restart1: expected an attack"),
        ((raised("ddn", 10), forked([refined("ddn", 10)], [refined("pgd", 10)])), "run pgd"),
    ],
)
def test_check_refuses_runs_that_there_are_not(steps, message):
    with pytest.raises(FrontierError, match=message):
        ensemble_of(*steps).check(classes=4)


def test_check_takes_ensembles_that_do_not_obey_the_rules_of_the_allocation():
    ensemble_of(raised("fmn:restart1", 100), raised("fmn:target2", 200)).check()


# Files


def test_file_holds_all_of_it(tmp_path):
    ensemble = ensemble_of(
        *MIXED,
        name="greedy-4k",
        total=450,
        aoi=0.9876543210123456,
        bound=0.99,
        flags=("model 1: 2 of 9 samples were never broken",),
        solvers={"fmn": "alpha=1.0"},
    )
    ensemble.save(tmp_path / "e.toml")
    read = Ensemble.load(tmp_path / "e.toml")
    assert read == ensemble
    assert read.queries == ensemble.queries
    assert find_ensemble(str(tmp_path / "e.toml"), "L2", 10) == ensemble


@pytest.mark.parametrize("norm", NORMS)
def test_file_of_every_kind_of_step_is_read_back_in_every_norm(norm):
    ensemble = small_ensemble(norm)
    assert Ensemble.from_toml(ensemble.to_toml()) == ensemble


@pytest.mark.parametrize("name", ['a"b\\c', "tab\tline\n", "\x00\x1f\x7f\x80", "ℓ₀ 🦊"])
def test_any_name_survives_the_file(name):
    ensemble = Ensemble.of(name, "L2", {"fmn": 100})
    assert Ensemble.from_toml(ensemble.to_toml()) == ensemble


def test_steps_can_be_written_as_tables_by_hand():
    text = """
    name = "mine"
    norm = "linf"
    [[steps]]
    run = "fmn"
    queries = 100
    [[steps]]
    run = "square_min"
    queries = 50
    start = "beyond"
    """
    ensemble = Ensemble.from_toml(text)
    assert (ensemble.norm, ensemble.total) == ("Linf", 150)
    assert ensemble.steps[1] == Refine(run="square_min", queries=50, start="beyond", reach=3.0)


STEP = 'name = "x"\nnorm = "L2"\n[[steps]]\nrun = "fmn"\nqueries = 100\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 1", "has no norm: expected norm = …; `advfrontier allocate` writes such files"),
        ("not toml", "not TOML"),
        (STEP.replace("queries = 100", ""), "has no queries"),
        (STEP.replace("100", "true"), "queries = True: expected it to be a valid integer"),
        (STEP.replace("100", '"100"'), "queries = '100': expected it to be a valid integer"),
        (STEP.replace("100", "nan"), "queries = nan: expected it to be a valid integer"),
        (STEP.replace("100", f"0x{'f' * 5000}"), "queries = a very large int"),
        (STEP.replace('"fmn"', '"FMN!"'), "'FMN!' does not name a run"),
        (STEP.replace('"fmn"', f'"fmn:target{"9" * 5000}"'), "does not name a run"),
        (STEP.replace('"L2"', "2"), "norm = 2: expected it to be a valid string"),
        (f"aoi = inf\n{STEP}", "aoi = inf: expected it to be a finite number"),
        (f"aoi = true\n{STEP}", "aoi = True: expected it to be a valid number"),
        (f'flags = "few"\n{STEP}', "flags = 'few': expected it to be a valid tuple"),
        (f"total = 1e2\n{STEP}", "total = 100.0: expected it to be a valid integer"),
        (f"total = 200\n{STEP}", "total = 200, but its steps spend 100 queries"),
        (
            f"total = 0x{'f' * 5000}\n{STEP}",
            "total = a very large int: expected it to be a multiple",
        ),
        (f"goal = 4000\n{STEP}", "unknown key 'goal': expected one of name, norm"),
        (f"{STEP}pace = 3\n", "unknown key 'pace': expected one of run, queries"),
        (f"steps = 3\n{STEP.partition('[')[0]}", "steps = 3: expected it to be a valid tuple"),
        (
            f"steps = [[]]\n{STEP.partition('[')[0]}",
            r"steps 1 = \[\]: expected it to be a valid dict",
        ),
        (f"name = {'[' * 3000}", "not TOML"),
        (STEP.encode().replace(b"x", b"\xff"), "not TOML"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    Ensemble.from_toml(STEP)
    with pytest.raises(FrontierError, match=message):
        Ensemble.from_toml(text)
    (tmp_path / "e.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FrontierError, match=message):
        find_ensemble(str(tmp_path / "e.toml"), "L2", 10)


def test_file_of_runs_that_there_are_not_is_refused_when_it_is_loaded(tmp_path):
    text = STEP.replace("fmn", "sigma_zero")
    Ensemble.from_toml(text)
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises(FrontierError, match="sigma_zero does not run in L2"):
        Ensemble.load(tmp_path / "e.toml")


def test_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path, "a\0.toml"):
        with pytest.raises(FrontierError, match="cannot be read"):
            Ensemble.load(path)


# Budgets


@pytest.mark.parametrize(
    ("tier", "queries"), [("4k", 4000), ("12K", 12000), ("6500", 6500), (800, 800), (" 8k ", 8000)]
)
def test_budgets_are_read(tier, queries):
    assert tier_queries(tier) == queries


@pytest.mark.parametrize("tier", ["k", "4.5k", "-1", "0", "9" * 5000, "10**5000", "", "4kk"])
def test_other_budgets_are_refused(tier):
    tier = 10**5000 if tier == "10**5000" else tier  # which cannot be written as the test's name
    with pytest.raises(FrontierError, match="not a budget: expected a number of queries such as"):
        tier_queries(tier)


def test_labels_of_budgets():
    assert [tier_label(queries) for queries in (4000, 6500, 12000, 0)] == ["4k", "6500", "12k", "0"]


def test_name_of_a_refinement_is_no_run():
    with pytest.raises(FrontierError, match="'fmn:refine' does not name a run"):
        Run.parse("fmn:refine")
