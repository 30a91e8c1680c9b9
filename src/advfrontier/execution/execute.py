"""The one way in: `execute`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import Outcome, R, T, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def execute(
    work: Callable[[T], R],
    tasks: Sequence[T],
    *,
    workers: int = 0,
    ray: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    retries: int = 2,
) -> Iterator[Outcome[T, R]]:
    """Do every task, and yield outcomes as they finish, in no fixed order.

    `workers=0` works in this process. With N workers, N processes share the cores (`threads` each, by default an equal
    part) and, with `device="cuda"`, the GPUs. `ray` names a Ray cluster: `"auto"`, an address, or `"local"` for one on
    this machine with `workers` slots (by default one per core). A task that raises is an outcome with its error; one
    whose worker dies is done again up to `retries` times. `work` and tasks are pickled; `work` should load its model on
    its first call in a process and keep it.
    """
    if workers < 0 or retries < 0 or (threads is not None and threads < 1):
        raise FrontierError(
            f"workers={workers}, threads={threads}, retries={retries}: expected workers and retries of at least 0, "
            "and at least 1 thread"
        )
    if ray is not None:
        from advfrontier.execution.cluster import on_ray  # noqa: PLC0415

        return on_ray(work, tasks, address=ray, slots=workers, device=device, threads=threads, retries=retries)
    if workers:
        from advfrontier.execution.local import in_processes  # noqa: PLC0415

        return in_processes(work, tasks, workers=workers, device=device, threads=threads, retries=retries)
    return _here(work, tasks, threads)


def _here(work: Callable[[T], R], tasks: Sequence[T], threads: int | None) -> Iterator[Outcome[T, R]]:
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        for task in tasks:
            yield attempt(work, task)
    finally:
        torch.set_num_threads(before)
