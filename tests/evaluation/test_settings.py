"""Ensembles carry the settings of the solvers they were learned with, and are not mixed with
others.
"""

from dataclasses import replace

import pytest
from support.models import conv_net, samples

from advfrontier import (
    Ensemble,
    Evaluation,
    FrontierError,
    Machine,
    allocate,
    compare,
    evaluate,
    rank,
    trace,
)
from advfrontier.evaluation.allocation import allocate_traces
from advfrontier.evaluation.trace import evaluation_aoi
from advfrontier.record import Record
from advfrontier.record.identity import settings, solver_parameters, solvers_of
from advfrontier.solvers import FMN, PUBLISHED

OPTIONS = {"norm": "L2", "batch_size": 8, "machine": Machine(threads=1)}
PUBLISHED_FMN = "PublishedFMN(alpha=1.0, gamma=0.05, gamma_final=0.001)"


@pytest.fixture(scope="module")
def problem():
    model = conv_net(seed=1)
    return model, *samples(model, 6, (1, 8, 8), seed=4)


@pytest.fixture(scope="module")
def traced(problem, tmp_path_factory):
    """Return traces of the same runs with the published solvers and with the attacks' own."""
    folder = tmp_path_factory.mktemp("traced")
    records = {}
    for name, solvers in (("published", PUBLISHED), ("own", None), ("more", PUBLISHED)):
        place = folder / name / "L2"
        trace(*problem, runs=["fmn", "ddn"], queries=200, solvers=solvers, out=place, **OPTIONS)
        records[name] = Record.open(place, "trace")
    return records


def test_settings_are_the_parameters_that_differ():
    assert settings(solvers_of(["fmn", "ddn"], {"fmn": FMN(alpha=2.0)})) == {"fmn": "alpha=2.0"}
    assert settings(solvers_of(["fmn"], PUBLISHED)) == {"fmn": PUBLISHED_FMN}


def test_settings_of_other_versions_and_of_unknown_attacks():
    assert settings({"fmn": {"class": "FMN", "gamma": "0.05"}}) == {}  # parameters came later
    assert settings({"fmn": {"class": "FMN", "gamma": "inf"}}) == {"fmn": "gamma=inf"}
    other = {"class": "Other", "gamma": "0.05"}
    assert settings({"fmn": other}) == {"fmn": "Other(gamma=0.05)"}
    assert settings({"not_here": {"class": "Mine", "a": "1"}}) == {"not_here": "Mine(a=1)"}


def test_ensembles_keep_settings_in_their_files(traced, tmp_path):
    (ensemble,) = allocate_traces([traced["published"], traced["more"]], budgets=[200]).values()
    assert ensemble.solvers["fmn"] == PUBLISHED_FMN
    assert set(ensemble.solvers) == {"fmn", "ddn"}
    assert ensemble.at(100).solvers == ensemble.solvers
    ensemble.save(tmp_path / "e.toml")
    assert Ensemble.load(tmp_path / "e.toml") == ensemble
    (own,) = allocate_traces([traced["own"]], budgets=[200]).values()
    assert own.solvers == {}
    assert "solvers" not in own.to_toml()


def test_allocation_needs_one_kind_of_solvers(problem):
    runs = ["fmn", "ddn"]
    changed = {"fmn": FMN(alpha=2.0)}
    other = trace(*problem, runs=runs, queries=100, solvers=changed, **OPTIONS)
    own = trace(*problem, runs=runs, queries=100, **OPTIONS)
    levels = (50, 100)
    (ensemble,) = allocate([other, other], budgets=[100], levels=levels)
    assert ensemble.solvers == {"fmn": "alpha=2.0"}
    message = (
        "trajectories 1 has fmn at alpha=2.0, trajectories 2 at its own settings: expected the same"
    )
    with pytest.raises(FrontierError, match=message):
        allocate([other, own], budgets=[100], levels=levels)
    with pytest.raises(FrontierError, match=r"these trajectories has fmn at alpha=2.0"):
        other.join(replace(own, runs=("fmn:restart1", "ddn:target1")))
    apart = other.select(runs=["fmn"]).join(own.select(runs=["ddn"]))
    assert apart.solvers == {"fmn": "alpha=2.0"}


