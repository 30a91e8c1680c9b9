"""What is learned carries its solvers' settings, and is not mixed with others."""

from dataclasses import replace

import pytest
from support.models import conv_net, samples
from support.races import constants

from advfrontier import Ensemble, Evaluation, FrontierError, Machine, compare, evaluate, rank, trace
from advfrontier.bench.allocation import allocate_traces, learn_from
from advfrontier.evaluation.trace import evaluation_aoi
from advfrontier.frontier.allocation import allocate
from advfrontier.frontier.race import learn_race
from advfrontier.pool import Race
from advfrontier.record import Record
from advfrontier.record.identity import settings, solver_words, solvers_of
from advfrontier.solvers import PUBLISHED, Fmn

OPTIONS = {"norm": "L2", "batch_size": 8, "machine": Machine(threads=1)}
FMN = "alpha=1.0, strict=True, plain_step=True"


@pytest.fixture(scope="module")
def problem():
    model = conv_net(seed=1)
    return model, *samples(model, 6, (1, 8, 8), seed=4)


@pytest.fixture(scope="module")
def traced(problem, tmp_path_factory):
    """The same runs with the published solvers and with the attacks' own."""
    folder = tmp_path_factory.mktemp("traced")
    for name, solvers in (("published", PUBLISHED), ("own", None), ("more", PUBLISHED)):
        trace(*problem, runs=["fmn", "ddn"], solvers=solvers, out=folder / name / "L2", **OPTIONS)
    return {
        name: Record.open(folder / name / "L2", "trace") for name in ("published", "own", "more")
    }


def test_settings_are_what_differs_from_the_attacks_own():
    told = solvers_of(["fmn", "ddn"], {"fmn": Fmn(alpha=2.0)})
    assert settings(told) == {"fmn": "alpha=2.0"}
    assert settings({"fmn": "Fmn(gamma=0.05)"}) == {}  # others came later
    assert settings({"fmn": "Fmn(gamma=float('inf'))"}) == {"fmn": "gamma=float('inf')"}
    assert settings({"fmn": "Other(gamma=0.05)"}) == {"fmn": "Other(gamma=0.05)"}
    assert settings({"fmn": "Fmn(", "race": "0123"}) == {"fmn": "Fmn("}
    assert settings({"not_here": "Mine(a=1)"}) == {"not_here": "Mine(a=1)"}


def test_ensembles_and_races_carry_them_through_their_files(traced, tmp_path):
    (made,) = allocate_traces([traced["published"], traced["more"]], budgets=[200]).values()
    assert made.solvers["fmn"] == FMN
    assert set(made.solvers) == {"fmn", "ddn"}
    made.save(tmp_path / "e.toml")
    assert Ensemble.load(tmp_path / "e.toml") == made
    (own,) = allocate_traces([traced["own"]], budgets=[200]).values()
    assert own.solvers == {}
    assert "solvers" not in own.to_toml()
    race = Race(
        "race",
        "L2",
        200,
        (("fmn", 100), ("ddn", 100)),
        constants(["fmn", "ddn"]),
        solvers=made.solvers,
    )
    assert Race.from_toml(race.to_toml()) == race
    assert race.at(100).solvers == made.solvers


def test_a_race_is_learned_from_one_kind_of_solvers(problem):
    published, own = (
        trace(*problem, runs=["fmn", "ddn"], solvers=solvers, **OPTIONS)
        for solvers in ({"fmn": Fmn(alpha=2.0)}, None)
    )
    assert learn_race([published, published], total=1000).solvers == {"fmn": "alpha=2.0"}
    said = r"trajectories 1 has fmn at alpha=2.0, trajectories 2 at its own settings: expected the same solvers"
    with pytest.raises(FrontierError, match=said):
        learn_race([published, own], total=1000)
    with pytest.raises(FrontierError, match=said):
        allocate([published, own], budgets=[1000])
    with pytest.raises(FrontierError, match=r"these trajectories has fmn at alpha=2.0"):
        published.join(replace(own, runs=("fmn:restart1", "ddn:target1")))
    apart = published.select(runs=["fmn"]).join(own.select(runs=["ddn"]))
    assert apart.solvers == {"fmn": "alpha=2.0"}


def test_mixtures_of_traces_are_refused_by_their_places(traced):
    mixed = [traced["published"], traced["own"]]
    for learn in (
        lambda: allocate_traces(mixed, budgets=[200]),
        lambda: learn_from(mixed, total=200),
    ):
        with pytest.raises(
            FrontierError, match=r"published/L2 has ddn at .*own/L2 at its own settings"
        ):
            learn()


