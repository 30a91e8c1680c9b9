"""The counter of waits and operations is itself tried."""

import numpy as np
import pytest
import torch

from support.device import count_device_work

A = torch.arange(12.0).view(3, 4)
WAITING = {
    "item": lambda: A.sum().item(),
    "if": lambda: 1 if A.any() else 0,
    "int": lambda: int(A.sum()),
    "float": lambda: float(A.sum()),
    "index of a list": lambda: [1, 2][A.sum().long() * 0],
    "max of two": lambda: max(A.sum(), A.mean()),
    "mask": lambda: A[A > 5],
    "assignment to a mask": lambda: A.clone().index_put_((A > 5,), A[0, 0]),
    "where of one argument": lambda: torch.where(A > 5),
    "masked_select": lambda: A.masked_select(A > 5),
    "asarray": lambda: np.asarray(A),
    "to the host": lambda: A.to("cpu"),
    "upload": lambda: torch.tensor([1.0]),
    "upload of an array": lambda: torch.from_numpy(np.ones(2)),
    "equal": lambda: torch.equal(A, A),
}
METHODS = ("nonzero", "unique", "tolist", "numpy", "cpu")
FREE = {
    "arithmetic": lambda: (A * 2 + 1).sum(1),
    "where": lambda: torch.where(A > 5, A, 0.0),
    "slices": lambda: A[:, 1:2],
    "gather": lambda: A.gather(1, A.argmax(1, keepdim=True)),
    "sort": lambda: A.sort(dim=1).values,
    "full": lambda: torch.full((2,), 1.5),
    "dtype": lambda: A.to(torch.float64),
}


@pytest.mark.parametrize("name", WAITING)
def test_waits_are_counted_with_their_place(name):
    with count_device_work() as work:
        WAITING[name]()
    assert work.waits >= 1
    assert all("test_device.py" in place for place in work.where)


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_wait_are_counted(name):
    with count_device_work() as work:
        getattr(A, name)()
    assert work.waits == 1


@pytest.mark.parametrize("name", FREE)
def test_what_does_not_wait_is_not_counted(name):
    with count_device_work() as work:
        FREE[name]()
    assert work.waits == 0


def test_operations_are_counted_in_the_backward_pass_too():
    x = torch.ones(3, requires_grad=True)
    with count_device_work() as forward:
        y = (x * x).sum()
    with count_device_work() as backward:
        torch.autograd.grad(y, x)
    assert forward.operations == 2
    assert backward.operations >= 3
    assert backward.waits == 0


def test_nothing_is_counted_outside():
    with count_device_work() as work:
        pass
    A.sum().item()
    A.tolist()
    assert (work.operations, work.waits) == (0, 0)
