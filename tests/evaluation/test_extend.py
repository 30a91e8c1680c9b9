"""`Evaluation.extend`: no query is repeated, and the result is that of the larger ensemble at
once.
"""

from functools import partial

import numpy as np
import pytest
import torch
from small_evaluation import LARGER, SMALL, same
from support.ensembles import small_ensemble
from support.models import SHAPE, Watch, conv_net, conv_problem, samples

from advfrontier import Ensemble, Evaluation, FrontierError, Machine, evaluate
from advfrontier.pool import Raise, find_ensemble, make_ensemble

ONE_THREAD = Machine(threads=1)

LONGER = [
    pytest.param(kind, marks=pytest.mark.slow) for kind in ("extended@", "paper@")
]  # of many runs


@pytest.fixture(scope="module")
def five():
    return conv_problem(5)


@pytest.fixture(scope="module")
def three():
    return conv_problem(3)


@pytest.mark.parametrize("kind", ["fmn,ddn@", "black-box@", "paper-", "greedy-", "", *LONGER])
def test_extend_by_a_number_keeps_the_kind_of_ensemble(five, kind):
    first = evaluate(*five, norm="L2", ensemble=f"{kind}200")
    at_once = evaluate(*five, norm="L2", ensemble=f"{kind}300")
    longer = first.extend(300)
    assert longer.ensemble.name == at_once.ensemble.name
    same(longer, at_once)


def test_extend_beyond_the_runs_says_what_to_type(five):
    first = evaluate(*five, norm="L2", ensemble="fmn@200")
    with pytest.raises(
        FrontierError,
        match=r"can use at most 1000 queries per sample \(asked: 12000\); type --queries 1000, or",
    ):
        first.extend("12k")
    longer = first.extend(1000)
    with pytest.raises(FrontierError, match="can use at most 1000 queries per sample"):
        longer.extend("12k")


def test_extend_by_a_number_needs_a_longer_list_of_steps(five):
    first = evaluate(*five, norm="L2", ensemble=Ensemble.of("mine", "L2", {"fmn": 40, "ddn": 20}))
    with pytest.raises(FrontierError, match="mine can use at most 60 queries per sample"):
        first.extend(300)


def test_extend_an_ensemble_of_a_file_by_a_number(five, tmp_path):
    small_ensemble("L2").save(tmp_path / "mine.toml")
    first = evaluate(*five, norm="L2", ensemble=f"{tmp_path / 'mine.toml'}@100")
    longer = first.extend(200)
    assert longer.ensemble.name == "small-200"
    assert longer.ensemble.steps == first.ensemble.steps


def test_extend_refuses_an_ensemble_that_does_not_begin_alike(five):
    first = evaluate(*five, norm="L2", ensemble="fmn,ddn@300")
    for other in ("greedy-4k", "paper-12k", "fmn@400"):
        with pytest.raises(
            FrontierError,
            match=r"holds 300 queries per sample of runs-300, and \S+ with \w+ does not contain "
            r"all of their steps: expected a larger budget of runs-300, or another folder",
        ):
            first.extend(other)


def test_pool_of_the_paper_has_another_name_than_its_ensemble():
    assert find_ensemble("paper@4000", "L2", 10).name == "paper-pool-4k"


def test_extend_a_tier_of_a_model_with_few_classes():
    model = conv_net((1, 4, 4), classes=4, seed=2)
    data = samples(model, 1, (1, 4, 4), seed=2)
    first = evaluate(model, *data, norm="L1", ensemble="greedy-300")
    longer = first.extend(400)
    assert longer.ensemble.name == "greedy-400"
    assert longer.counts["attack"] == 400


def test_extend_to_a_separate_list_repeats_queries_and_ends_the_same(five):
    """States are kept for the steps of the list that was run, so those of a longer list are
    missing.
    """
    first = evaluate(*five, norm="L2", ensemble=Ensemble.of("a", "L2", {"fmn": 40, "ddn": 20}))
    steps = [*first.ensemble.steps, Raise(run="fmn", queries=80)]
    larger = make_ensemble(name="b", norm="L2", steps=steps)
    same(first.extend(larger), evaluate(*five, norm="L2", ensemble=larger))


