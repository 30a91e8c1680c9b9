"""Evaluations in domains: exact distances of planes, records, verification, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.models import conv_problem, linear
from support.oracles import linear_minimum
from support.runs import runs_of
from torch import nn

from advfrontier import Evaluation, attack, certify, evaluate, rank, union, verify
from advfrontier.errors import FrontierError
from advfrontier.evaluation.summary import summarise
from advfrontier.record import Record
from advfrontier.solvers import FMN, PUBLISHED
from advfrontier.threat.criteria import TopK
from advfrontier.threat.domain import Domain
from advfrontier.threat.names import NORMS


def plane(seed=0, *, features=24, classes=4, count=8, weighted=True):
    """Return a linear model of features of many widths, its layer, inputs, and their domain."""
    generator = torch.Generator().manual_seed(seed)
    layer = linear(features, classes, seed=seed)
    lower = 2 * torch.randn(features, generator=generator)
    width = 10 ** (2 * torch.rand(features, generator=generator) - 1)
    with torch.no_grad():
        layer.weight /= width
        layer.bias -= layer.weight @ (lower + width / 2)
    changeable = torch.rand(features, generator=generator) > 0.25
    weights = (10 ** (torch.rand(features, generator=generator) - 0.5) / width).double()
    upper = lower + width
    inputs = lower + width * torch.rand(count, features, generator=generator)
    inputs = torch.minimum(torch.maximum(inputs, lower), upper)
    inputs[:, 0], inputs[:, 1] = upper[0], lower[1]
    domain = Domain(lower, upper, changeable, weights if weighted else None)
    return nn.Sequential(nn.Flatten(), layer).eval(), layer, inputs, domain


def optimum(model, layer, inputs, domain, norm):
    """Return the exact distances."""
    fields = {name: np.asarray(value) for name, value in vars(domain).items() if value is not None}
    labels = model(inputs).argmax(1)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    return linear_minimum(weight, bias, inputs, labels, norm, **fields)


def check_points(evaluation, inputs, domain):
    """Points are in the box exactly, change only what may change, and are at their distances."""
    points = evaluation.points()
    assert ((points >= domain.lower) & (points <= domain.upper)).all()
    assert torch.equal(points[:, ~domain.changeable], inputs[:, ~domain.changeable])
    weights = 1.0 if domain.weights is None else domain.weights
    change = weights * (points.double() - inputs.double())
    order = {"L0": 0, "L1": 1, "L2": 2, "Linf": np.inf}[evaluation.norm]
    broken = np.isfinite(evaluation.distances)
    sizes = torch.linalg.vector_norm(change, order, dim=1).numpy()
    np.testing.assert_allclose(evaluation.distances[broken], sizes[broken], rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_few_queries_come_near_the_distances_of_a_plane(norm):
    model, layer, inputs, domain = plane(weighted=norm != "L0")
    exact = optimum(model, layer, inputs, domain, norm)
    found = evaluate(model, inputs, model(inputs).argmax(1), norm=norm, ensemble=400, domain=domain)
    assert (found.distances >= exact * (1 - 1e-6)).all()
    assert np.array_equal(np.isfinite(found.distances), np.isfinite(exact))
    broken = np.isfinite(exact)
    assert np.median(found.distances[broken] / exact[broken]) < 1.02
    check_points(found, inputs, domain)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("norm", NORMS)
def test_4k_finds_the_distances_of_a_plane(norm, seed):
    """Within 1 % on every sample, and in ℓ0 exactly."""
    for features, classes in ((40, 5), (300, 3)):
        model, layer, inputs, domain = plane(
            seed, features=features, classes=classes, count=12, weighted=norm != "L0"
        )
        exact = optimum(model, layer, inputs, domain, norm)
        found = evaluate(model, inputs, model(inputs).argmax(1), norm=norm, domain=domain)
        ratios = found.distances / exact
        print(f"{norm}, {features} features: {ratios.min():.6f} to {ratios.max():.5f}")  # noqa: T201
        assert (ratios >= 1 - 1e-6).all()
        assert (ratios <= (1 if norm == "L0" else 1.01)).all(), ratios
        check_points(found, inputs, domain)


@pytest.mark.parametrize("norm", [*NORMS, "L0pixel"])
def test_every_solver_stays_in_its_domain_and_is_never_below_the_optimum(norm):
    """Also a restart, which begins at a random point, and the published solvers."""
    model, layer, inputs, domain = plane(count=4, weighted="L0" not in norm)
    labels = model(inputs).argmax(1)
    exact = optimum(model, layer, inputs, domain, norm.removesuffix("pixel"))
    solvers = [str(run) for run in runs_of(norm, "restart1", classes=4)]
    solvers += [PUBLISHED[name] for name in solvers if name in PUBLISHED]
    broken = torch.zeros(4, dtype=torch.bool)
    for solver in solvers:
        points, distances = attack(
            model, inputs, labels, solver=solver, norm=norm, queries=60, domain=domain
        )
        assert ((points >= domain.lower) & (points <= domain.upper)).all(), solver
        assert torch.equal(points[:, ~domain.changeable], inputs[:, ~domain.changeable]), solver
        assert (distances.numpy() >= exact * (1 - 1e-6)).all(), solver
        broken |= distances.isfinite()
    assert broken.any()


class UnitSteps(FMN):
    """A solver of another package, which knows of no domains: it clamps its points to [0, 1]."""

    def step(self, problem, state, i, answer):
        super().step(problem, state, i, answer)
        state.point = (3 * state.point - 1).clamp_(0, 1)


def test_a_solver_that_clamps_to_the_unit_box_stays_in_the_domain():
    model, layer, inputs, domain = plane()
    points, distances = attack(
        model, inputs, model(inputs).argmax(1), solver=UnitSteps(), queries=60, domain=domain
    )
    assert ((points >= domain.lower) & (points <= domain.upper)).all()
    assert torch.equal(points[:, ~domain.changeable], inputs[:, ~domain.changeable])
    exact = optimum(model, layer, inputs, domain, "L2")
    assert (distances.numpy() >= exact * (1 - 1e-6)).all()
    assert distances.isfinite().any()


def test_records_are_reopened_extended_grown_and_verified(tmp_path):
    model, _, inputs, domain = plane()
    labels = model(inputs).argmax(1)
    given = {"norm": "L1", "domain": domain, "batch_size": 4}
    evaluate(model, inputs[:6], labels[:6], ensemble=100, out=tmp_path, **given)
    evaluate(model, inputs, labels, ensemble=100, out=tmp_path, **given)
    found = Evaluation.load(tmp_path / "L1")
    assert found.space == domain.space((24,))
    longer = found.extend(200, model=model)
    fresh = evaluate(model, inputs, labels, ensemble=200, **given)
    assert np.array_equal(longer.distances, fresh.distances)
    again = verify(longer, model, inputs, labels, rerun="100%", domain=domain)
    assert again.holds
    assert again.same == 2
    assert verify(longer, model, inputs, labels, rerun=0).holds
    with pytest.raises(FrontierError, match=r"is a record of the domain .*, not of a box from"):
        verify(longer, model, inputs, labels, domain=Domain(-99, 99))
    longer.save(tmp_path / "copy")
    assert Evaluation.load(tmp_path / "copy").space == longer.space
    (tmp_path / "copy/L1/domain.safetensors").unlink()
    with pytest.raises(FrontierError, match="lacks its domain; to resume"):
        _ = Evaluation.load(tmp_path / "copy").flags
    content = (tmp_path / "L1/domain.safetensors").read_bytes()
    (tmp_path / "L1/domain.safetensors").write_bytes(content[:-1])
    with pytest.raises(FrontierError, match=r"lacks its domain \(domain.safetensors: it is cut"):
        _ = Evaluation.load(tmp_path).flags
    evaluate(model, inputs, labels, ensemble=200, out=tmp_path, **given)
    assert Evaluation.load(tmp_path).space == domain.space((24,))


def test_points_that_break_the_rules_of_the_domain_are_false(tmp_path):
    model, _, inputs, domain = plane()
    labels = model(inputs).argmax(1)
    found = evaluate(model, inputs, labels, norm="L2", ensemble=100, domain=domain, out=tmp_path)
    record = Record.find(tmp_path / "L2")
    (unit, queries), *_ = record.unit_files()
    stored = record.read_unit(unit, queries)
    fixed = int((~domain.changeable).nonzero()[0])
    wide = int(domain.changeable.nonzero()[0])
    for feature, value in ((fixed, (domain.lower + domain.upper)[fixed] / 2), (wide, None)):
        points = stored.best_point.clone()
        outside = min(float(domain.upper[wide]) + 1e-3, float(domain.upper.max()))
        points[0, feature] = outside if value is None else value
        record.write_unit(unit, replace(stored, best_point=points))
        checked = verify(tmp_path, model, inputs, labels, rerun=0)
        assert len(checked.false) == 1
        assert "leaves the box of the domain, or changes what may not change" in checked.false[0]
    assert found.finished


def test_unit_box_is_the_same_record_as_none(tmp_path):
    model, images, labels = conv_problem(4)
    plain = evaluate(model, images, labels, norm="L2", ensemble=100, out=tmp_path)
    same = evaluate(
        model, images, labels, norm="L2", ensemble=100, out=tmp_path, domain=Domain(0, 1)
    )
    assert np.array_equal(plain.distances, same.distances)
    assert same.space is None
    assert not (tmp_path / "L2/domain.safetensors").exists()


def test_pictures_of_a_domain_and_its_words_are_in_the_summary():
    model, images, labels = conv_problem(4)
    normalised, domain = (images - 0.5) / 0.25, Domain(-2, 2)
    wrapped = nn.Sequential(Undo(), model).eval()
    found = evaluate(wrapped, normalised, labels, norm="Linf", ensemble=100, domain=domain)
    plain = evaluate(model, images, labels, norm="Linf", ensemble=100)
    np.testing.assert_allclose(found.distances, plain.distances * 4, rtol=0.02)
    summary = summarise(found, radii=[("1", 1.0)])
    assert summary.domain == "a box from -2 to 2"
    assert summary.further is None
    picture = summarise(plain, radii=[("1", 1.0)]).gallery[0].original
    assert np.array_equal(summary.gallery[0].original, picture)
    assert not [flag for flag in found.flags if flag not in plain.flags]


class Undo(nn.Module):
    """Undo a normalisation by mean 0.5 and standard deviation 0.25."""

    def forward(self, images):
        return images * 0.25 + 0.5


def test_domains_go_with_criteria_and_with_random_models():
    model, _, inputs, domain = plane(count=4)
    labels = model(inputs).argmax(1)
    for more in ({"criterion": TopK(2)}, {"eot": 2}):
        found = evaluate(model, inputs, labels, norm="L2", ensemble=100, domain=domain, **more)
        assert (found.distances > 0).all()
        check_points(found, inputs, domain)


def test_domains_are_not_mixed(tmp_path):
    model, _, inputs, domain = plane()
    labels = model(inputs).argmax(1)
    wider = Domain(-99, 99)
    given = {"ensemble": 100, "norm": "L2"}
    one = evaluate(model, inputs, labels, name="one", domain=domain, out=tmp_path, **given)
    two = evaluate(model, inputs, labels, name="two", domain=wider, **given)
    with pytest.raises(FrontierError, match=r"one was evaluated in the domain-\w+, two in the dom"):
        rank([one, two])
    other = evaluate(model, inputs, labels, name="one", domain=wider, norm="L1", ensemble=100)
    with pytest.raises(FrontierError, match=r"is in the domain-\w+, .* expected the same"):
        union([one, other], radii="L2=1,L1=1")
    with pytest.raises(FrontierError, match=r"is in a domain .* expected an evaluation in"):
        certify(one, model=model)
    with pytest.raises(FrontierError, match="another domain"):
        evaluate(model, inputs, labels, domain=wider, out=tmp_path, **given)


def test_what_makes_no_sense_in_a_domain_is_refused():
    model, _, inputs, domain = plane()
    labels = model(inputs).argmax(1)
    with pytest.raises(FrontierError, match=r"callable:mine in a domain .* expected runs of adv"):
        evaluate(
            model,
            inputs,
            labels,
            norm="L2",
            ensemble=["callable:mine"],
            solvers={"callable:mine": lambda _model, images, _labels: images},
            domain=domain,
        )
    with pytest.raises(FrontierError, match=r"in a domain .* expected a solver of advfrontier"):
        attack(model, inputs, labels, solver=lambda _m, images, _y: images, domain=domain)
    with pytest.raises(FrontierError, match="L0 counts features, and the domain has weights"):
        evaluate(model, inputs, labels, norm="L0", ensemble=100, domain=domain)
    with pytest.raises(FrontierError, match="leave the box of the domain in 24 features"):
        evaluate(model, inputs + 1000, labels, norm="L2", ensemble=100, domain=domain)
    with pytest.raises(FrontierError, match="does not fit samples of the shape"):
        evaluate(model, inputs[:, :5], labels, norm="L2", ensemble=100, domain=domain)
    with pytest.raises(FrontierError, match=r"expected \[0, 1\]"):
        evaluate(model, inputs, labels, norm="L2", ensemble=100)
