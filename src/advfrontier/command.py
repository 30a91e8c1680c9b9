"""The command that is being done, as it was typed: records note it, so that a reader can type it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def typed(command: str) -> Iterator[None]:
    """Inside, records that are worked on note this command."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def current_command() -> str:
    """What was typed; empty where the work was begun from Python."""
    return _COMMAND.get()
