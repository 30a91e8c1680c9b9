"""Domains: boxes, masks and weights in the user's coordinates, and in those of the search."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from support.examples import EXAMPLES
from support.oracles import halfspace_minimum

from advfrontier.errors import FrontierError
from advfrontier.threat.domain import Domain
from advfrontier.threat.names import NORMS
from advfrontier.threat.norms import make_norm
from advfrontier.threat.random import Draws, sample_keys

CPU = torch.device("cpu")


def drawn(seed, *, features=12, rows=5, weights=True):
    """Return a domain of boxes of many widths, and inputs in it, some at its ends."""
    generator = torch.Generator().manual_seed(seed)
    lower = 3 * torch.randn(features, generator=generator)
    upper = lower + 10 ** (2 * torch.rand(features, generator=generator) - 1)
    changeable = torch.rand(features, generator=generator) > 0.3
    changeable[0] = True
    values = 10 ** (torch.rand(features, generator=generator).double() - 0.5)
    domain = Domain(lower, upper, changeable, values if weights else None)
    place = torch.rand(rows, features, generator=generator).mul_(1.2).sub_(0.1).clamp_(0, 1)
    inputs = torch.lerp(lower.expand_as(place), upper.expand_as(place), place)
    return domain, torch.minimum(torch.maximum(inputs, lower), upper)


def keys(rows):
    """Return the keys of so many samples."""
    return sample_keys(np.arange(rows, dtype=np.uint64))


@pytest.mark.parametrize("norm", [*NORMS, "L0pixel"])
@EXAMPLES
@given(seed=st.integers(0, 10_000))
def test_coordinates_keep_distances_boxes_and_unchanged_features(norm, seed):
    domain, inputs = drawn(seed, weights="L0" not in norm)
    space = domain.space((12,))
    measure = space.norm(norm, CPU, torch.float32)
    frame = measure.frame
    origin = frame.enter(inputs)
    assert (origin >= 0).all()
    assert (origin <= frame.top).all()
    assert frame.top.max() <= 1
    z = measure.random_start(origin, 0.5 * measure.largest(origin), Draws(seed, keys(5)))
    assert (z >= 0).all()
    assert (z <= frame.top).all()
    points = frame.leave(z, origin, inputs)
    assert not space.breaches(points, inputs).any()
    assert torch.equal(points[z == origin], inputs[z == origin])
    exact = space.distance(norm, points.double(), inputs.double())
    torch.testing.assert_close(exact, frame.measure(measure, points.double(), inputs.double()))
    seen = measure.size((points - inputs) * frame.scale)
    torch.testing.assert_close(frame.unit * seen.double(), exact, rtol=1e-5, atol=0)
    ends = frame.leave(torch.where(z > origin, frame.top, 0), origin, inputs)
    low, high = space.lower.expand_as(ends), space.upper.expand_as(ends)
    near = torch.minimum((ends - low).abs(), (ends - high).abs()) <= 1e-5 * (high - low)
    assert near[:, space.changeable].all()


@pytest.mark.parametrize("norm", [*NORMS, "L0pixel"])
@EXAMPLES
@given(seed=st.integers(0, 10_000))
def test_norm_in_a_frame_as_wide_as_the_unit_box_has_the_bits_of_the_plain_one(norm, seed):
    generator = torch.Generator().manual_seed(seed)
    plain = make_norm(norm, (3, 2, 2))
    framed = Domain(0.0, 2.0).space((3, 2, 2)).norm(norm, CPU, torch.float32)
    assert torch.equal(framed.frame.top, torch.ones(1, 12))
    inputs = torch.rand(5, 12, generator=generator)
    moves = torch.randn(5, 12, generator=generator)
    radius = torch.rand(5, generator=generator) * plain.largest(inputs) + 0.1
    draws = Draws(seed, keys(5))
    for each in ("project_in_box", "random_start", "largest", "move_onto_hyperplane", "boundary"):
        given = {
            "project_in_box": (moves, radius, inputs),
            "random_start": (inputs, radius, draws),
            "largest": (inputs,),
            "move_onto_hyperplane": (inputs, moves / moves.norm(dim=1, keepdim=True), radius / 9),
            "boundary": (radius, moves, inputs),
        }[each]
        assert torch.equal(getattr(plain, each)(*given), getattr(framed, each)(*given)), each
    assert torch.equal(plain.clamp_(3 * moves), framed.clamp_(3 * moves))


@pytest.mark.parametrize("norm", ["L1", "L2", "Linf"])
@EXAMPLES
@given(seed=st.integers(0, 10_000))
def test_move_onto_a_hyperplane_of_a_frame_is_the_shortest(norm, seed):
    domain, inputs = drawn(seed)
    space = domain.space((12,))
    measure = space.norm(norm, CPU, torch.float64)
    frame, inputs = measure.frame, inputs.double()
    origin = frame.enter(inputs)
    normal = torch.randn(5, 12, generator=torch.Generator().manual_seed(seed)).double()
    slope = normal * frame.stretch
    slope /= slope.norm(dim=1, keepdim=True)
    gap = 0.5 * (slope.abs() * measure.room_of(origin, -slope)).sum(1)
    moved = measure.move_onto_hyperplane(origin, slope, gap)
    assert ((origin + moved >= -1e-12) & (origin + moved <= frame.top + 1e-12)).all()
    for k in range(5):
        a = (slope[k] * frame.scale[0]).numpy()
        c = float(gap[k] - a @ inputs[k].numpy())
        fields = {name: tensor.numpy() for name, tensor in space.tensors.items()}
        exact = halfspace_minimum(a, c, inputs[k].numpy(), norm, **fields)
        assert frame.unit * float(measure.size(moved)[k]) == pytest.approx(exact, rel=1e-4)


def test_exact_weighted_distances_are_those_of_linear_programs():
    """The closed forms of the other tests, against a solver that knows nothing of them."""
    domain, inputs = drawn(3)
    space = domain.space((12,))
    fields = {name: tensor.double().numpy() for name, tensor in space.tensors.items()}
    fields["changeable"] = space.changeable.numpy()
    x, weights = inputs[0].double().numpy(), fields["weights"]
    a = np.random.default_rng(0).normal(size=12)
    room = np.where(a > 0, x - fields["lower"], fields["upper"] - x) * fields["changeable"]
    c = float(0.5 * np.abs(a) @ room - a @ x)
    low = np.where(fields["changeable"], fields["lower"] - x, 0)
    high = np.where(fields["changeable"], fields["upper"] - x, 0)
    # v with |weights·v| ≤ t feature by feature; L1 sums t, Linf has one for all.
    for norm, sizes in (("L1", np.eye(12)), ("Linf", np.ones((12, 1)))):
        count = sizes.shape[1]
        table = np.vstack(
            [
                np.hstack([np.diag(weights), -sizes]),
                np.hstack([-np.diag(weights), -sizes]),
                np.hstack([a, np.zeros(count)])[None],
            ]
        )
        ends = np.concatenate([np.zeros(24), [-float(a @ x) - c]])
        bounds = [*zip(low, high, strict=True), *[(0, None)] * count]
        found = linprog(np.r_[np.zeros(12), np.ones(count)], A_ub=table, b_ub=ends, bounds=bounds)
        assert halfspace_minimum(a, c, x, norm, **fields) == pytest.approx(found.fun, rel=1e-7)


def test_unit_box_is_no_domain():
    assert Domain().space((3, 4, 4)) is None
    assert Domain(np.zeros((4, 4)), 1, changeable=True, weights=np.ones(4)).space((3, 4, 4)) is None
    assert Domain(0, 1, weights=2).space((4,)) is not None


def test_equal_domains_have_one_name_however_they_are_given():
    one = Domain(-1, 2, [1, 1, 0], 2).space((2, 3))
    two = Domain(torch.full((2, 3), -1.0), np.full(3, 2.0), torch.tensor([True, True, False]), 2.0)
    assert one == two.space((2, 3))
    assert one.name == two.space((2, 3)).name
    assert one != Domain(-1, 2, [1, 1, 0], 3).space((2, 3))
    assert one != Domain(-1, 2, [1, 1, 0], 2).space((3,))
    words = "a box from -1 to 2 with 4 of 6 features changeable and weights from 2 to 2"
    assert one.words == words
    assert "a box per feature between 0 and 3" in Domain(0, [1, 2, 3]).space((3,)).words


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (Domain(upper=np.ones(2)), r"upper of the domain is an array of shape \(2,\), which does"),
        (Domain(upper=[1.0, 2.0]), r"upper of the domain is a list, which does not fit samples"),
        (Domain(upper="wide"), "upper of the domain is a str, which does not fit samples"),
        (Domain(lower=-np.inf), "lower of the domain is not finite everywhere: expected finite"),
        (Domain([0, 2, 0], 1), "lower end of the domain is above the upper one in 1 features"),
        (Domain(-3e38, 3e38), "wider than float32 reaches"),
        (Domain(weights=[1, 0, 1]), "least weight of the domain is 0: expected weights above 0"),
        (Domain(changeable=[1, 2, 0]), "changeable holds other values than 0 and 1"),
        (Domain(1, 1), "no feature of the domain may change: expected one at least"),
        (Domain(changeable=False), "no feature of the domain may change: expected one at least"),
    ],
)
def test_domains_that_make_no_sense_are_refused(domain, message):
    with pytest.raises(FrontierError, match=message):
        domain.space((3,))


def test_weights_are_refused_where_features_are_counted():
    space = Domain(weights=[1, 2, 3]).space((3,))
    with pytest.raises(FrontierError, match="L0 counts features, and the domain has weights from"):
        space.norm("L0", CPU, torch.float32)
    masked = Domain(weights=[1, 1, 3], changeable=[1, 1, 0]).space((3,))
    assert masked.norm("L0", CPU, torch.float32).frame.top.tolist() == [[1, 1, 0]]


def test_inputs_outside_are_refused_and_rounding_is_clamped():
    space = Domain([0.0, -2.0], [1.0, 3.0]).space((2,))
    inputs = torch.tensor([[0.5, 3.0], [-1e-7, -2.0]])
    assert space.check(inputs).tolist() == [[0.5, 3.0], [0.0, -2.0]]
    inputs[0, 1] = 3.5
    message = r"data: samples leave the box of the domain in 1 features: feature 1 has values from"
    with pytest.raises(FrontierError, match=message):
        space.check(inputs, "data")
    inputs[0, 1] = torch.nan
    with pytest.raises(FrontierError, match="leave the box of the domain"):
        space.check(inputs)
    with pytest.raises(FrontierError, match=r"the domain is for \(samples, 2\): expected the same"):
        space.check(torch.zeros(4, 3))
    with pytest.raises(FrontierError, match=r"are torch\.int64: expected floats"):
        space.check(torch.zeros(4, 2, dtype=torch.int64))


def test_pictures_have_every_box_from_0_to_1():
    domain, inputs = drawn(0)
    space = domain.space((12,))
    unit = space.to_unit(inputs)
    assert (unit >= 0).all()
    assert (unit <= 1).all()
    torch.testing.assert_close(space.from_unit(unit), inputs)
    fixed = Domain([0.0, 1.0], [2.0, 1.0]).space((2,))
    assert fixed.to_unit(torch.tensor([[1.0, 1.0]])).tolist() == [[0.5, 0.0]]


def test_files_hold_some_of_the_fields(tmp_path):
    np.savez(tmp_path / "domain.npz", lower=-1.0, changeable=np.array([True, False]))
    space = Domain.load(tmp_path / "domain.npz").space((2,))
    assert space == Domain(-1, 1, [True, False]).space((2,))
    np.savez(tmp_path / "other.npz", low=-1.0)
    with pytest.raises(FrontierError, match="holds low: expected some of lower, upper"):
        Domain.load(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "domain.npz").read_bytes()[:200])
    for path in ("text.npz", "cut.npz"):
        with pytest.raises(FrontierError, match=r"is no domain: expected a file of np\.savez"):
            Domain.load(tmp_path / path)
    with pytest.raises(FrontierError, match=r"none\.npz does not exist: expected a file"):
        Domain.load(tmp_path / "none.npz")
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(FrontierError, match="is no domain"):
        Domain.load(tmp_path / "single.npy")
