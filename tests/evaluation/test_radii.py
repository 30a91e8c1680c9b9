"""Radii: as they are typed, as a record remembers them, and as they are usual."""

import math

import pytest

from advfrontier.errors import FrontierError
from advfrontier.evaluation.radii import (
    as_radius,
    chosen_radii,
    parse_radii,
    reference_radii,
    remember_radii,
)
from advfrontier.frontier import distance_quantile


def test_radii_before_any_norm_is_named_hold_in_all_norms():
    text = "0.25, L2=0.5,1,Linf=8/255"
    assert parse_radii(text, "L2") == (("0.25", 0.25), ("0.5", 0.5), ("1", 1.0))
    assert parse_radii(text, "Linf") == (("0.25", 0.25), ("8/255", 8 / 255))
    assert parse_radii(text, "L1") == (("0.25", 0.25),)
    assert [radius for _, radius in parse_radii(text)] == [0.25, 0.5, 1.0, 8 / 255]
    assert parse_radii("") == ()


@pytest.mark.parametrize("size", ["x", "-1", "8/0", "inf", "nan", "1/1e9999"])
def test_text_that_is_no_radius_is_refused(size):
    with pytest.raises(FrontierError, match=f"'{size}' is not a radius: expected a number such as"):
        parse_radii(size)


def test_one_radius_is_a_number_or_its_text():
    assert as_radius(0.5) == 0.5
    assert as_radius("8/255") == 8 / 255
    for text in ("0.5,1", "L2=0.5", ""):
        with pytest.raises(FrontierError, match=f"'{text}' is not one radius: expected a number"):
            as_radius(text)


def test_usual_radii_go_by_the_name_of_the_data():
    assert reference_radii("cifar10:DIR", "Linf") == (("8/255", 8 / 255),)
    assert reference_radii("imagefolder:ImageNet", "L2") == (("3", 3.0),)
    assert [size for _, size in reference_radii("fashion-mnist", "L2")] == [0.5, 1.1, 1.5]
    assert reference_radii("mine", "L2") == ()


def test_chosen_radii_are_typed_or_remembered_or_quartiles(problem, evaluation):
    shares = (0.25, 0.5, 0.75)
    broken = evaluation.distances[(evaluation.distances > 0) & (evaluation.distances < math.inf)]
    quartiles = [float(f"{distance_quantile(broken, share):.2g}") for share in shares]
    assert [size for _, size in chosen_radii(evaluation)] == list(dict.fromkeys(quartiles))
    assert chosen_radii(evaluation, "L2=0.5") == (("0.5", 0.5),)
    before = evaluation.radii
    remember_radii(evaluation, None)  # asks for none, and changes nothing
    assert evaluation.radii == before
