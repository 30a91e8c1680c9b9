"""Machines: what stands for one, and which numbers they take."""

import time

import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import Machine, as_machine


@pytest.mark.parametrize(("gpus", "workers"), [(0, 0), (1, 0), (2, 2), (4, 4)])
def test_cuda_is_one_worker_per_gpu(monkeypatch, gpus, workers):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    machine = as_machine("cuda")
    assert (machine.device, machine.workers) == ("cuda", workers)
    assert as_machine("cuda:1").workers == 0  # a GPU that is named is the only one
    assert as_machine(Machine("cuda", workers=1)).workers == 1


def test_machine_is_this_process_by_default():
    machine = as_machine(None)
    assert machine.here
    assert machine.device is None
    assert not as_machine(Machine(workers=1)).here
    assert not as_machine(Machine(ray="local")).here


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"workers": 1.5}, "workers is 1.5: expected a whole number"),
        ({"workers": -1}, "workers is -1: expected at least 0"),
        ({"threads": 0}, "threads is 0: expected at least 1"),
    ],
)
def test_machine_refuses_numbers(option, message):
    with pytest.raises(FrontierError, match=message):
        Machine(**option)


def test_machine_is_late_after_its_time():
    assert not Machine().late
    assert not Machine(until=time.time() + 60).late
    assert Machine(until=time.time() - 1).late
