"""The one way in: `execute`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import Outcome, R, T, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from advfrontier.execution.machine import Machine


def execute(
    work: Callable[[T], R], tasks: Sequence[T], machine: Machine, *, retries: int = 2
) -> Iterator[Outcome[T, R]]:
    """Do every task, and yield outcomes as they finish, in no fixed order; those not begun in time are left out.

    The first ones are begun in any case, so that work which takes long to set up gets on however little time it has.

    Worker processes share the cores (`machine.threads` each, by default an equal part) and, with the device `cuda`, the
    GPUs. A task that raises is an outcome with its error; one whose worker dies is done again up to `retries` times.
    `work` and tasks are pickled; `work` should load its model on its first call in a process and keep it.
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
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    torch.set_num_threads(machine.threads or before)
    try:
        for task in tasks:
            yield attempt(work, task)
            if machine.late:
                return
    finally:
        torch.set_num_threads(before)
