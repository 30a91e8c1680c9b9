"""Many independent tasks: where and how they are done, and what becomes of each."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from advfrontier.errors import FrontierError, whole_number

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Machine:
    """Device, and the processes that share the work.

    Args:
        device: Device of the model: `cpu`, `cuda`, `cuda:1`, `mps`, a `torch.device`, or `auto` for
            the fastest there is. By default the model's own.
        dtype: `float32` or `float64`, or the torch dtype of that name. By default the type of the
            model's parameters.
        threads: Threads of each process; by default those PyTorch has here. Results depend on them
            in the last bits.
        workers: Worker processes; 0 works in this process.
        ray: A Ray cluster: `auto`, an address, or `local` for one on this machine with `workers`
            slots.
        keep_state: Whether units keep what is needed to extend them without repeating queries.
        progress: Show a progress bar; by default on terminals and in notebooks.
        until: When to stop, as `time.time()` tells it: no task is begun after it but the first.
        executor: Replaces the process pool: called with the function and the tasks, it yields
            `Outcome`s.
    """

    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    threads: int | None = None
    workers: int = 0
    ray: str | None = None
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
        for name, least in (("workers", 0), ("threads", 1)):
            if (value := getattr(self, name)) is None:
                continue
            object.__setattr__(self, name, whole_number(value, name))
            if value < least:
                raise FrontierError(f"{name} is {value}: expected at least {least}")

    @property
    def late(self) -> bool:
        """Return whether the time given is up."""
        return self.until is not None and time.time() >= self.until

    @property
    def here(self) -> bool:
        """Return whether the work is done in this process."""
        return self.workers == 0 and self.ray is None


def as_machine(machine: Machine | str | torch.device | None) -> Machine:
    """Return a machine: as given, of a device alone, or this process where the model is.

    The device `cuda` stands for all GPUs of this machine: several get one worker process each.

    Args:
        machine: A machine, a device, or None for this process.
    """
    if isinstance(machine, Machine):
        return machine
    if str(machine) != "cuda":
        return Machine(machine)
    import torch  # noqa: PLC0415

    gpus = torch.cuda.device_count()
    return Machine(machine, workers=gpus if gpus > 1 else 0)


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """Task with its result, or with an error as text.

    Args:
        task: Task that was tried.
        result: Result of the task; None after an error.
        error: Error as text; None without one.
    """

    task: T
    result: R | None
    error: str | None


def attempt(work: Callable[[T], R], task: T) -> Outcome[T, R]:
    """Do one task; an exception is its outcome, and the others continue.

    Args:
        work: Function that does a task.
        task: Argument of the function.
    """
    try:
        return Outcome(task, work(task), None)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return Outcome(task, None, in_words(error))


def attempt_packed(load: Callable[[], Callable[[Any], Any]], task: bytes) -> bytes:
    """Do one task in another process, and return pickled (result, error).

    Plain pickle, because torch would hand tensors between processes through files that die with the
    worker.

    Args:
        load: Returns the function that does a task.
        task: The task, pickled.
    """
    outcome: Outcome[Any, Any] = attempt(lambda data: load()(pickle.loads(data)), task)  # noqa: S301
    try:
        return pickle.dumps((outcome.result, outcome.error))
    except Exception as error:  # noqa: BLE001
        return pickle.dumps((None, in_words(error)))


def packed(work: object, dumps: Callable[[object], bytes], place: str, hint: str = "") -> bytes:
    """Pickle the work for processes elsewhere.

    Args:
        work: Function that does a task.
        dumps: Pickles an object.
        place: Name of the receiver, for messages.
        hint: Advice at the end of messages.
    """
    try:
        return dumps(work)
    except Exception as error:
        raise FrontierError(
            f"the work cannot be sent to {place} ({in_words(error)}): expected something that can "
            f"be pickled{hint}"
        ) from error


def in_words(error: BaseException) -> str:
    """Return an error on one line; of a mistake in a program also where it was raised.

    Args:
        error: Error that a task raised.
    """
    if isinstance(error, FrontierError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def execute(
    work: Callable[[T], R], tasks: Sequence[T], machine: Machine, *, retries: int = 2
) -> Iterator[Outcome[T, R]]:
    """Do every task that begins in time, and yield outcomes as they finish, in any order.

    The first ones are begun in any case, so that work which takes long to set up gets on however
    little time it has.

    Worker processes share the cores (`machine.threads` each, by default an equal part) and, with
    the device `cuda`, the GPUs. A task that raises is an outcome with its error; one whose worker
    dies is done again up to `retries` times. `work` and tasks are pickled; `work` should load its
    model on its first call in a process and keep it.

    Args:
        work: Function that does a task.
        tasks: Tasks, in the order in which they are begun.
        machine: Device, processes and cluster.
        retries: How often a task is repeated after its process died.
    """
    if retries < 0:
        raise FrontierError(f"retries is {retries}: expected at least 0")
    if machine.executor is not None:
        found: Iterator[Outcome[T, R]] = machine.executor(work, tasks)
        return found
    if machine.ray is not None:
        from advfrontier.execution.cluster import on_ray  # noqa: PLC0415

        return on_ray(work, tasks, machine, retries=retries)
    if machine.workers:
        from advfrontier.execution.local import in_processes  # noqa: PLC0415

        return in_processes(work, tasks, machine, retries=retries)
    return _here(work, tasks, machine)


def _here(work: Callable[[T], R], tasks: Sequence[T], machine: Machine) -> Iterator[Outcome[T, R]]:
    with threads(machine.threads):
        for task in tasks:
            yield attempt(work, task)
            if machine.late:
                return


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with `count` threads, or as many as are set; the number changes rounding.

    Args:
        count: Number of threads; None leaves it as it is.
    """
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
