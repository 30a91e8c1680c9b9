"""Where and how work is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advfrontier.errors import FrontierError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Machine:
    """A device, and the processes that share the work.

    Args:
        device: Where the model runs: `cpu`, `cuda`, `cuda:1`, `mps`, a `torch.device`, or `auto` for the fastest there
            is. By default where the model is.
        dtype: `float32` or `float64`, or the torch dtype of that name. By default that of the model's parameters.
        threads: Threads of each process; by default those PyTorch has here. Results depend on them in the last bits.
        workers: Worker processes; 0 works in this process.
        ray: A Ray cluster: `auto`, an address, or `local` for one on this machine with `workers` slots.
        pack: How many runs share a batch. More than 1 helps where there are few samples; results are then equal up to
            rounding only.
        keep_state: Whether units keep what is needed to extend them without repeating queries.
        progress: Show a progress bar; by default on terminals and in notebooks.
        until: When to stop, as `time.time()` tells it: no task is begun after it but the first.
        executor: What does the tasks instead, if given: called with the work and the tasks, it yields `Outcome`s.
    """

    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    threads: int | None = None
    workers: int = 0
    ray: str | None = None
    pack: int = 1
    keep_state: bool = True
    progress: bool | None = None
    until: float | None = None
    executor: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("device", "dtype"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)).removeprefix("torch."))
        if self.dtype not in {None, "float32", "float64"}:
            raise FrontierError(f"dtype is {self.dtype}: expected float32 or float64")
        for name, least in (("workers", 0), ("threads", 1), ("pack", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise FrontierError(f"{name} is {value}: expected at least {least}")

    @property
    def late(self) -> bool:
        """Whether the time given is up."""
        return self.until is not None and time.time() >= self.until

    @property
    def here(self) -> bool:
        """Whether the work is done in this process."""
        return self.workers == 0 and self.ray is None


def as_machine(machine: Machine | str | torch.device | None) -> Machine:
    """A machine, a device alone, or this process where the model is."""
    return machine if isinstance(machine, Machine) else Machine(machine)