def test_allocation_names_the_records_of_other_solvers(traced):
    with pytest.raises(
        FrontierError, match=r"published/L2 has ddn at .*own/L2 at its own settings"
    ):
        allocate_traces([traced["published"], traced["own"]], budgets=[200])


def test_aoi_needs_the_solvers_of_the_trace(problem, traced, tmp_path):
    done = evaluate(*problem, ensemble="fmn@200", solvers=PUBLISHED, out=tmp_path / "a", **OPTIONS)
    assert evaluation_aoi(done, [traced["published"]])[1]["aoi"] > 0
    with pytest.raises(
        FrontierError,
        match=r"a/L2 has fmn at PublishedFMN.*own/L2 at its own settings.*--published",
    ):
        evaluation_aoi(done, [traced["own"]])


def test_evaluate_uses_the_solvers_an_ensemble_was_learned_with(problem, traced, tmp_path):
    (made,) = allocate_traces([traced["published"]], budgets=[100]).values()
    done = evaluate(*problem, ensemble=made, out=tmp_path / "a", **OPTIONS)
    attack = made.runs[0]
    assert done.record.header.solvers[attack] == solver_parameters(PUBLISHED[attack])
    with pytest.raises(
        FrontierError, match=rf"{made.name} was learned with \w+ at .* here it has its own"
    ):
        evaluate(*problem, ensemble=made, solvers={}, **OPTIONS)
    custom = made.model_copy(update={"solvers": {attack: "gamma=0.5"}})
    with pytest.raises(
        FrontierError, match=rf'in Python give solvers={{"{attack}": …\(gamma=0.5\)}}'
    ):
        evaluate(*problem, ensemble=custom, **OPTIONS)
    counts = evaluate(
        *problem, ensemble=Ensemble.of("mine", "L2", {"fmn": 50}), solvers=PUBLISHED, **OPTIONS
    )
    assert counts.solvers == PUBLISHED


def test_published_solvers_are_refused_where_another_solver_has_none(problem):
    with pytest.raises(FrontierError, match="fab_min: no paper has these searches of advfrontier"):
        evaluate(*problem, ensemble=["fmn", "fab_min"], solvers=PUBLISHED, **OPTIONS)
    with pytest.raises(FrontierError, match="fab_min, square_min: no paper has these searches"):
        trace(*problem, runs="extended", solvers=PUBLISHED, **OPTIONS)


def test_extend_keeps_published_solvers(problem, tmp_path):
    evaluate(*problem, ensemble="fmn@100", solvers=PUBLISHED, out=tmp_path / "a", **OPTIONS)
    again = Evaluation.load(tmp_path / "a")
    assert again.solvers == PUBLISHED  # also of attacks that it has not run yet
    more = again.extend(Ensemble.of("more", "L2", {"fmn": 100, "alma": 20}), model=problem[0])
    assert more.record.header.solvers["alma"] == solver_parameters(PUBLISHED["alma"])


def test_extend_a_loaded_record_needs_own_solvers_again(problem, tmp_path):
    solvers = {"fmn": FMN(alpha=2.0)}
    evaluate(*problem, ensemble="fmn@20", solvers=solvers, out=tmp_path / "a", **OPTIONS)
    at_once = evaluate(*problem, ensemble="fmn@40", solvers=solvers, **OPTIONS)
    loaded = Evaluation.load(tmp_path / "a")
    with pytest.raises(FrontierError, match="another solver of fmn"):
        loaded.extend("fmn@40", model=problem[0])
    longer = loaded.extend("fmn@40", model=problem[0], solvers=solvers)
    assert (longer.distances == at_once.distances).all()


def test_compare_and_rank_need_the_same_solvers(problem, tmp_path):
    published, own, again = (
        evaluate(
            *problem,
            ensemble="fmn,ddn@200",
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
