"""Tasks on a Ray cluster: Ray places them, and repeats tasks of dead workers and lost nodes.

Only as many tasks are handed over as keep every slot busy, so that thousands wait here and not in
Ray. `work` is put into the object store once; a worker fetches it on its first task.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from advfrontier.errors import FrontierError
from advfrontier.execution.local import cores, died
from advfrontier.execution.tasks import Machine, Outcome, R, T, attempt_packed, in_words, packed

_AHEAD = 2  # tasks handed over per slot: one is done while the next travels
_SECONDS = 5.0  # between two looks at how large the cluster is
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_SETTINGS = {  # read when Ray is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # tasks without GPUs leave CUDA's variables alone
    # Ray tells of dead workers on stdout, where results go; outcomes tell it too.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}


def on_ray(
    work: Callable[[T], R], tasks: Sequence[T], machine: Machine, *, retries: int
) -> Iterator[Outcome[T, R]]:
    """Yield outcomes of all tasks, done by the cluster that the machine names.

    Args:
        work: Function that does a task.
        tasks: Tasks, each of which can be pickled.
        machine: Device, threads and cluster.
        retries: How often a task is repeated after its process died.
    """
    address, each = str(machine.ray), machine.threads or 1
    ray = import_ray(address)
    slots = each * (machine.workers or max(1, cores() // each))
    folder = None if ray.is_initialized() else _connect(ray, address, slots)
    pending: dict[Any, T] = {}
    try:
        gpu = str(machine.device).startswith("cuda")
        perform = ray.remote(_perform).options(
            num_cpus=each, num_gpus=1 if gpu else 0, max_retries=retries, retry_exceptions=False
        )
        reference = ray.put((packed(work, ray.cloudpickle.dumps, "Ray"), sys.path, str(Path.cwd())))
        key = reference.hex()
        waiting, finished = deque(tasks), list[Outcome[T, R]]()
        room = _room(ray, each, gpu=gpu)
        while waiting or pending or finished:
            while waiting and len(pending) < room:
                task = waiting.popleft()
                try:
                    pending[perform.remote([reference], key, pickle.dumps(task), each)] = task
                except (pickle.PicklingError, AttributeError, TypeError) as error:
                    finished.append(Outcome(task, None, in_words(error)))
            if machine.late:
                waiting.clear()
            yield from finished
            finished = []
            if pending:
                done, _ = ray.wait(list(pending), num_returns=1, timeout=_SECONDS)
                for future in done:
                    try:
                        found = pickle.loads(ray.get(future))  # noqa: S301
                    except ray.exceptions.RayError as error:
                        found = None, f"{died(retries + 1)} ({type(error).__name__})"
                    finished.append(Outcome(pending.pop(future), *found))
                room = room if done else _room(ray, each, gpu=gpu)  # nodes come and go
    finally:
        for future in pending:
            ray.cancel(future, force=True)
        if folder is not None:
            with folder:
                ray.shutdown()


def import_ray(address: str) -> Any:
    """Import Ray, set to stay quiet and, for `"local"`, on the loopback interface.

    Args:
        address: `auto`, the address of a cluster, or `local`.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if address == "local":
        os.environ.setdefault(
            _CLUSTERS, "0"
        )  # the only way to make Ray listen on the loopback interface alone
    try:
        return import_module("ray")
    except ImportError as error:
        raise FrontierError("Ray is not installed: type pip install 'advfrontier[ray]'") from error


def _connect(ray: Any, address: str, processors: int) -> AbstractContextManager[object]:
    """Start or join a cluster, and return what is to be closed after it is left."""
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        # Ray keeps its sockets here, whose paths may not be longer than 107 characters: not in a
        # long TMPDIR.
        short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108
        folder = tempfile.TemporaryDirectory(prefix="ray-", dir=short, ignore_cleanup_errors=True)
        # Ray opens its folder to everybody: in one of our own nobody else gets at it.
        inside = f"{folder.name}/r"
        ray.init("local", num_cpus=processors, include_dashboard=False, _temp_dir=inside, **quiet)
        return folder
    try:
        if address != "auto":  # Ray itself would try for minutes
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, **quiet)
    except (OSError, ValueError) as error:
        raise FrontierError(
            f'no Ray cluster at {address!r}: expected "auto" or the HOST:PORT of one started with '
            "`ray start --head`; "
            'or use ray="local"'
        ) from error
    return nullcontext()


def _room(ray: Any, threads: int, *, gpu: bool) -> int:
    """Return the number of tasks to hand over, for the cluster as it is now."""
    there = ray.cluster_resources()
    slots = int(there.get("GPU", 0)) if gpu else int(there.get("CPU", 0)) // threads
    return max(2, _AHEAD * slots)


# What follows runs in the cluster.

_LOADED: dict[str, Callable[[Any], Any]] = {}


def _perform(reference: list[Any], key: str, task: bytes, threads: int) -> bytes:
    def load() -> Callable[[Any], Any]:
        if key not in _LOADED:
            import torch  # noqa: PLC0415

            torch.set_num_threads(threads)
            _LOADED.clear()  # a worker serves one job at a time: drop an earlier one's model
            content, folders, here = import_module("ray").get(reference[0])
            sys.path += [
                folder for folder in folders if folder not in sys.path
            ]  # as spawned processes have it,
            if Path(here).is_dir():  # and a file of the model named from where the parent is
                os.chdir(here)
            _LOADED[key] = pickle.loads(content)  # noqa: S301
        return _LOADED[key]

    return attempt_packed(load, task)
