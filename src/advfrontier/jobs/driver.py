"""The one way to run: see what a record lacks, have it done wherever the machine says, show how it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from advfrontier.errors import FrontierError
from advfrontier.execution import execute
from advfrontier.progress import Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advfrontier.execution import Machine
    from advfrontier.record import Record

T = TypeVar("T")
J = TypeVar("J", bound="Job[Any]")


class Job(Protocol[T]):
    """Work on a record. Calling it does one task, in this process or another."""

    counted: str  # what progress is counted in, in the plural

    def check(self, record: Record) -> None:
        """Refuse what cannot be done."""

    def missing(self, record: Record) -> list[T]:
        """The tasks that the record lacks."""

    def begin(self, record: Record) -> Self:
        """Write down what the record is to hold; returns the job, ready to be called."""

    def size(self, record: Record, task: T) -> int:
        """How much a task counts."""

    def labels(self, record: Record, tasks: Sequence[T]) -> Callable[[T, Any], str]:
        """What to say after each task."""

    def following(self, tick: Callable[[int], object]) -> Self:
        """The same job, which says how it gets on within a task."""

    def __call__(self, task: T) -> Any:
        """Do a task and store what comes out of it."""


def drive(record: Record, job: J, machine: Machine, *, progress: bool = False) -> J:
    """Do all that is missing. A task that fails is named at the end, when all others are done.

    Returns the job, ready to do a task again whose file is lost later.
    """
    job.check(record)
    tasks = job.missing(record)
    if tasks:
        record.check_code()
    job = job.begin(record)
    if not tasks:
        return job
    failed: dict[str, str | None] = {}
    label = job.labels(record, tasks)
    total = sum(job.size(record, task) for task in tasks)
    with Progress(total, unit=job.counted) if progress else Silent() as bar:
        bar.show(f"{record.header.terms.norm} {tasks[0]}")
        for outcome in execute(job.following(bar.advance) if machine.here else job, tasks, machine):
            if outcome.error is not None or outcome.result is None:
                failed[str(outcome.task)] = outcome.error
                continue
            bar.show(label(outcome.task, outcome.result))
            if not machine.here:
                bar.advance(job.size(record, outcome.task))
    if failed:
        first = next(iter(failed))
        raise FrontierError(
            f"{len(failed)} of {len(tasks)} units failed, the others are stored; type the same command to try them "
            f"again. {first}: {failed[first]}" + (f"; also {', '.join(list(failed)[1:4])}" if len(failed) > 1 else "")
        )
    return job
