import re

import numpy as np
import pytest
from bench_nets import FILE

from advfrontier.bench.folder import Bench
from advfrontier.bench.frame import Results, make_rows
from advfrontier.bench.run import run_benchmark
from advfrontier.execution import Machine

TINY = """
samples = 6
budgets = [40, 80]
pool = {pool}
baseline = "held-out"

[data.fashion-mnist]
source = "fashion-mnist"
radii = {{ L0 = 12, L2 = 1.1 }}
"""

MODEL = """
[[models]]
id = "{id}"
source = "{nets}:{id}"
data = "fashion-mnist"
split = "{split}"
batch = 4
"""

NORMS = ("L0", "L2")


def write_tiny(folder, *, models=("plain", "noisy"), pool=("fmn", "sigma_zero", "ddn"), more=""):
    """Write a benchmark that takes seconds; the second model is held out."""
    text = TINY.format(pool=re.sub("'", '"', str(list(pool)))) + more
    for place, model in enumerate(models):
        split = "held-out" if place == 1 else "train"
        text += MODEL.format(id=model, nets=FILE, split=split)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def tiny(tmp_path):
    """Return a function that writes a benchmark and opens it in a folder of one test."""

    def make(**options):
        return Bench.open(write_tiny(tmp_path, **options), tmp_path / "out")

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return the smallest benchmark when it is done, and what it said: not to be written to."""
    folder = tmp_path_factory.mktemp("finished")
    bench = Bench.open(write_tiny(folder), folder / "out")
    said = []
    failures = run_benchmark(
        bench, norms=NORMS, machine=Machine(threads=1, progress=False), say=said.append
    )
    assert failures == []
    return bench, said


def rows_of(norm, model, split, found, *, data="d", samples=None):
    """Return rows of a table of distances: found is (ensemble, budget) to distances."""
    count = len(next(iter(found.values())))
    names = samples or [f"s{k}" for k in range(count)]
    arrays = {key: np.array(values, dtype=float) for key, values in found.items()}
    return make_rows(
        norm=norm, model=model, data=data, split=split, samples=names, distances=arrays
    )


@pytest.fixture
def results_of():
    """Return a function that makes results of hand-written rows."""

    def make(*parts):
        results = Results()
        for part in parts:
            results.put_distances(part)
        return results

    return make
