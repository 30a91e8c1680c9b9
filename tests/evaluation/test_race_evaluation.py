"""A race as an evaluation: record, extension, workers, winners and points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.models import conv_net, samples
from support.races import small_race

from advfrontier import Evaluation, FrontierError, Machine, evaluate, trace, zoo
from advfrontier.flags import Kind
from advfrontier.frontier.race import read_off
from advfrontier.pool import RACE, find_ensemble

SHAPE = (1, 8, 8)
OPTIONS = {"norm": "L2", "batch_size": 4, "machine": Machine(threads=1)}


@pytest.fixture(scope="module")
def problem():
    model = conv_net(seed=1)
    images, labels = samples(model, 6, SHAPE, seed=4)
    labels[2] = (labels[2] + 1) % 4  # misclassified anyway
    return model, images, labels


@pytest.fixture(scope="module")
def policy():
    """Of five runs, because each is also traced to its end."""
    race = small_race("L2", classes=4)
    runs = {"fmn", "fmn:restart1", "fmn:target1", "ddn", "pdgd"}
    return replace(race, order=tuple(move for move in race.order if move[0] in runs))


@pytest.fixture(scope="module")
def whole(problem, policy):
    return evaluate(*problem, ensemble=policy, **OPTIONS)


def test_it_is_what_the_traces_say(problem, policy, whole):
    traces = trace(*problem, runs=list(policy.runs), **OPTIONS)
    expected = read_off(traces, policy)
    assert np.array_equal(whole.distances, expected.at(policy.total))
    assert np.array_equal(whole.distances_at(1000), expected.at(1000))
    attacked = whole.distances > 0
    assert whole.queries_by_run == {
        run: pytest.approx(100 * (expected.plan[:, attacked] == place).sum() / attacked.sum())
        for place, run in enumerate(policy.runs)
        if (expected.plan[:, attacked] == place).any()
    }


def test_points_winners_and_counts(problem, policy, whole):
    model, images, labels = problem
    assert whole.winners[2] is None
    assert set(whole.winners) - {None} <= set(policy.runs)
    points = whole.points()
    measured = (points - images).flatten(1).double().norm(dim=1).numpy()
    assert np.allclose(measured, whole.distances, rtol=1e-6)
    assert (model(points).argmax(1) != labels).all()
    assert whole.counts["attack"] == 5 * policy.total
    assert whole.queries.tolist() == [0 if k == 2 else policy.total for k in range(6)]
    for row, run in enumerate(whole.winners):
        if run is not None:
            assert whole.found_by_run[run][row] == whole.distances[row]


def test_a_slice_that_the_budget_cuts_counts_for_what_was_spent(problem, policy):
    assert sum(
        evaluate(*problem, ensemble=policy.at(130), **OPTIONS).queries_by_run.values()
    ) == pytest.approx(130)


def test_extended_by_workers_it_is_the_same_as_at_once(problem, policy, whole, tmp_path):
    first = evaluate(*problem, ensemble=policy.at(650), out=tmp_path, **OPTIONS)
    assert first.ensemble.total == 650
    longer = first.extend(policy)
    assert np.array_equal(longer.distances, whole.distances)
    assert torch.equal(longer.points(), whole.points())
    assert longer.winners == whole.winners
    assert longer.counts["attack"] == whole.counts["attack"]  # nothing was done twice
    assert np.array_equal(longer.distances_at(650), first.distances)
    again = Evaluation.load(tmp_path)
    assert again.ensemble == policy
    assert np.array_equal(again.distances, whole.distances)


def test_without_states_it_is_replayed(problem, policy, whole, tmp_path):
    machine = Machine(threads=1, keep_state=False)
    first = evaluate(
        *problem, ensemble=policy.at(600), out=tmp_path, norm="L2", batch_size=4, machine=machine
    )
    assert np.array_equal(first.extend(policy).distances, whole.distances)


def test_another_race_or_an_ensemble_does_not_go_on_with_it(problem, policy, tmp_path):
    first = evaluate(*problem, ensemble=policy.at(300), out=tmp_path, **OPTIONS)
    with pytest.raises(FrontierError, match="another race"):
        first.extend(find_ensemble("race-4k", "L2", 4))
    with pytest.raises(FrontierError, match="expected an ensemble that goes further"):
        first.extend("paper-12k")


def test_a_damaged_shard_is_computed_again(problem, policy, whole, tmp_path):
    evaluate(*problem, ensemble=policy, out=tmp_path, **OPTIONS)
    for file in (tmp_path / "L2" / "units" / RACE).iterdir():
        file.write_bytes(b"no longer a unit")
        break
    again = evaluate(*problem, ensemble=policy, out=tmp_path, **OPTIONS)
    assert np.array_equal(again.distances, whole.distances)


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_where_a_model_has_no_gradient_all_queries_go_to_black_box_runs(problem, norm, tmp_path):
    model, images, labels = problem

    def closed(x):
        with torch.no_grad():
            return model(x)

    def through_numpy(x):
        return model(torch.from_numpy(np.round(16 * x.detach().numpy()) / 16))

    for answers in (closed, through_numpy):
        place = tmp_path / answers.__name__
        found = evaluate(answers, images, labels, norm=norm, ensemble=100, out=place, name="m")
        assert {run.partition(":")[0] for run in found.queries_by_run} <= {
            "square_min",
            "sparse_min",
        }
        assert found.counts["attack"] == 100 * (found.distances > 0).sum()
        assert Kind.NO_GRADIENTS in {flag.kind for flag in found.flags}
    more = evaluate(
        closed, images, labels, norm=norm, ensemble=150, out=tmp_path / "closed", name="m"
    )
    assert (
        more.distances <= evaluate(closed, images, labels, norm=norm, ensemble=100).distances
    ).all()
    assert more.counts["attack"] == 150 * (more.distances > 0).sum()


@pytest.mark.parametrize(
    "norm", ["L0", *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("L1", "L2", "Linf"))]
)
def test_without_gradients_the_search_goes_on_from_what_it_has_found_and_can_be_stopped_anywhere(
    problem, norm, tmp_path
):
    model, images, labels = problem
    options = {"norm": norm, "name": "m", "batch_size": 4, "machine": Machine(threads=1)}

    def closed(x):
        with torch.no_grad():
            return model(x)

    whole = evaluate(closed, images, labels, ensemble=1600, out=tmp_path / "whole", **options)
    for queries in (550, 1600):  # in the middle of going on for the first time, and of the second
        parts = evaluate(
            closed, images, labels, ensemble=queries, out=tmp_path / "parts", **options
        )
        assert np.array_equal(parts.distances, whole.distances_at(queries))
    assert torch.equal(parts.adversarials, whole.adversarials)
    assert set(whole.queries_by_run) == {BLACK_BOX[norm], f"{BLACK_BOX[norm]}:polish"}
    assert (whole.distances <= whole.distances_at(500)).all()
    if norm != "L0":  # where one feature is enough for all of these samples
        assert (whole.distances < whole.distances_at(500)).any()


BLACK_BOX = {"L0": "sparse_min"} | dict.fromkeys(("L1", "L2", "Linf"), "square_min")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "most"), [("L0", 0.98), ("L1", 0.85), ("L2", 0.75), ("Linf", 0.95)]
)
def test_without_gradients_one_search_ends_nearer_than_restarts(norm, most):
    images, labels = zoo.images_and_labels()
    images, labels, model = images[:48], labels[:48], torch.no_grad()(zoo.load("F16"))
    base = BLACK_BOX[norm]
    restarts = evaluate(
        model,
        images,
        labels,
        norm=norm,
        ensemble=[base, *(f"{base}:restart{k}" for k in (1, 2, 3))],
    )
    found = evaluate(model, images, labels, norm=norm, ensemble="4k")
    assert found.counts["attack"] == restarts.counts["attack"]
    assert found.distances.mean() <= most * restarts.distances.mean()


def test_an_ensemble_with_gradients_is_refused_without_them(problem):
    model, images, labels = problem
    with pytest.raises(FrontierError, match="no gradient with respect to the images"):
        evaluate(torch.no_grad()(model), images, labels, norm="L2", ensemble="paper-4k")
