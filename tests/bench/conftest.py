import shutil
from functools import partial

import pytest
from bench_nets import FILE
from bench_running import with_budgets

from advfrontier.bench import Bench, run_benchmark
from advfrontier.bench.benchmark import load_benchmark
from advfrontier.command import typed
from advfrontier.engine import Oracle
from advfrontier.execution import Machine

TINY = """
name = "tiny"
samples = {samples}
seed = 42
norms = {norms}
pool = {pool}
budgets = [40, 80]

[data.fashion-mnist]
source = "fashion-mnist"
radii = {{ L2 = 1.1 }}
"""

MODEL = """
[[models]]
id = "{id}"
source = "{nets}:{id}"
data = "fashion-mnist"
split = "{split}"
batch = 6
"""


def write_tiny(folder, *, models=("plain", "noisy"), norms=("L2",), pool=("fmn", "ddn"), samples=8):
    """Write a benchmark that takes a second, and open it in a folder."""
    text = TINY.format(samples=samples, norms=list(norms), pool=list(pool))
    for k, model in enumerate(models):
        text += MODEL.format(id=model, nets=FILE, split="held-out" if k == 1 else "train")
    (folder / "tiny.toml").write_text(text)
    return Bench(load_benchmark(folder / "tiny.toml"), str(folder / "out"))


@pytest.fixture
def tiny(tmp_path):
    """Make benchmarks in the folder of one test."""
    return partial(write_tiny, tmp_path)


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory):
    """The smallest one when it is done, and its results: not to be written to."""
    bench = write_tiny(tmp_path_factory.mktemp("finished"))
    return bench, run_benchmark(bench)


@pytest.fixture(scope="session")
def raced_once(tmp_path_factory):
    """One with a race on each of its models when it is done, and its results: not to be written to."""
    bench = write_tiny(
        tmp_path_factory.mktemp("raced"), models=("plain", "noisy", "wide"), samples=6
    )
    bench = with_budgets(bench, 1000, 2000)
    with typed("bench run tiny"):
        return bench, run_benchmark(bench, machine=Machine(threads=1))


@pytest.fixture
def finished(finished_once, tmp_path):
    """A copy of it."""
    shutil.copytree(finished_once[0].out, tmp_path / "out")
    return write_tiny(tmp_path)


@pytest.fixture
def passes(monkeypatch):
    """Rows that pass through any model."""
    seen = []
    before = Oracle.logits

    def counted(self, x):
        seen.append(len(x))
        return before(self, x)

    monkeypatch.setattr(Oracle, "logits", counted)
    return seen


@pytest.fixture(scope="session")
def finished_in_two(tmp_path_factory):
    """A benchmark in two norms when it is done."""
    bench = write_tiny(tmp_path_factory.mktemp("two"), norms=("L2", "Linf"))
    return bench, run_benchmark(bench)
