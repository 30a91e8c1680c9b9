"""Worker processes on this machine.

Every worker is a pool of its own with one process and one task in it. When a process dies it is
then known which task it died of: only that one is done again, and only that one is reported if it
kills its worker every time.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.execution.tasks import Machine, Outcome, R, T, attempt_packed, in_words, packed


def in_processes(
    work: Callable[[T], R], tasks: Sequence[T], machine: Machine, *, retries: int
) -> Iterator[Outcome[T, R]]:
    """Yield outcomes of all tasks, done by as many processes as the machine says.

    Args:
        work: Function that does a task.
        tasks: Tasks, each of which can be pickled.
        machine: Device, threads and number of processes.
        retries: How often a task is repeated after its process died.
    """
    hint = ", made of importable functions and classes; or use workers=0"
    content = packed(work, pickle.dumps, "worker processes", hint)
    workers = min(machine.workers, len(tasks))
    threads = machine.threads or max(1, cores() // max(workers, 1))
    team = [_Worker(content, threads, gpu) for gpu in _gpus(str(machine.device), workers)]
    free = list(team)
    busy: dict[
        Future[bytes], tuple[_Worker, T, int]
    ] = {}  # with how often the task has killed its worker
    waiting = deque((task, 0) for task in tasks)
    finished: list[Outcome[T, R]] = []
    try:
        while waiting or busy or finished:
            while waiting and free:
                task, deaths = waiting.popleft()
                try:
                    data = pickle.dumps(task)
                except Exception as error:  # noqa: BLE001
                    finished.append(Outcome(task, None, in_words(error)))
                    continue
                worker = free.pop()
                busy[worker.submit(data)] = worker, task, deaths
            if machine.late:
                waiting.clear()
            yield from finished  # only now, while the workers are at their next tasks
            finished = []
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                worker, task, deaths = busy.pop(future)
                free.append(worker)
                if not isinstance(future.exception(), BrokenProcessPool):
                    finished.append(Outcome(task, *pickle.loads(future.result())))  # noqa: S301
                elif not worker.replaced(retries):
                    waiting.appendleft((task, deaths))  # it never began
                elif deaths < retries:
                    waiting.append(
                        (task, deaths + 1)
                    )  # after the others, in case it is what kills workers
                else:
                    finished.append(Outcome(task, None, died(deaths + 1)))
    finally:
        for worker in team:  # also one that an interruption caught between free and busy
            worker.stop()


def died(times: int) -> str:
    """Describe a task that never came back.

    Args:
        times: How often its process died.
    """
    return (
        f"its worker process died {times} times: killed from outside, out of memory, or a crash "
        "in native code"
    )


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """One process, replaced when it dies; it ends with this process, by its lifeline."""

    def __init__(self, work: bytes, threads: int, gpu: str | None) -> None:
        self._settings = work, threads, gpu
        self._failed_starts = 0
        self._start()

    def _start(self) -> None:
        context = _context()
        end, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            1, context, initializer=_settle, initargs=(end, *self._settings)
        )
        self._end = end
        self._ready: Future[int] | None = None

    def submit(self, task: bytes) -> Future[bytes]:
        """Hand a task over; the process is started by the first one."""
        if self._ready is None:
            self._ready = self._pool.submit(os.getpid)
            self._end.close()  # the process has its own copy by now
        return self._pool.submit(attempt_packed, _load, task)

    def replaced(self, retries: int) -> bool:
        """Replace the dead process; return whether the old one had at least started."""
        started = self._ready is not None and self._ready.exception() is None
        self._failed_starts = 0 if started else self._failed_starts + 1
        self.stop()
        if self._failed_starts > retries:
            raise FrontierError(
                "worker processes die before their first task: expected them to import the main "
                "script; put what it "
                'does under `if __name__ == "__main__":`, or use workers=0'
            )
        self._start()
        return started

    def stop(self) -> None:
        """End the process at once, whatever it is doing."""
        self._lifeline.close()
        self._end.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


@functools.cache
def _context() -> BaseContext:
    """Return how processes are started: on Linux from one that has imported torch already.

    That one never touches a GPU, and runs nothing but the start of workers.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def _gpus(device: str, workers: int) -> list[str | None]:
    """Return the GPU of each worker: alternately, if there are several and none was named."""
    if device != "cuda":
        return [None] * workers
    import torch  # noqa: PLC0415

    there = [str(k) for k in range(torch.cuda.device_count())]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",")[: len(there)] if visible else there
    return [names[k % len(names)] if len(names) > 1 else None for k in range(workers)]


# What follows runs in the worker process.

_WORK = b""


def _settle(lifeline: Connection, work: bytes, threads: int, gpu: str | None) -> None:
    global _WORK  # noqa: PLW0603
    _WORK = work
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    import torch  # noqa: PLC0415

    torch.set_num_threads(threads)


def _end_with_parent(lifeline: Connection) -> None:
    lifeline.poll(
        None
    )  # nothing is ever sent: it returns when the parent closes its end, or is gone
    os._exit(1)


@functools.cache
def _load() -> Callable[[Any], Any]:
    try:
        work: Callable[[Any], Any] = pickle.loads(_WORK)  # noqa: S301
    except (
        AttributeError,
        ImportError,
    ) as error:  # classes travel as the name they are imported by
        raise FrontierError(
            f"a worker process cannot find what the work is made of ({error}): expected models, "
            "data and solvers of importable files; put the class into a file and import it from "
            "there, or use workers=0"
        ) from error
    return work
