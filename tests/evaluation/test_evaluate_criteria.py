"""Evaluations with other criteria: exact distances of planes, records, verification, refusals."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, minimize
from support.models import linear, samples
from support.nets import needs_nets, net
from support.oracles import halfspace_minimum
from torch import nn

from advfrontier import (
    Evaluation,
    Traces,
    attack,
    certify,
    evaluate,
    rank,
    trace,
    union,
    verify,
)
from advfrontier.errors import FrontierError
from advfrontier.evaluation.trace import evaluation_aoi
from advfrontier.record import Record
from advfrontier.threat.criteria import Rejecting, Targeted, TopK
from advfrontier.threat.rejection import ConfidenceThreshold

SHAPE = (1, 4, 4)
CLASSES = 5


def plane(seed=0):
    """Return a linear model, images, and labels of which none is the last class."""
    layer = linear(16, CLASSES, seed=seed)
    model = nn.Sequential(nn.Flatten(), layer)
    images, labels = samples(model, 16, SHAPE, seed=seed)
    kept = labels != CLASSES - 1
    return model, layer, images[kept][:6], labels[kept][:6]


def least(rows, offsets, x, norm):
    """Return the least ‖δ‖ with rows·(x + δ) + offsets ≤ 0 and x + δ in the box."""
    d = len(x)
    short = -(rows @ x + offsets)
    if norm == "L2":
        held = {"type": "ineq", "fun": lambda v: short - rows @ v, "jac": lambda _: -rows}
        bounds = list(zip(-x, 1 - x, strict=True))
        best = np.inf
        for start in (np.zeros(d), 0.5 - x):
            found = minimize(
                lambda v: v @ v,
                start,
                jac=lambda v: 2 * v,
                bounds=bounds,
                constraints=[held],
                method="SLSQP",
                options={"maxiter": 500, "ftol": 1e-14},
            )
            if (rows @ found.x <= short + 1e-8).all():
                best = min(best, float(np.sqrt(found.fun)))
        return best
    if norm == "L0":  # one binary number per feature: whether it may change
        table = [np.hstack([rows, np.zeros_like(rows)])]
        table.append(np.hstack([np.eye(d), np.diag(x - 1)]))
        table.append(np.hstack([-np.eye(d), np.diag(-x)]))
        held = LinearConstraint(np.vstack(table), ub=np.concatenate([short, np.zeros(2 * d)]))
        found = milp(
            np.repeat([0, 1], d),
            constraints=held,
            bounds=Bounds(np.repeat([-1, 0], d), 1),
            integrality=np.repeat([0, 1], d),
        )
        return round(found.fun) if found.success else np.inf
    bounds = [(0, 1 - v) for v in x] + [(0, v) for v in x]
    moves = np.hstack([rows, -rows])
    if norm == "L1":
        found = linprog(np.ones(2 * d), A_ub=moves, b_ub=short, bounds=bounds)
    else:
        below = np.hstack([np.eye(2 * d), -np.ones((2 * d, 1))])
        table = np.vstack([np.hstack([moves, np.zeros((len(moves), 1))]), below])
        ends = np.concatenate([short, np.zeros(2 * d)])
        found = linprog([*np.zeros(2 * d), 1], A_ub=table, b_ub=ends, bounds=[*bounds, (0, 1)])
    return found.fun if found.success else np.inf


def cells(criterion, label, goal):
    """Return the ways to succeed: in each, these classes are above those."""
    others = [c for c in range(CLASSES) if c != label]
    if isinstance(criterion, Targeted):
        return [([goal], [c for c in range(CLASSES) if c != goal])]
    if isinstance(criterion, TopK):
        return [(list(chosen), [label]) for chosen in combinations(others, criterion.k)]
    accepted = [c for c in others if c != CLASSES - 1]
    return [([c], [label, CLASSES - 1]) for c in accepted]


def optimum(criterion, layer, images, answers, norm):
    """Return the exact distances."""
    labels, goals = answers
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    found = []
    for image, label, goal in zip(
        images.flatten(1).double().numpy(), labels.tolist(), goals, strict=True
    ):
        best = np.inf
        for above, below in cells(criterion, label, goal):
            rows = np.array([weight[low] - weight[high] for high in above for low in below])
            offsets = np.array([bias[low] - bias[high] for high in above for low in below])
            if (rows @ image + offsets < 0).all():
                best = 0.0
            best = min(best, least(rows, offsets, image, norm))
        found.append(best)
    return np.array(found)


CRITERIA = ["targeted", "top-2", "reject"]


def made(name, labels):
    goals = (labels + 1) % (CLASSES - 1)
    criterion = {"targeted": Targeted(goals), "top-2": TopK(2), "reject": Rejecting()}[name]
    return criterion, goals.tolist()


NORMS = [
    pytest.param("L0", marks=pytest.mark.slow),
    pytest.param("L1", marks=pytest.mark.slow),
    "L2",
    pytest.param("Linf", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", CRITERIA)
def test_4k_finds_the_distances_of_a_plane(name, norm):
    """Within 0.5 % in the median; more where several conditions must hold at once. Exact in ℓ0."""
    model, layer, images, labels = plane()
    criterion, goals = made(name, labels)
    exact = optimum(criterion, layer, images, (labels, goals), norm)
    found = evaluate(model, images, labels, norm=norm, criterion=criterion)
    ratios = found.distances / exact
    assert (ratios >= 1 - 1e-5).all()
    assert np.median(ratios) <= 1.005, ratios
    assert ratios.mean() <= (1 if norm == "L0" else 1.02), ratios


@pytest.mark.parametrize("name", CRITERIA)
def test_points_succeed_and_records_are_reopened_extended_and_verified(name, tmp_path):
    model, _, images, labels = plane()
    criterion, goals = made(name, labels)
    evaluate(model, images, labels, norm="L2", ensemble=200, criterion=criterion, out=tmp_path)
    found = Evaluation.load(tmp_path / "L2")
    assert found.criterion.name == criterion.name
    seen = model(found.points())
    aim = found.aim(np.arange(len(labels)))
    assert (aim.gap(seen) < 0).all()
    assert torch.equal(found.predictions, seen.argmax(1))
    if name == "targeted":
        assert found.predictions.tolist() == goals
    again = verify(found, model, images, labels, criterion=criterion, rerun=1)
    assert again.holds
    assert (again.proved, again.same) == (len(labels), 1)
    longer = found.extend(400, model=model)
    fresh = evaluate(model, images, labels, norm="L2", ensemble=400, criterion=criterion)
    assert np.array_equal(longer.distances, fresh.distances)


def test_points_that_miss_the_target_are_false(tmp_path):
    """A record of a target is no record of another, even if its points are misclassified."""
    model, _, images, labels = plane()
    goals = (labels + 1) % (CLASSES - 1)
    found = evaluate(
        model, images, labels, norm="L2", ensemble=200, criterion=Targeted(goals), out=tmp_path
    )
    with pytest.raises(FrontierError, match="not of targeted-per-sample"):
        verify(found, model, images, labels, criterion=Targeted((labels + 2) % (CLASSES - 1)))
    with pytest.raises(FrontierError, match="is a record of targets"):
        verify(found, model, images, labels)


def test_samples_where_the_criterion_holds_already_are_not_attacked():
    model, _, images, labels = plane()
    seen = model(images).argmax(1)
    others = torch.where(seen == 0, 1, 0)  # labels that are wrong, so the class seen is a target
    found = evaluate(model, images, others, norm="L2", ensemble=100, criterion=Targeted(seen))
    assert found.distances.tolist() == [0.0] * len(labels)
    ranks = (-model(images)).argsort(1)
    third = ranks[:, 2] % CLASSES
    found = evaluate(model, images, third, norm="L2", ensemble=100, criterion=TopK(2))
    assert (found.distances == 0).all()
    found = evaluate(model, images, third, norm="L2", ensemble=100, criterion=TopK(3))
    assert (found.distances > 0).all()


def test_one_class_and_every_class():
    model, _, images, labels = plane()
    found = evaluate(model, images, labels, norm="L2", ensemble=100, criterion=Targeted(1))
    assert len(found.distances) == int((labels != 1).sum())
    every = evaluate(
        model, images, labels, norm="L2", ensemble=100, criterion=Targeted(every=CLASSES)
    )
    assert len(every.distances) == len(labels) * (CLASSES - 1)
    rows, goals = Targeted(every=CLASSES).rows(labels)
    assert np.array_equal(every.distances[(goals == 1) & (labels[rows] != 1)], found.distances)


def test_attack_takes_a_criterion():
    model, _, images, labels = plane()
    goals = (labels + 1) % (CLASSES - 1)
    points, distances = attack(
        model, images, labels, solver="fmn", norm="L2", queries=400, criterion=Targeted(goals)
    )
    assert torch.equal(model(points).argmax(1), goals)
    assert (distances > 0).all()


def test_trace_takes_a_criterion(tmp_path):
    """A traced run ends where the same run of an evaluation does; traces keep their criterion."""
    model, _, images, labels = plane()
    runs = ["fmn", "fab_min:target2"]
    about = {"norm": "L2", "criterion": TopK(2)}
    traces = trace(model, images, labels, runs=runs, queries=200, out=tmp_path / "t", **about)
    found = evaluate(model, images, labels, ensemble=",".join(runs) + "@400", **about)
    assert np.array_equal(traces.frontier(), found.distances)
    assert traces.criterion == "top-2"
    traces.save(tmp_path / "kept.npz")
    assert Traces.load(tmp_path / "kept.npz").criterion == "top-2"
    plain = trace(model, images, labels, norm="L2", runs=["pdgd"], queries=200)
    with pytest.raises(FrontierError, match="criterion top-2 and with untargeted: expected the"):
        traces.join(plain)
    other = evaluate(model, images, labels, norm="L2", ensemble=["fmn"])
    with pytest.raises(FrontierError, match=r"criterion untargeted, .* top-2: expected a trace"):
        evaluation_aoi(other, [Record.open(tmp_path / "t" / "L2", "trace")])
    with pytest.raises(FrontierError, match="top-2: expected runs of advfrontier alone"):
        trace(model, images, labels, runs=["foolbox:L2PGD"], **about)


def test_criteria_are_not_mixed(tmp_path):
    model, _, images, labels = plane()
    plain = evaluate(model, images, labels, norm="L2", ensemble=100, name="plain")
    other = evaluate(
        model, images, labels, norm="L2", ensemble=100, name="other", criterion=TopK(2)
    )
    with pytest.raises(FrontierError, match="criterion untargeted, other with top-2"):
        rank([plain, other])
    third = evaluate(
        model, images, labels, norm="L1", ensemble=100, name="plain", criterion=TopK(2)
    )
    with pytest.raises(
        FrontierError, match=r"has the criterion top-2, .* untargeted: expected the same"
    ):
        union([plain, third], radii="L2=1,L1=1")
    with pytest.raises(FrontierError, match="has the criterion top-2: expected an evaluation of"):
        certify(other, model=model)
    with pytest.raises(FrontierError, match="top-2 together with eot=2: expected one of them"):
        evaluate(model, images, labels, norm="L2", ensemble=100, criterion=TopK(2), eot=2)
    evaluate(model, images, labels, norm="L2", ensemble=100, out=tmp_path)
    with pytest.raises(FrontierError, match="criterion"):
        evaluate(model, images, labels, norm="L2", ensemble=100, out=tmp_path, criterion=TopK(2))


def test_attacks_of_other_libraries_take_no_criterion():
    model, _, images, labels = plane()
    runs = ["foolbox:L2PGD"]
    with pytest.raises(FrontierError, match="top-2: expected runs of advfrontier alone"):
        evaluate(model, images, labels, norm="L2", ensemble=runs, criterion=TopK(2))


@pytest.mark.parametrize("norm", ["L0", "L2"])
@pytest.mark.parametrize("accept", [0.6, 0.9])
def test_accepted_mistakes_of_a_confidence_threshold_are_on_a_plane(norm, accept):
    """Of two classes, the other one is accepted where its log-odds reach those of the threshold."""
    layer = linear(16, 2, seed=4)
    with torch.no_grad():
        layer.weight *= 6
    model = nn.Sequential(nn.Flatten(), layer)
    images, labels = samples(model, 6, SHAPE, seed=4)
    detector = ConfidenceThreshold(model, accept)
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    exact = []
    for x, y in zip(images.flatten(1).double().numpy(), labels.tolist(), strict=True):
        shift = bias[y] - bias[1 - y] + np.log(accept / (1 - accept))
        exact.append(halfspace_minimum(weight[y] - weight[1 - y], shift, x, norm))
    found = evaluate(detector, images, labels, norm=norm, ensemble=1000, criterion=Rejecting())
    reachable = np.isfinite(exact)
    assert reachable.any()
    assert (np.isinf(found.distances) == ~reachable).all()
    ratios = found.distances[reachable] / np.array(exact)[reachable]
    assert (ratios >= 1 - 1e-5).all()
    assert (ratios <= (1 if norm == "L0" else 1.01)).all(), ratios


@pytest.mark.slow
@needs_nets
@pytest.mark.parametrize("name", ["mnist_cnn_a_adv", "cifar_cnn_a_adv"])
def test_targets_are_nearer_than_those_of_foolbox_at_equal_queries(name):
    """Towards the fourth likeliest class, 2000 queries each."""
    foolbox = pytest.importorskip("foolbox")
    model, images, labels = net(name, 20)
    with torch.no_grad():
        logits = model(images)
    kept = logits.argmax(1) == labels
    images, labels, logits = images[kept], labels[kept], logits[kept]
    goals = logits.scatter(1, labels[:, None], -torch.inf).argsort(1, descending=True)[:, 3]
    found = evaluate(model, images, labels, norm="L2", ensemble=2000, criterion=Targeted(goals))
    assert np.isfinite(found.distances).all()
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
    for solver in (foolbox.attacks.DDNAttack, foolbox.attacks.L2FMNAttack):
        aim = foolbox.criteria.TargetedMisclassification(goals)
        points = solver(steps=1000)(wrapped, images, aim, epsilons=None)[1]
        reached = model(points).argmax(1) == goals
        theirs = (points - images).flatten(1).double().norm(dim=1)[reached].numpy()
        ours = found.distances[reached.numpy()]
        assert ours.mean() <= theirs.mean(), (solver.__name__, ours.mean(), theirs.mean())
