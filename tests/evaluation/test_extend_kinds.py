"""Extending by a budget alone: an evaluation goes on with the kind of attacks it began with."""

import pytest
from support.models import conv_net, conv_problem, samples
from support.races import small_race

from advfrontier import Ensemble, FrontierError, evaluate, rank
from advfrontier.pool import find_ensemble

LONGER = [
    pytest.param(kind, marks=pytest.mark.slow) for kind in ("extended@", "paper@")
]  # of many runs


@pytest.fixture(scope="module")
def problem():
    return conv_problem(5)


@pytest.mark.parametrize("kind", ["fmn,ddn@", "black-box@", "paper-", "greedy-", "", *LONGER])
def test_a_budget_goes_on_with_the_same_kind(problem, kind):
    first, at_once = (
        evaluate(*problem, norm="L2", ensemble=f"{kind}{queries}") for queries in (200, 300)
    )
    longer = first.extend(300)
    assert longer.ensemble.name == at_once.ensemble.name
    assert longer.ensemble.queries == at_once.ensemble.queries
    assert longer.distances.tobytes() == at_once.distances.tobytes()


def test_runs_without_room_say_what_to_do(problem):
    first = evaluate(*problem, norm="L2", ensemble="fmn@200")
    with pytest.raises(
        FrontierError,
        match=r"12000 .* than the 1000 .*\(fmn\): type --queries 1000, or evaluate with",
    ):
        first.extend("12k")
    longer = first.extend(1000)
    with pytest.raises(FrontierError, match=r"\(fmn\): evaluate with more runs in another folder"):
        longer.extend("12k")


def test_an_ensemble_of_a_file_needs_a_larger_one(problem):
    first = evaluate(
        *problem, norm="L2", ensemble=Ensemble.of("mine", "L2", {"fmn": 40, "ddn": 20})
    )
    with pytest.raises(
        FrontierError,
        match="holds 60 queries per sample of mine, which the 300 of race-300 asked for",
    ):
        first.extend(300)


def test_the_pool_of_the_paper_is_not_called_as_its_ensemble():
    assert find_ensemble("paper@4000", "L2", 10).name == "paper-pool-4k"


def test_a_tier_of_a_model_with_few_classes_goes_on():
    model = conv_net((1, 4, 4), classes=4, seed=2)
    first = evaluate(model, *samples(model, 1, (1, 4, 4), seed=2), norm="L1", ensemble="greedy-4k")
    assert first.ensemble.total < 4000
    assert first.extend(first.ensemble.total + 100).ensemble.name.startswith("greedy-")


def test_a_race_of_ones_own_goes_on_by_a_number(problem, tmp_path):
    small_race("L2", total=300).save(tmp_path / "mine.toml")
    first = evaluate(*problem, norm="L2", ensemble=f"{tmp_path / 'mine.toml'}@100")
    longer = first.extend(200)
    assert longer.ensemble.name == "race-200"
    assert longer.ensemble.order == first.ensemble.order
    with pytest.raises(FrontierError, match="what its 10 runs can spend"):
        first.extend(20_000)


def test_models_are_ranked_only_after_the_same_attacks(problem):
    few = problem[1][:4], problem[2][:4]

    def made(ensemble, name):
        return evaluate(problem[0], *few, norm="L2", ensemble=ensemble, name=name)

    race, longer = made(200, "race"), made(300, "longer")
    assert (
        rank([race, longer]).norms[0].queries == 200
    )  # read back, wherever the smaller one stopped
    for other in ("black-box@100", "fmn,ddn@200", "paper-200"):
        with pytest.raises(FrontierError, match="expected the same attacks for all"):
            rank([race, made(other, "other")])
    with pytest.raises(FrontierError, match="expected the same attacks for all"):
        rank([made("fmn@100", "one"), made("ddn@100", "two")])
