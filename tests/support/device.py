"""What a piece of code would cost on a GPU, counted on the CPU: operations launched, and waits.

    with count_device_work() as work:
        solver.step(problem, state, 0, answer)
    assert work.waits == 0, work.where
    assert work.operations <= 60

A wait is a place where Python needs a value that the device has yet to compute (`item`, `bool`, `if
tensor`, a boolean index, `nonzero`, `cpu`, `numpy`, …), or where it sends the device numbers of its
own (`torch.tensor`, `from_numpy`). To leave out a model's own operations, count as many bare passes
of it and subtract them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose result decides a shape or a Python value, or that bring numbers from Python.
_WAITING = {
    "allclose",
    "_local_scalar_dense",  # item, bool, int, float, index, if
    "equal",
    "is_nonzero",
    "lift_fresh",  # torch.tensor, from_numpy, as_tensor
    "masked_select",
    "nonzero",  # also torch.where with one argument
    "unique_dim",
    "_unique2",
    "unique_consecutive",
    "bincount",
}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# On the CPU these need no operation, so that they are seen only where they are called.
_METHODS = ("tolist", "numpy", "cpu", "to")


@dataclass
class DeviceWork:
    """Counts of what ran inside `count_device_work`.

    Attributes:
        operations: Calls of PyTorch's operators, views included; each is a launch at most.
        waits: How often the device would have been waited for.
        where: The source lines of the waits, with how often each waited.
        names: How often each operator was called.
        largest: Numbers in the largest tensor of floats that an operator returned.
    """

    operations: int = 0
    waits: int = 0
    where: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    largest: int = 0

    def wait(self, reason: str) -> None:
        """Record a wait at the line of the caller that is neither PyTorch's nor this file's."""
        self.waits += 1
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file != __file__ and "/torch/" not in file and "unittest" not in file:
                self.where[f"{file}:{frame.f_lineno} ({reason})"] += 1
                return
            frame = frame.f_back


class _Counting(TorchDispatchMode):
    def __init__(self, work: DeviceWork) -> None:
        super().__init__()
        self.work = work

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        self.work.operations += 1
        self.work.names[name] += 1
        masked = name in _INDEXING and _masked(args[1])
        counted = name == "repeat_interleave" and func._overloadname == "Tensor"
        if name in _WAITING or masked or counted:
            self.work.wait(name)
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor) and part.is_floating_point():
                self.work.largest = max(self.work.largest, part.numel())
        return result


def _masked(indices) -> bool:
    """Tell whether an index holds a mask, whose number of entries decides a shape."""
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


@contextmanager
def count_device_work() -> Iterator[DeviceWork]:
    """Count operations and waits of everything that runs inside, autograd included."""
    work = DeviceWork()
    with ExitStack() as stack:
        for name in _METHODS:
            stack.enter_context(patch.object(torch.Tensor, name, _watched(work, name)))
        stack.enter_context(_Counting(work))
        yield work


def _watched(work: DeviceWork, name: str):
    method = getattr(torch.Tensor, name)

    def watched(self, *args, **kwargs):
        if name != "to" or "cpu" in (*args, *kwargs.values()):
            work.wait(name)
        return method(self, *args, **kwargs)

    return watched
