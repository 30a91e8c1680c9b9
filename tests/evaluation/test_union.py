"""Unions of norms from records: the same distances, comparison, ranks, and what is refused."""

import numpy as np
import pytest
from support.models import conv_net, samples

from advfrontier import evaluate, union
from advfrontier.errors import FrontierError
from advfrontier.evaluation.union import compare_unions, rank_unions, unions
from advfrontier.threat.names import norm_symbol

SHAPE = (1, 6, 6)
RADII = "L1=2,Linf=8/255"


def evaluated(norm, *, seed=5, name="first", queries=100, count=6, out=None):
    model = conv_net(SHAPE, classes=10, seed=seed)
    images, labels = samples(conv_net(SHAPE, classes=10, seed=5), count, SHAPE, seed=5)
    return evaluate(model, images, labels, norm=norm, ensemble=queries, name=name, out=out)


@pytest.fixture(scope="module")
def first():
    return [evaluated("L1"), evaluated("Linf")]


def test_union_is_the_least_of_the_norms_sample_by_sample(first):
    found = union(first, radii=RADII)
    expected = np.minimum(first[0].distances / 2, first[1].distances / (8 / 255))
    assert np.array_equal(found.distances, expected)
    assert found.radii == {"L1": 2.0, "Linf": 8 / 255}
    assert (found.model, found.queries, found.samples) == ("first", 100, first[0].samples)
    assert norm_symbol(found.name) == "min(ℓ1/2, ℓ∞/(8/255))"
    assert union(first, radii="2,8/255").name == found.name
    assert found.to_dict()["accuracies"][0]["robust_accuracy"]["estimate"] == np.mean(expected > 1)


def test_norms_without_a_radius_are_left_out(first):
    found = union([*first, evaluated("L2")], radii=RADII)
    assert list(found.by_norm) == ["L1", "Linf"]


def test_records_at_different_budgets_are_read_at_the_smaller_one(first):
    longer = evaluated("L1", queries=200)
    found = union([longer, first[1]], radii=RADII)
    assert found.queries == 100
    assert np.array_equal(found.by_norm["L1"], first[0].distances)


def test_two_models_are_compared_and_ranked(first):
    second = [evaluated(norm, seed=6, name="second") for norm in ("L1", "Linf")]
    found = unions([*first, *second], radii=RADII)
    assert [each.model for each in found] == ["first", "second"]
    result = compare_unions(*found)
    areas = [each.aurec(result.E).value for each in found]
    assert result.aurec == tuple(areas)
    assert result.run_next == {}
    table = rank_unions(found).norms[0]
    assert table.norm == found[0].name
    assert {row.model: row.aurec for row in table.rows} == {
        each.model: each.aurec(table.E).value for each in found
    }
    assert table.rows[0].robust == {"1": found[0].robust_accuracy()}


def test_unions_of_different_radii_are_not_compared(first):
    other = union(first, radii="L1=3,Linf=8/255")
    with pytest.raises(FrontierError, match="L1=2,Linf=8/255, first in L1=3,Linf=8/255: expected"):
        compare_unions(union(first, radii=RADII), other)


@pytest.mark.parametrize(
    ("radii", "message"),
    [
        ("L1=2,L2=1,Linf=8/255", "first has no evaluation in L2 among these records"),
        ("L1=2,8/255", "'8/255' in 'L1=2,8/255' names no norm"),
        ("L1=2,L1=3", "two radii of L1"),
        ("2", r"1 radii \(2\) for evaluations in L1, Linf: expected one for each"),
        ("L1=2,Linf=0", "radius 0.0 of Linf cannot scale a path"),
        ("L1=2", "expected the same two norms or more"),
        ("L1=2,Linf=much", "'much' is not a radius"),
        ("L1=2,L7=1", "unknown norm 'L7'"),
    ],
)
def test_radii_that_make_no_sense_are_refused(first, radii, message):
    with pytest.raises(FrontierError, match=message):
        union(first, radii=radii)


def test_records_of_different_models_and_samples_are_refused(first):
    other = evaluated("Linf", seed=6)
    with pytest.raises(FrontierError, match="are of different models of the name first"):
        union([first[0], other], radii=RADII)
    fewer = evaluated("Linf", count=4)
    with pytest.raises(FrontierError, match="hold different samples"):
        union([first[0], fewer], radii=RADII)
    with pytest.raises(FrontierError, match=r"evaluations of 2 models \(first, second\)"):
        union([*first, *[evaluated(n, seed=6, name="second") for n in ("L1", "Linf")]], radii=RADII)


def test_a_union_is_no_norm_to_evaluate_in(first):
    name = union(first, radii=RADII).name
    with pytest.raises(FrontierError, match="is a union of norms: evaluate in each of them"):
        evaluated(name)
