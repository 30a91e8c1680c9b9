"""Records of AutoAttack: nothing is repeated, and a damaged file is made again."""

from pathlib import Path

import pytest
from support.models import conv_net, samples

from advfrontier import FrontierError
from advfrontier.evaluation.baseline import (
    load_baseline,
    run_autoattack,
)
from advfrontier.evaluation.inputs import as_data
from advfrontier.jobs import Model

FAR = 20.0  # a radius in ℓ2 within which AutoAttack breaks every sample at once


@pytest.fixture(scope="module")
def problem():
    """Return a model, and samples in the range of eight features by eight."""
    model = conv_net(seed=1)
    images, labels = samples(model, 6, (1, 8, 8), seed=4)
    return Model("net", model), images, labels


def data(problem, count):
    return as_data(problem[1][:count], problem[2][:count])


@pytest.fixture
def begun(problem, tmp_path):
    """Return a record of AutoAttack at one radius on four samples, in two batches."""
    place = tmp_path / "L2"
    options = {"norm": "L2", "batch_size": 2}
    points = run_autoattack(place, problem[0], data(problem, 4), radii=[FAR], **options)
    return place, options, points


def written(place):
    return {path: path.stat().st_mtime_ns for path in Path(place).rglob("*.safetensors")}


def test_a_second_radius_repeats_nothing_of_the_first(begun, problem):
    place, options, points = begun
    before = {p: t for p, t in written(place).items() if "radii" in p.parts}
    both = run_autoattack(place, problem[0], data(problem, 4), radii=[FAR + 1, FAR], **options)
    assert both.radii == (FAR, FAR + 1)
    assert both.at(FAR) == points.at(FAR)
    after = written(place)
    assert {path: after[path] for path in before} == before
    assert len(before) == 2


def test_samples_that_are_added_are_attacked_at_all_radii(begun, problem, tmp_path):
    place, options, _ = begun
    grown = run_autoattack(place, problem[0], data(problem, 6), radii=[FAR + 1], **options)
    radii = [FAR, FAR + 1]
    fresh = run_autoattack(tmp_path / "new", problem[0], data(problem, 6), radii=radii, **options)
    assert grown == fresh


def test_a_damaged_file_is_named_and_made_again(begun, problem):
    place, options, points = begun
    victim = next(path for path in Path(place).rglob("*.safetensors") if "radii" in path.parts)
    victim.write_bytes(victim.read_bytes()[:-4])
    with pytest.raises(FrontierError, match="lacks AutoAttack at 20 on samples"):
        load_baseline(place)
    again = run_autoattack(place, problem[0], data(problem, 4), radii=[FAR], **options)
    assert (again.radii, again.accuracies) == (points.radii, points.accuracies)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("inf"), float("nan")])
def test_a_radius_that_is_none_is_refused_before_the_record_keeps_it(begun, problem, radius):
    place, options, points = begun
    with pytest.raises(FrontierError, match=r"a radius of .*: expected one that is finite"):
        run_autoattack(place, problem[0], data(problem, 4), radii=[radius], **options)
    assert load_baseline(place) == points
