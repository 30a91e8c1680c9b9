"""F17's true distances: proven below, reached by a point above, and between what is certified and
what attacks find.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from advfrontier import evaluate, zoo
from advfrontier.certified import certified_radius

HERE = Path(__file__).parent
TABLE = json.loads((HERE.parent / "zoo" / "exact_distances.json").read_text())
NORMS = ("L1", "Linf")
SOME = 25  # samples, of the sixty and more
ROUNDING = 1e-5  # relative: an attack works in float32, and HiGHS allows 1e-7 in each of its rows


def column(norm, name):
    return np.array([row[name] for row in TABLE[norm]])


@pytest.fixture(scope="module")
def subject():
    rows = torch.from_numpy(column("L1", "sample"))
    images, labels = zoo.images_and_labels()
    return zoo.load("F17"), images[rows], labels[rows]


@pytest.mark.parametrize("norm", NORMS)
def test_truth_is_bracketed_and_no_attack_is_below_it(norm):
    bound, distance, found = (column(norm, name) for name in ("bound", "distance", "found"))
    assert len(bound) >= 50
    assert (bound > 0).all()
    assert (bound <= distance).all()
    assert (distance <= bound * (1 + 1e-4)).all()
    assert (found >= bound * (1 - ROUNDING)).all()


@pytest.mark.parametrize("norm", NORMS)
def test_certified_is_below_the_truth(norm, subject):
    model, images, labels = subject
    bound, start = column(norm, "bound")[:SOME], torch.from_numpy(column(norm, "found") / 2)[:SOME]
    radii = certified_radius(model, images[:SOME], labels[:SOME], norm, start=start).numpy()
    assert (radii > 0).all()
    assert (radii <= bound * (1 + ROUNDING)).all()
    assert np.median(radii / bound) > 0.5  # far from nothing


@pytest.mark.parametrize("norm", NORMS)
def test_no_run_finds_anything_below_the_truth(norm, subject):
    """Every run of a small ensemble by itself."""
    evaluation = evaluate(*subject, norm=norm, ensemble=500)
    assert (evaluation.distances > 0).all()
    for run, found in evaluation.found_by_run.items():
        assert (found >= column(norm, "bound") * (1 - ROUNDING)).all(), run


@pytest.mark.parametrize("norm", NORMS)
def test_program_finds_what_a_fine_grid_finds(norm, monkeypatch):
    """A network of two sums, one of two pixels: all moves tried on a grid."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location(
        "exact_program", HERE.parents[1] / "scripts" / "exact_program.py"
    )
    program = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "exact_program", program)
    spec.loader.exec_module(program)
    rng = np.random.default_rng(3)
    network = tuple(
        (rng.normal(size=shape), rng.normal(size=shape[0]) / 2)
        for shape in ((6, 2), (5, 6), (3, 5))
    )
    pixels = np.array([[0.2, 0.9], [0.5, 0.55]])
    steps = [np.linspace(0, 1, 21)] * 4
    grid = np.stack(np.meshgrid(*steps), -1).reshape(-1, 2, 2)
    value = grid.sum(2).T
    for weight, bias in network[:-1]:
        value = np.maximum(weight @ value + bias[:, None], 0)
    logits = network[-1][0] @ value + network[-1][1][:, None]
    size = np.abs(grid - pixels)
    sizes = size.sum((1, 2)) if norm == "L1" else size.max((1, 2))
    here = np.argmin(sizes)
    label = int(logits[:, here].argmax())
    solved = 0
    for other in {0, 1, 2} - {label}:
        near = sizes[logits[other] >= logits[label]].min(initial=np.inf)
        distance, bound, point = program.nearest(
            network, program.Ball(norm, pixels, 4.0), label, other, 60
        )
        assert (point is None) == np.isinf(near)
        if point is not None:
            solved += 1
            assert bound <= distance * (1 + 1e-5)
            assert near - 4 * 0.025 <= distance <= near + 1e-6
    assert solved
