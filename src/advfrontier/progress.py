"""Progress on stderr: a bar on a terminal, a line in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from advfrontier.errors import printable

_SECONDS = 15.0  # between two plain lines
PATIENCE = 2.0  # before the first: what is quick needs no report


def progress_bar(asked: bool | None, total: int, *, unit: str, label: str = "") -> Progress:  # noqa: FBT001 - as users give it
    """Show progress if asked to; by default on a terminal or in a notebook.

    Args:
        asked: Show it or not; None to show it on a terminal or in a notebook.
        total: Number to count to.
        unit: Plural of what is counted.
        label: Text beside the bar.
    """
    if asked is None:
        asked = in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    bar = Progress(total, unit=unit) if asked else Silent()
    bar.show(label)
    return bar


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Progress(AbstractContextManager["Progress"]):
    """Counts up to a total. `unit` is what is counted, in the plural.

    Args:
        total: Number to count to.
        unit: Plural of what is counted.
        stream: Stream to write to; by default standard error.
    """

    def __init__(self, total: int, *, unit: str, stream: TextIO | None = None) -> None:
        self.total, self.unit, self.done, self.label = total, unit, 0, ""
        self._stream = stream or sys.stderr
        self._started = time.monotonic()
        self._due = self._started + PATIENCE
        self._again = in_notebook()  # there a line is written over the last one
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),  # a name may hold square brackets
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self.unit),
                _Rate(),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._again and self.done:
            print(file=self._stream)

    def show(self, label: str) -> None:
        """Say what is being worked on.

        Args:
            label: Text beside the bar.
        """
        self.label = printable(label)

    def advance(self, count: int) -> None:
        """Count what has just been done.

        Args:
            count: Number of things just done.
        """
        self.done += count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, description=self.label)
        elif (now := time.monotonic()) >= self._due:
            self._due = now + (PATIENCE if self._again else _SECONDS)
            taken = now - self._started
            left = taken * (self.total - self.done) / max(self.done, 1)
            share = self.done / max(self.total, 1)
            print(
                f"{chr(13) if self._again else ''}{self.label}: {self.done} of {self.total} "
                f"{self.unit} ({share:.0%}), {_rate(self.done / max(taken, 1e-9))}, about "
                f"{left:.0f} s left",
                end="" if self._again else "\n",
                file=self._stream,
                flush=True,
            )


class _Rate(ProgressColumn):
    """Format a rate per second."""

    def render(self, task: Task) -> Text:
        """Return the recent rate, not the average."""
        return Text(_rate(task.speed or 0.0))


def _rate(speed: float) -> str:
    return f"{speed:.3g}/s" if speed < 1000 else f"{speed / 1000:.3g}k/s"


class Silent(Progress):
    """Counts, and shows nothing."""

    def __init__(self) -> None:
        super().__init__(0, unit="")

    def __enter__(self) -> Self:
        return self

    def advance(self, count: int) -> None:
        """Count only."""
        self.done += count
