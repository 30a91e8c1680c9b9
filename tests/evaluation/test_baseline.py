"""AutoAttack into records: its radii, what resumes, what is refused, and what is shown."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.models import conv_net, samples

from advfrontier import FrontierError
from advfrontier.attacks.autoattack import KnownPoints
from advfrontier.evaluation import baseline
from advfrontier.evaluation.baseline import (
    baseline_table,
    load_baseline,
    radii_to_run,
    run_autoattack,
    why_no_autoattack,
)
from advfrontier.evaluation.inputs import as_data
from advfrontier.frontier.optimality import baseline_aoi, baseline_radii
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


def test_every_radius_has_an_accuracy_and_counted_queries(begun):
    place, _, points = begun
    assert points.radii == (FAR,)
    assert points.accuracies == (0.0,)
    assert points.queries[0] > 0
    assert load_baseline(place) == points


def test_a_norm_without_autoattack_is_refused(problem, tmp_path):
    with pytest.raises(FrontierError, match="AutoAttack does not attack in L0: expected one of L1"):
        run_autoattack(tmp_path, problem[0], data(problem, 2), norm="L0", radii=[1.0])
    assert not list(tmp_path.iterdir())
    assert why_no_autoattack("L0") == "AutoAttack does not attack in L0"
    assert why_no_autoattack("L2") is None


def test_a_library_that_is_missing_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(baseline, "find_spec", lambda *_: None)
    assert "pip install 'advfrontier[autoattack]'" in why_no_autoattack("L2")


def test_radii_are_those_written_or_usual_and_percentiles_of_the_frontier():
    frontier = np.linspace(0.1, 1, 20)
    percentiles = baseline_radii(frontier).tolist()
    assert radii_to_run("4/255, 0.5", "mine", "L2", None) == [4 / 255, 0.5]
    assert radii_to_run("4/255", "mine", "L2", frontier) == [4 / 255, *percentiles]
    assert radii_to_run(None, "mine", "L2", frontier) == percentiles
    assert radii_to_run(None, "cifar10:data", "Linf", None) == [8 / 255]
    assert radii_to_run("4/255", "cifar10:data", "Linf", None) == [4 / 255]
    with pytest.raises(FrontierError, match="expected --radii 4/255,8/255 or --trace"):
        radii_to_run(None, "mine", "L2", None)


def test_table_has_a_row_per_radius_and_the_aoi_where_the_frontier_is_known():
    points = KnownPoints((0.5, 1.5), (0.75, 0.25), (100.0, 50.0), ("careful",))
    table, facts = baseline_table(points, None, "L2", "base/L2")
    assert table.columns[0].name == "ε in ℓ2"
    assert [tuple(row.values()) for row in table.records()] == [(0.5, 0.75, 100), (1.5, 0.25, 50)]
    assert table.notes == ("careful", "record: base/L2")
    assert facts["aoi"] is None
    frontier = np.array([0.4, 1.0, 1.4, 2.0])
    table, facts = baseline_table(points, frontier, "L2", "base/L2")
    expected = baseline_aoi(points.radii, points.accuracies, frontier)
    said = f"AOI of AutoAttack: {100 * expected.value:.2f} % by straight lines"
    assert table.notes[1].startswith(said)
    assert json.loads(json.dumps(facts))["aoi"]["value"] == expected.value
