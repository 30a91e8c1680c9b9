"""Libraries that the tests of some sources need."""

from __future__ import annotations

import warnings

import pytest

from advfrontier.sources.reading import fit_torchvision


@pytest.fixture(scope="session")
def library():
    """Import an optional library, whose imports warn about themselves, or skip."""

    def get(name: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_torchvision()
            return pytest.importorskip(
                name, reason=f"{name} is not installed", exc_type=ImportError
            )

    return get


class Payload:
    """Pickled, it makes a file when it is read."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return (open, (self.file, "w"))


@pytest.fixture
def payload(tmp_path):
    """A malicious object; afterwards, check that it never ran."""
    trace = tmp_path / "payload-ran"
    yield Payload(trace)
    assert not trace.exists(), "the payload ran"
