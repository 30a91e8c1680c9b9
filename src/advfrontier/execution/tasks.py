"""What becomes of a task: its result, or the reason why there is none."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """A task with its result, or with an error in words."""

    task: T
    result: R | None
    error: str | None


def attempt(work: Callable[[T], R], task: T) -> Outcome[T, R]:
    """Do one task. What it raises is its outcome: the others go on."""
    try:
        return Outcome(task, work(task), None)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return Outcome(task, None, in_words(error))


def attempt_packed(load: Callable[[], Callable[[Any], Any]], task: bytes) -> bytes:
    """Do one task in another process: pickled (result, error) comes back.

    Plain pickle, because torch would hand tensors between processes through files that die with the worker.
    """
    try:
        outcome: Outcome[Any, Any] = attempt(load(), pickle.loads(task))  # noqa: S301
        return pickle.dumps((outcome.result, outcome.error))
    except Exception as error:  # noqa: BLE001
        return pickle.dumps((None, in_words(error)))


def unpacked(task: T, packed: bytes) -> Outcome[T, Any]:
    """The outcome of a task out of what `attempt_packed` sent back."""
    result, error = pickle.loads(packed)  # noqa: S301
    return Outcome(task, result, error)


def in_words(error: BaseException) -> str:
    """The error and where it was raised, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"
