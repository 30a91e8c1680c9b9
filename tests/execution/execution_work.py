"""Work for the tests of execution: importable, so that worker processes find it."""

import os
import signal
import time
from pathlib import Path

import torch


def square(task):
    return task * task


def steps(task):
    """Real torch work with a result of its own for every task."""
    x = torch.full((8, 8), 0.01 * (task + 1))
    for _ in range(20):
        x = torch.tanh(x @ x.T + x)
    return x


def threads(_task):
    return torch.get_num_threads()


def visible_gpu(_task):
    time.sleep(0.2)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def pid_after(seconds):
    time.sleep(seconds)
    return os.getpid()


class Nasty:
    """Raises on 2; kills its worker on 3, every time; also on 5, the first time. Every attempt
    leaves a file.
    """

    def __init__(self, folder, seconds=0.0):
        self.folder, self.seconds = Path(folder), seconds

    def __call__(self, task):
        begun = self.attempts(task)
        (self.folder / f"{task}.{len(begun)}.{os.getpid()}").touch()
        time.sleep(self.seconds)
        if task == 2:
            raise ValueError("two is\nnot liked")
        if task == 3 or (task == 5 and not begun):
            os.kill(os.getpid(), signal.SIGKILL)
        return steps(task)

    def attempts(self, task):
        return list(self.folder.glob(f"{task}.*"))
