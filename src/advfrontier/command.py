"""Command line as typed: records store it, so that a reader can type it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def typed(command: str) -> Iterator[None]:
    """Store this command in all records that are worked on inside the `with` block.

    Args:
        command: Command line, as it can be typed again.
    """
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def current_command() -> str:
    """Return the command that was typed; empty where the work was started from Python."""
    return _COMMAND.get()
