"""Libraries that the tests of some sources need."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch


@pytest.fixture(scope="session")
def library():
    """Import an optional library, or skip.

    Their imports warn about themselves. And the wheels of torchvision are compiled for CUDA: beside a CPU build of
    torch their operators do not load, and torchvision imports only once someone has declared the two it decorates.
    """

    def get(name: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                importlib.import_module("torchvision")
            except ImportError:
                pass
            except RuntimeError:
                declared = torch.library.Library("torchvision", "FRAGMENT")
                for operator in ("nms", "qnms"):
                    declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                get.keep = declared
            return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)

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