@pytest.mark.parametrize("norm", ["L0", pytest.param("L1", marks=pytest.mark.slow), "L2", "Linf"])
def test_extend_through_refinements_and_forks_equals_at_once(three, norm, tmp_path):
    """Stopped inside a fork, inside a refinement and inside a run."""
    ensemble = small_ensemble(norm)
    whole = evaluate(*three, norm=norm, ensemble=ensemble, batch_size=2)
    grown = evaluate(
        *three, norm=norm, ensemble=ensemble.at(170), batch_size=2, out=tmp_path, machine=ONE_THREAD
    )
    assert grown.ensemble.total == 170
    for queries in (290, 450, ensemble.total):
        grown = grown.extend(ensemble.at(queries))
        assert np.array_equal(grown.distances, whole.distances_at(queries))
    same(grown, whole)
    same(Evaluation.load(tmp_path), whole)
    assert grown.counts["attack"] == whole.counts["attack"]  # nothing is repeated


def test_extend_equals_at_once_and_repeats_no_query(problem, longer, tmp_path):
    model, images, labels = problem
    watch = Watch.on(model)
    short = evaluate(
        model, images, labels, norm="L2", ensemble=SMALL, batch_size=4, out=tmp_path / "a" / "L2"
    )
    first, recognised = watch.total, len(images)  # one forward pass tells that it is the same model
    short = short.extend(LARGER)
    spent = short.counts
    assert watch.total == sum(spent.values())
    assert spent["attack"] == 10 * LARGER.total
    assert (
        watch.total - first
        == 10 * (LARGER.total - SMALL.total) + spent["verification"] - 50 + recognised + 10 * 14
    )
    same(short, longer)
    same(Evaluation.load(tmp_path / "a" / "L2"), longer)
    assert short.ensemble == LARGER


TIERS = [("Linf", 400, 800, 1200)]
TIERS += [
    pytest.param(norm, "4k", "8k", "12k", marks=pytest.mark.slow)
    for norm in ("L0", "L1", "L2", "Linf")
]


@pytest.mark.parametrize(("norm", "first", "second", "last"), TIERS)
def test_extend_twice_equals_the_largest_tier_at_once(norm, first, second, last, tmp_path):
    model = conv_net((1, 4, 4), classes=10, seed=2)
    images, labels = samples(model, 2, (1, 4, 4), seed=2)
    watch = Watch.on(model)
    grown = evaluate(model, images, labels, norm=norm, ensemble=first, out=tmp_path / "a" / "L2")
    grown = grown.extend(second).extend(last)
    total = 12_000 if last == "12k" else last
    others = sum(grown.counts[key] for key in ("checks", "setup", "verification"))
    assert watch.total - others == 2 * total
    assert grown.counts["attack"] == 2 * total
    same(grown, evaluate(model, images, labels, norm=norm, ensemble=last))


@pytest.mark.parametrize("wrapped", [False, True], ids=["module", "function"])
def test_extend_refuses_a_model_that_was_trained_since(wrapped, problem):
    _, images, labels = problem
    model = conv_net(SHAPE, classes=10, seed=5)
    held = evaluate(
        partial(model) if wrapped else model, images, labels, norm="L2", ensemble="fmn@20"
    )
    longer = held.extend("fmn@30")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    for given in (None, longer.worked_with):
        with pytest.raises(FrontierError, match="holds a record of another model"):
            longer.extend("fmn@40", model=given)
    assert set(longer.record.units().values()) == {30}


def test_extend_without_states_repeats_queries_and_counts_them(problem, longer, tmp_path):
    machine = Machine(keep_state=False)
    options = {"norm": "L2", "batch_size": 4, "out": tmp_path / "a" / "L2", "machine": machine}
    short = evaluate(*problem, ensemble=SMALL, **options)
    for unit, queries in short.record.units().items():
        assert short.record.read_unit(unit, queries).state == {}
    short = short.extend(LARGER)
    same(short, longer)
    assert short.counts["attack"] > 10 * LARGER.total
