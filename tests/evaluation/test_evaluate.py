"""Evaluating: what comes back, and what may be asked for."""

import numpy as np
import pytest
import torch
from small_evaluation import SMALL
from support.models import Watch, conv_net, samples
from support.nesting import contains
from torch import nn

from advfrontier import FrontierError, compare, evaluate, rank, zoo
from advfrontier.autoattack_api import VERSIONS, AutoAttack
from advfrontier.evaluation.compare import reference_pools
from advfrontier.frontier.trajectories import Trajectories
from advfrontier.pool import find_ensemble, paper_ensemble
from advfrontier.threat.norms import get_norm


def test_what_comes_back(problem, evaluation):
    model, images, labels = problem
    assert evaluation.norm == "L2"
    assert evaluation.distances.shape == (11,)
    assert evaluation.distances[4] == 0
    assert evaluation.winners[4] is None
    assert np.isfinite(evaluation.distances).all()
    assert set(evaluation.winners) <= {*SMALL.runs, None}
    assert evaluation.queries.tolist() == [0 if row == 4 else SMALL.total for row in range(11)]
    assert evaluation.counts == {
        "checks": 11 * 8 + 6,
        "setup": 22,
        "attack": 10 * SMALL.total,
        "verification": 90,
    }
    assert torch.equal(evaluation.images(), images)
    points = evaluation.adversarials
    assert points.min() >= 0
    assert points.max() <= 1
    assert torch.equal(points[4], images[4])
    measured = (
        get_norm("L2").distance(points.double().flatten(1), images.double().flatten(1)).numpy()
    )
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


def test_the_minimum_over_the_runs_and_who_found_it(evaluation):
    finals = {run: table[-1] for run, table in evaluation.trajectories.items()}
    assert (np.min(list(finals.values()), axis=0) == evaluation.distances).all()
    for row, winner in enumerate(evaluation.winners):
        assert winner is None or finals[winner][row] == evaluation.distances[row]


def test_a_prefix_of_the_budget_is_what_a_smaller_budget_finds(problem, evaluation):
    for budget in (100, 330):
        smaller = evaluate(*problem, norm="L2", ensemble=SMALL.at(budget), batch_size=4)
        assert smaller.ensemble.total == budget
        assert (smaller.distances == evaluation.distances_at(budget)).all()


def test_before_the_first_checkpoint_nothing_was_found(problem, evaluation):
    race = evaluate(*problem, norm="L2", ensemble=20, batch_size=4)
    for each in (evaluation, race):
        assert set(each.distances_at(9)) == {0, np.inf}
        with pytest.raises(FrontierError, match="budget is '4k': expected a whole number"):
            each.distances_at("4k")


def test_fewer_classes_have_fewer_targets_and_the_total_says_so(tmp_path):
    model = conv_net((1, 4, 4), classes=2, seed=2)
    images, labels = samples(model, 3, (1, 4, 4), seed=2)
    watch = Watch.on(model)
    evaluation = evaluate(model, images, labels, norm="L2", ensemble="paper-8k")
    expected = paper_ensemble("paper-8k", "L2", classes=2).total
    assert evaluation.ensemble.total == expected < 8000
    assert evaluation.counts["attack"] == 3 * expected
    assert watch.total == sum(evaluation.counts.values())


def test_any_budget_works(problem):
    evaluation = evaluate(*problem, norm="Linf", ensemble=730)
    assert evaluation.ensemble.total == 730
    assert evaluation.counts["attack"] == 7300


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("13k", "13000 queries are more than the largest tier: expected at most 12000"),
        ("many", "many: no such ensemble or run: expected a budget such as 4k or 6500, a kind"),
        ("4x", "'4x' is not a budget"),
        (["fmn", "ddn"], "ddn does not run in Linf"),
        ("square_min@5", "5 queries are too few to run anything"),
        ("nowhere.toml", "no ensemble file nowhere.toml"),
        ("paper-13k", "13000 queries are more than the largest tier"),
        (SMALL, "ensemble small is for L2, the evaluation in Linf"),
    ],
)
def test_ensembles_that_are_refused(asked, message):
    with pytest.raises(FrontierError, match=message):
        find_ensemble(asked, "Linf", 10)


def test_runs_take_turns_so_that_a_smaller_budget_is_shared_and_contained():
    whole = find_ensemble(["fmn", "ddn"], "L2", 10)
    assert (whole.name, whole.queries) == ("runs", {"fmn": 1000, "ddn": 1000})
    small, larger = find_ensemble("fmn,ddn@300", "L2", 10), find_ensemble("fmn,ddn@500", "L2", 10)
    assert (small.queries, larger.queries) == ({"fmn": 200, "ddn": 100}, {"fmn": 300, "ddn": 200})
    assert contains(larger, small)
    assert set(find_ensemble("black-box", "L0", 10).queries) == {
        "sparse_min",
        *(f"sparse_min:restart{k}" for k in range(1, 6)),
    }


def test_an_ensemble_file(tmp_path):
    SMALL.save(tmp_path / "small.toml")
    assert find_ensemble(str(tmp_path / "small.toml"), "L2", 10) == SMALL


def test_comparing_and_ranking_evaluations(problem, evaluation):
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


def test_models_with_other_labels_are_not_set_against_each_other(problem, evaluation):
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


def test_the_door_for_users_of_autoattack(problem, capsys, monkeypatch):
    monkeypatch.setitem(VERSIONS, "standard", "1000")  # in place of 4k
    model, images, labels = problem
    whole = evaluate(model, images, labels, norm="Linf", ensemble=1000, batch_size=250)
    eps = float(np.median(whole.distances[whole.distances > 0]))
    adversary = AutoAttack(model, norm="Linf", eps=eps, version="standard")
    points, classes = adversary.run_standard_evaluation(images, labels, bs=250, return_labels=True)
    assert ((points - images).abs().flatten(1).amax(1) <= eps * (1 + 1e-6)).all()
    with torch.no_grad():
        assert torch.equal(model(points).argmax(1), classes)
    assert int((classes == labels).sum()) == int((whole.distances > eps).sum())
    assert f"robust accuracy at Linf {eps:g}" in capsys.readouterr().out
    assert adversary.clean_accuracy(images, labels) == 10 / 11
    single = AutoAttack(model, "Linf", eps, verbose=False).run_standard_evaluation_individual(
        images, labels
    )
    paper = evaluate(model, images, labels, norm="Linf", ensemble="paper-1000", batch_size=250)
    assert set(single) == set(paper.ensemble.runs)
    best = torch.stack([(model(p).argmax(1) != labels) for p in single.values()]).any(0)
    assert best.tolist() == (paper.distances <= eps).tolist()
    with pytest.raises(FrontierError, match="version 'ranked'"):
        AutoAttack(model, version="ranked")


def test_trajectories_of_an_evaluation_obey_the_rules(evaluation):
    for run, table in evaluation.trajectories.items():
        Trajectories(
            (run,), np.arange(10, 10 * len(table) + 1, 10), table[None], evaluation.samples, "L2"
        )


def test_a_budget_that_runs_nothing_is_refused_before_anything_is_written(problem, tmp_path):
    with pytest.raises(
        FrontierError, match="5 queries are too few to run anything: expected at least 10"
    ):
        evaluate(*problem, norm="L2", ensemble=5, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
