"""`evaluate`: what it returns, and how it treats models without gradients."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_evaluation import SMALL
from support.device import count_device_work
from support.ensembles import BLACK_BOX, small_ensemble
from support.models import Watch, conv_net, samples, tanh_mlp
from torch import nn

from advfrontier import FrontierError, Machine, attack, compare, evaluate, rank, trace, zoo
from advfrontier.evaluation.compare import reference_pools
from advfrontier.evaluation.samples import sample_table
from advfrontier.evaluation.summary import summarise_all
from advfrontier.flags import Kind
from advfrontier.pool import make_ensemble, pool
from advfrontier.threat.norms import make_norm


def test_evaluate_returns_distances_points_and_counts(problem, evaluation):
    model, images, labels = problem
    assert evaluation.norm == "L2"
    assert evaluation.distances.shape == (11,)
    assert evaluation.distances[4] == 0
    assert evaluation.winners[4] is None
    assert np.isfinite(evaluation.distances).all()
    assert set(evaluation.winners) <= {*SMALL.runs, None}
    assert evaluation.queries.tolist() == [0 if row == 4 else SMALL.total for row in range(11)]
    assert evaluation.counts == {
        "checks": 11 * (2 + 36) + 6 + 10 * 14,  # also at every point found
        "setup": 22,
        "attack": 10 * SMALL.total,
        "verification": 10 + 4 * 10,  # every kept point once, and noise on every sample
    }
    assert torch.equal(evaluation.images(), images)
    points = evaluation.adversarials
    assert points.min() >= 0
    assert points.max() <= 1
    assert torch.equal(points[4], images[4])
    norm = make_norm("L2", tuple(images.shape[1:]))
    measured = norm.distance(points.double().flatten(1), images.double().flatten(1)).numpy()
    assert (measured == evaluation.distances).all()
    with torch.no_grad():
        assert torch.equal(model(points).argmax(1), evaluation.predictions)
    assert (evaluation.predictions != labels).all()
    assert evaluation.robust_accuracy(0) == 10 / 11
    assert evaluation.robust_accuracy("8/255") == evaluation.robust_accuracy(8 / 255)
    with pytest.raises(FrontierError, match="'1,2' is not one radius: expected a number"):
        evaluation.robust_accuracy("1,2")
    assert evaluation.curve().at(evaluation.distances.max()) == 0
    assert evaluation.aurec().value == pytest.approx(evaluation.distances.mean())
    assert evaluation.flags == ()


def test_distances_are_the_least_of_all_runs(evaluation):
    found = evaluation.found_by_run
    assert (np.min(list(found.values()), axis=0) == evaluation.distances).all()
    for row, winner in enumerate(evaluation.winners):
        assert winner is None or found[winner][row] == evaluation.distances[row]
    assert set(evaluation.refined_by) == {None}  # the ensemble has no refinement


def test_trajectory_falls_to_the_distances(evaluation):
    assert evaluation.trajectory.shape == (SMALL.total // 10, 11)
    assert not (evaluation.trajectory[1:] > evaluation.trajectory[:-1]).any()
    assert np.array_equal(evaluation.trajectory[-1], evaluation.distances)
    assert (evaluation.trajectory[:, 4] == 0).all()
    assert evaluation.queries_by_run == SMALL.queries


def test_runs_find_what_their_traces_say(problem, evaluation):
    """Without refinement an evaluation is the least of the traces of its runs."""
    traces = trace(*problem, norm="L2", runs=list(SMALL.runs), queries=200, batch_size=4)
    for run, distances in zip(traces.runs, traces.distances, strict=True):
        spent = SMALL.queries[run]
        assert np.array_equal(distances[spent // 10 - 1], evaluation.found_by_run[run])


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_refinement_is_credited_to_the_run_whose_point_it_moved(problem, norm):
    ensemble = small_ensemble(norm)
    found = evaluate(*problem, norm=norm, ensemble=ensemble, batch_size=4)
    raised = {"fmn", "fmn:restart1", "fmn:target1", "pdpgd"}
    assert set(found.winners) <= {*raised, None}
    refinements = {name for name in ensemble.names if name.endswith(":refine")}
    assert set(found.refined_by) <= {*refinements, None}
    assert any(found.refined_by) or norm == "L0"  # where one feature is enough
    assert sum(found.queries_by_run.values()) == ensemble.total
    for row, refinement in enumerate(found.refined_by):
        if refinement is not None:
            assert found.found_by_run[refinement][row] == found.distances[row]


def test_distances_at_equals_a_smaller_budget(problem, evaluation):
    for budget in (100, 330):
        smaller = evaluate(*problem, norm="L2", ensemble=SMALL.at(budget), batch_size=4)
        assert smaller.ensemble.total == budget
        assert (smaller.distances == evaluation.distances_at(budget)).all()


def test_distances_at_before_the_first_checkpoint_are_infinite(evaluation):
    assert set(evaluation.distances_at(9)) == {0, np.inf}
    with pytest.raises(FrontierError, match="budget is '4k': expected a whole number"):
        evaluation.distances_at("4k")


def test_ensemble_of_a_model_with_two_classes_has_one_target_per_attack():
    model = conv_net((1, 4, 4), classes=2, seed=2)
    images, labels = samples(model, 2, (1, 4, 4), seed=2)
    watch = Watch.on(model)
    evaluation = evaluate(model, images, labels, norm="L2", ensemble="4k")
    targets = {run.partition(":")[2] for run in evaluation.queries_by_run if ":target" in run}
    assert targets == {"target1"}
    assert evaluation.counts["attack"] == 2 * 4000
    assert sum(evaluation.queries_by_run.values()) == 4000
    assert watch.total == sum(evaluation.counts.values())


def test_evaluate_takes_any_budget(problem):
    evaluation = evaluate(*problem, norm="Linf", ensemble=730)
    assert evaluation.ensemble.total == 730
    assert evaluation.counts["attack"] == 7300


def test_compare_and_rank_take_evaluations(problem, evaluation):
    _, images, labels = problem
    other = nn.Sequential(problem[0], nn.Identity())
    shorter = evaluate(*problem, norm="L2", ensemble=100, batch_size=4)
    weaker = evaluate(other, images, labels, norm="L2", ensemble=300, batch_size=4, name="weaker")
    assert (weaker.distances < shorter.distances).any()
    assert compare(shorter, weaker).lower == "weaker"
    with pytest.raises(FrontierError, match="Sequential was evaluated in L1, weaker in L2"):
        compare(evaluate(*problem, norm="L1", ensemble=100), weaker)
    assert [row.model for row in rank([evaluation]).norms[0].rows] == ["Sequential"]
    with pytest.raises(
        FrontierError, match=r"Sequential comes more than once in L2: .* --name \(in Python: name="
    ):
        rank([shorter, shorter])


def test_compare_and_rank_refuse_other_labels(problem, evaluation):
    model, images, labels = problem
    other = labels.clone()
    other[0] = (other[0] + 1) % 4
    second = evaluate(model, images, other, norm="L2", ensemble=SMALL, batch_size=4, name="other")
    with pytest.raises(
        FrontierError, match="other was evaluated with other labels than Sequential on 1 samples"
    ):
        compare(evaluation, second)
    images, labels = zoo.images_and_labels()
    twos = evaluate(
        "zoo:F1", images[:2], (labels[:2] + 1) % 10, norm="Linf", ensemble="paper-4k@100"
    )
    with pytest.raises(FrontierError, match="other labels than the reference models on 2 samples"):
        rank([twos], reference=reference_pools([twos], name="fashion-mnist"))


def test_evaluate_writes_nothing_if_the_budget_is_too_small(problem, tmp_path):
    with pytest.raises(
        FrontierError, match="5 queries are too few to run anything: expected at least 10"
    ):
        evaluate(*problem, norm="L2", ensemble=5, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.fixture(scope="module")
def few():
    model = conv_net(seed=1)
    images, labels = samples(model, 6, (1, 8, 8), seed=4)
    labels[2] = (labels[2] + 1) % 4  # misclassified unperturbed
    return model, images, labels


@pytest.mark.parametrize("norm", ["L0", "L1", "L2", "Linf"])
def test_evaluate_without_gradients_spends_all_queries_on_black_box_runs(few, norm, tmp_path):
    model, images, labels = few

    def closed(x):
        with torch.no_grad():
            return model(x)

    def through_numpy(x):
        return model(torch.from_numpy(np.round(16 * x.detach().numpy()) / 16))

    for answers in (closed, through_numpy):
        place = tmp_path / answers.__name__
        found = evaluate(answers, images, labels, norm=norm, ensemble=100, out=place, name="m")
        assert set(found.queries_by_run) == {BLACK_BOX[norm]}
        assert found.counts["attack"] == 100 * (found.distances > 0).sum()
        assert Kind.NO_GRADIENTS in {flag.kind for flag in found.flags}
    options = {"norm": norm, "ensemble": 150, "out": tmp_path / "closed", "name": "m"}
    more = evaluate(closed, images, labels, **options)
    shorter = evaluate(closed, images, labels, norm=norm, ensemble=100)
    assert (more.distances <= shorter.distances).all()
    assert more.counts["attack"] == 150 * (more.distances > 0).sum()


SLOW_NORMS = [pytest.param(norm, marks=pytest.mark.slow) for norm in ("L1", "L2", "Linf")]


@pytest.mark.parametrize("norm", ["L0", *SLOW_NORMS])
def test_evaluate_without_gradients_refines_and_can_stop_anywhere(few, norm, tmp_path):
    model, images, labels = few
    options = {"norm": norm, "name": "m", "batch_size": 4, "machine": Machine(threads=1)}

    def closed(x):
        with torch.no_grad():
            return model(x)

    whole = evaluate(closed, images, labels, ensemble=1500, out=tmp_path / "whole", **options)
    for queries in (1150, 1500):  # both in the middle of the first refinement
        place = tmp_path / "parts"
        parts = evaluate(closed, images, labels, ensemble=queries, out=place, **options)
        assert np.array_equal(parts.distances, whole.distances_at(queries))
    assert torch.equal(parts.adversarials, whole.adversarials)
    assert set(whole.queries_by_run) == {BLACK_BOX[norm], f"{BLACK_BOX[norm]}:refine"}
    assert (whole.distances <= whole.distances_at(1000)).all()
    if norm != "L0":  # where one feature is enough for all of these samples
        assert (whole.distances < whole.distances_at(1000)).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "most"), [("L0", 0.98), ("L1", 0.85), ("L2", 0.75), ("Linf", 0.95)]
)
def test_evaluate_without_gradients_one_search_ends_nearer_than_restarts(norm, most):
    images, labels = zoo.images_and_labels()
    images, labels, model = images[:48], labels[:48], torch.no_grad()(zoo.load("F16"))
    base = BLACK_BOX[norm]
    runs = [base, *(f"{base}:restart{k}" for k in (1, 2, 3))]
    restarts = evaluate(model, images, labels, norm=norm, ensemble=runs)
    found = evaluate(model, images, labels, norm=norm, ensemble="4k")
    assert found.counts["attack"] == restarts.counts["attack"]
    assert found.distances.mean() <= most * restarts.distances.mean()


def test_evaluate_refuses_gradient_runs_without_gradients(few):
    model, images, labels = few
    with pytest.raises(FrontierError, match="no gradient with respect to the images"):
        evaluate(torch.no_grad()(model), images, labels, norm="L2", ensemble="paper-4k")


def test_evaluate_names_an_ensemble_that_is_for_another_norm(few):
    ensemble = make_ensemble(name="mine", norm="L1", steps=[{"run": "fmn", "queries": 20}])
    with pytest.raises(FrontierError, match="ensemble mine is for L1, the evaluation in L2"):
        evaluate(*few, norm="L2", ensemble=ensemble)


def test_evaluate_refuses_an_unknown_ensemble_before_the_model_is_asked(few):
    watch = Watch.on(few[0])
    with pytest.raises(FrontierError, match="many: no such ensemble or run"):
        evaluate(*few, norm="L2", ensemble="many")
    assert watch.total == 0


def test_credit_goes_to_the_run_that_was_refined():
    model = tanh_mlp((3, 4, 4), seed=1)
    images, labels = samples(model, 8, (3, 4, 4), seed=1, low=0.3, high=0.7)
    steps = [
        {"run": "ddn", "queries": 40},
        {"run": "fmn", "queries": 200, "start": "best"},
    ]
    ensemble = make_ensemble(name="x", norm="L2", steps=steps)
    found = evaluate(model, images, labels, norm="L2", ensemble=ensemble)
    refined = [row for row, name in enumerate(found.refined_by) if name is not None]
    assert refined
    for row in refined:
        assert found.winners[row] == "ddn"
        assert found.credits[row] == "ddn → fmn"
    (summary,) = summarise_all([found], gallery=0)
    assert [(win.run, win.samples) for win in summary.wins] == [("ddn", 8)]
    rows = sample_table(found).records()
    assert rows[refined[0]]["winner"] == "ddn"
    assert rows[refined[0]]["refined_by"] == "fmn:refine"


@pytest.mark.parametrize("norm", ["L0", "Linf"])
def test_nothing_is_as_large_as_samples_times_classes_times_features(norm):
    """With 1000 classes, every tensor is smaller than the weights of a linear model."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 6, 1000)).eval()
    images, labels = samples(model, 4, (3, 6, 6))
    with count_device_work() as work:
        evaluate(model, images, labels, norm=norm, ensemble=20)
        for run in pool(norm, name="extended"):
            if run in {run.base, replace(run.base, variant="target", index=1)}:
                attack(model, images, labels, solver=str(run), norm=norm, queries=10)
    assert 4 * 1000 <= work.largest <= 3 * 6 * 6 * 1000