def test_aoi_needs_the_solvers_of_the_trace(problem, traced, tmp_path):
    done = evaluate(*problem, ensemble=["fmn"], solvers=PUBLISHED, out=tmp_path / "a", **OPTIONS)
    assert evaluation_aoi(done, [traced["published"]])[1]["aoi"] > 0
    with pytest.raises(
        FrontierError, match=r"a/L2 has fmn at alpha=1.0.*own/L2 at its own settings.*--published"
    ):
        evaluation_aoi(done, [traced["own"]])


def test_an_evaluation_uses_the_solvers_an_ensemble_was_learned_with(problem, traced, tmp_path):
    (made,) = allocate_traces([traced["published"]], budgets=[100]).values()
    done = evaluate(*problem, ensemble=made, out=tmp_path / "a", **OPTIONS)
    attack = made.runs[0]
    assert done.record.header.solvers[attack] == solver_words(PUBLISHED[attack])
    with pytest.raises(
        FrontierError, match=rf"{made.name} was learned with {attack} at .* here it has its own"
    ):
        evaluate(*problem, ensemble=made, solvers={}, **OPTIONS)
    custom = replace(made, solvers={attack: "gamma=0.5"})
    with pytest.raises(
        FrontierError, match=rf'in Python give solvers={{"{attack}": …\(gamma=0.5\)}}'
    ):
        evaluate(*problem, ensemble=custom, **OPTIONS)
    counts = evaluate(
        *problem, ensemble=Ensemble.of("mine", "L2", {"fmn": 50}), solvers=PUBLISHED, **OPTIONS
    )
    assert counts.solvers == PUBLISHED


def test_races_learned_with_the_own_solvers_refuse_others(problem):
    race = Race("mine-1", "L2", 100, (("fmn", 100), ("ddn", 100)), constants(["fmn", "ddn"]))
    with pytest.raises(
        FrontierError,
        match=r"mine-1 was learned with ddn at its own settings.*leave --published out",
    ):
        evaluate(*problem, ensemble=race, solvers=PUBLISHED, **OPTIONS)
    with pytest.raises(FrontierError, match="fab_min: searches of this package"):
        evaluate(*problem, ensemble=["fmn", "fab_min"], solvers=PUBLISHED, **OPTIONS)
    with pytest.raises(FrontierError, match="fab_min, square_min: searches of this package"):
        trace(*problem, runs="extended", solvers=PUBLISHED, **OPTIONS)


def test_a_published_evaluation_is_extended_with_published_solvers(problem, tmp_path):
    evaluate(*problem, ensemble=["fmn"], solvers=PUBLISHED, out=tmp_path / "a", **OPTIONS)
    again = Evaluation.load(tmp_path / "a")
    assert again.solvers == PUBLISHED  # also of attacks that it has not run yet
    more = again.extend(Ensemble.of("more", "L2", {"fmn": 1000, "alma": 20}), model=problem[0])
    assert more.record.header.solvers["alma"] == solver_words(PUBLISHED["alma"])


def test_solvers_of_one_s_own_are_given_again_to_extend_a_loaded_record(problem, tmp_path):
    solvers = {"fmn": Fmn(alpha=2.0)}
    evaluate(*problem, ensemble="fmn@20", solvers=solvers, out=tmp_path / "a", **OPTIONS)
    at_once = evaluate(*problem, ensemble="fmn@40", solvers=solvers, **OPTIONS)
    loaded = Evaluation.load(tmp_path / "a")
    with pytest.raises(FrontierError, match="another solver of fmn"):
        loaded.extend("fmn@40", model=problem[0])
    longer = loaded.extend("fmn@40", model=problem[0], solvers=solvers)
    assert (longer.distances == at_once.distances).all()


def test_models_are_set_against_each_other_with_the_same_solvers_only(problem, tmp_path):
    published, own, again = (
        evaluate(
            *problem,
            ensemble=["fmn", "ddn"],
            solvers=solvers,
            out=tmp_path / name,
            name=name,
            **OPTIONS,
        )
        for name, solvers in (("published", PUBLISHED), ("own", None), ("again", None))
    )
    assert not compare(own, again).rejected
    with pytest.raises(FrontierError, match="its own settings: expected the same solvers in both"):
        compare(published, own)
    with pytest.raises(FrontierError, match="expected the same solvers in both"):
        rank([own, again, published])
