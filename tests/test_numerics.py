"""Distances do not change without a new version of the numerics, which records are told apart
by.
"""

import json

import pytest
import torch
from support.golden import FILE, distances_now

from advfrontier.numerics import NUMERICS
from advfrontier.threat.names import NORMS

STORED = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found():
    return distances_now()


def changed(stored, found):
    """Return the runs whose distances differ by more than rounding, or that are in one table
    only.
    """
    names = sorted(stored.keys() ^ found.keys())
    for name in stored.keys() & found.keys():
        one, two = (torch.tensor(table[name], dtype=torch.float64) for table in (stored, found))
        if one.shape != two.shape or not torch.allclose(one, two, rtol=1e-6, atol=0):
            names.append(name)
    return names


@pytest.mark.parametrize("norm", NORMS)
def test_distances_are_those_of_the_stored_version(norm, found):
    if STORED["numerics"] != NUMERICS:
        pytest.fail(
            f"the stored distances are of numerics {STORED['numerics']}, and this is {NUMERICS}: "
            "run python scripts/golden.py"
        )
    names = changed(STORED["distances"][norm], found[norm])
    if names:
        pytest.fail(
            f"distances changed without a new numerics version in {norm} ({', '.join(names)}): "
            'raise NUMERICS["threat"], ["solvers"] or ["engine"] and run python scripts/golden.py'
        )


def test_small_change_of_one_distance_is_noticed(found):
    table = found["L2"]
    assert changed(table, table) == []
    other = {name: list(values) for name, values in table.items()}
    other["fmn"][-1] *= 1 + 3e-6
    del other["ddn"]
    assert changed(table, other) == ["ddn", "fmn"]


@pytest.mark.parametrize("norm", NORMS)
def test_stored_distances_are_of_broken_samples(norm):
    """A table of runs that found nothing would notice no change."""
    for run, distances in STORED["distances"][norm].items():
        finite = [distance for distance in distances if 0 < distance < float("inf")]
        assert len(finite) >= len(distances) / 4, run
