"""Fixtures of benchmarks, for the rooms `bench` and `report`; imported when a test needs them."""

import pytest


@pytest.fixture
def tiny(tmp_path):
    """Return a function that writes a benchmark and opens it in a folder of one test."""
    from bench_tiny import write_tiny  # noqa: PLC0415

    from advfrontier.bench.folder import Bench  # noqa: PLC0415

    def make(**options):
        return Bench.open(write_tiny(tmp_path, **options), tmp_path / "out")

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return the smallest benchmark when it is done, and its messages: not to be written to."""
    from bench_tiny import NORMS, write_tiny  # noqa: PLC0415

    from advfrontier.bench.folder import Bench  # noqa: PLC0415
    from advfrontier.bench.run import run_benchmark  # noqa: PLC0415
    from advfrontier.execution import Machine  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("finished")
    bench = Bench.open(write_tiny(folder), folder / "out")
    said = []
    machine = Machine(threads=1, progress=False)
    assert run_benchmark(bench, norms=NORMS, machine=machine, say=said.append) == []
    return bench, said


@pytest.fixture
def results_of():
    """Return a function that makes results of hand-written rows."""
    from advfrontier.bench.frame import Results  # noqa: PLC0415

    def make(*parts):
        results = Results()
        for part in parts:
            results.put_distances(part)
        return results

    return make
