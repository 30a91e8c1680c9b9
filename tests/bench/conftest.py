import pytest
from bench_tiny import NORMS, write_tiny

from advfrontier.bench.folder import Bench
from advfrontier.bench.frame import Results
from advfrontier.bench.run import run_benchmark
from advfrontier.execution import Machine


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


@pytest.fixture
def results_of():
    """Return a function that makes results of hand-written rows."""

    def make(*parts):
        results = Results()
        for part in parts:
            results.put_distances(part)
        return results

    return make
