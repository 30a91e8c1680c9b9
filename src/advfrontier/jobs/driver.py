"""Driver: lists what a record lacks, has the machine do it, and shows progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from advfrontier.command import current_command
from advfrontier.engine import Oracle, find_device, model_digest
from advfrontier.engine.data import Samples
from advfrontier.errors import FrontierError, Unfinished
from advfrontier.execution import Machine, execute
from advfrontier.numerics import NUMERICS
from advfrontier.progress import progress_bar
from advfrontier.record import HeaderChange, Record, Terms, open_folder
from advfrontier.record.images import VerifiedImages

T = TypeVar("T")
J = TypeVar("J", bound="Job[Any]")

_LOST = (
    "not kept, because no folder was given: give out=FOLDER (on the command line --out), "
    "so that the same call resumes"
)


@dataclass(eq=False, repr=False)
class Model:
    """Classifier with a name; one with a source is loaded once in each process.

    Args:
        name: Display name.
        given: From images in [0, 1] to logits; None if the model is loaded from its source.
        source: Source that the record names; None for a model that was given as an object.
        load: Loads the model from its source, here or in another process.
        placed: Device and precision that a loaded model was put to.
    """

    name: str
    given: Callable[[Tensor], Tensor] | None = None
    source: str | None = None
    load: Callable[[str], nn.Module] | None = None
    placed: tuple[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {
            key: value for key, value in vars(self).items() if key not in {"function", "digest"}
        }
        return state | (
            {"given": None, "placed": None}
            if self.load is not None and self.source is not None
            else {}
        )

    @cached_property
    def function(self) -> Callable[[Tensor], Tensor]:
        """Return the model, loaded at the first request."""
        if self.given is not None:
            return self.given
        if self.source is None or self.load is None:
            raise FrontierError(
                f"{self.name} is neither a model nor the source of one: expected one of them"
            )
        return self.load(self.source)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the model."""
        return model_digest(self.function)

    def oracle(self, terms: Terms, *, surrogate: bool = False) -> Oracle:
        """Return the model as an oracle, on the device where it runs.

        Args:
            terms: Terms of the record: device, precision and passes per query.
            surrogate: Replace gradients that vanish by rounding or saturation.
        """
        precision: torch.dtype = getattr(torch, terms.dtype)
        if (
            self.given is None
            and self.placed != (terms.device, terms.dtype)
            and isinstance(self.function, nn.Module)
        ):
            _ = self.digest  # of its numbers as they were loaded
            self.function.to(find_device(terms.device), precision)
            self.placed = terms.device, terms.dtype
        return Oracle(
            self.function, device=terms.device, dtype=precision, eot=terms.eot, surrogate=surrogate
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Job(ABC, Generic[T]):
    """Work on a record. Calling it does one task and stores the result, in any process.

    Args:
        model: Model to evaluate.
        samples: Samples to evaluate it on.
        record: Record that stores the results; `drive` sets it, and each process opens it anew.
        until: Time at which tasks that can stop half-way do, as `time.time()` returns it; None for
            never.
        tick: Called with the progress of the work, where it is done in this process.
    """

    model: Model
    samples: Samples
    record: Record | None = None
    until: float | None = None
    tick: Callable[[int], object] | None = None
    counted: ClassVar[str]

    def __getstate__(self) -> dict[str, Any]:
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        return state | {"record": None, "tick": None, "opened": (self.work.place, self.work.header)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        place, header = state.pop("opened")
        self.__dict__.update(state, record=Record(open_folder(place), header), sent=True)

    @property
    def work(self) -> Record:
        """Return the record."""
        assert self.record is not None  # noqa: S101  # `drive` sets it before anything is asked
        return self.record

    @cached_property
    def images(self) -> VerifiedImages:
        """Reads the images, and refuses others than those of the record."""
        return self.work.images(self.samples)

    def recognise(self, alike: Callable[[], bool] = lambda: True) -> None:
        """Raise on other code than the record's, and on another model.

        Args:
            alike: Tells whether the model answers as the record's did.
        """
        header = self.work.header
        if header.numerics != NUMERICS:
            raise FrontierError(
                f"this worker process has another version of advfrontier (numerics {NUMERICS}, the "
                f"record {header.numerics}): install the same version on every machine"
            )
        if self.model.digest != header.model.digest or not alike():
            raise FrontierError(
                f"{self.model.source or 'the model'} is another model in this worker process than "
                "the one the record was begun with: expected the same weights and the same "
                "answers each time it is loaded; let its factory load them from a file or set its "
                "seed, and leave its files alone while units are done"
            )

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be done."""

    @abstractmethod
    def missing(self) -> list[T]:
        """List the tasks that the record lacks, from the names of its files alone."""

    @abstractmethod
    def changes(self) -> HeaderChange:
        """Return what the header is to say once work begins."""

    @abstractmethod
    def progress(self) -> str:
        """Return the progress as text, such as `3 of 8 units`."""

    def size(self, task: T) -> int:  # noqa: ARG002
        """Return the weight of a task.

        Args:
            task: One of the tasks that `missing` lists.
        """
        return 1

    def labels(self, tasks: Sequence[T]) -> Callable[[T, Any], str]:  # noqa: ARG002
        """Return the text to show after a task: its name, unless the job has more to show.

        Args:
            tasks: All tasks, in the order in which they are begun.
        """
        return lambda task, _: f"{self.work.header.terms.norm} {task}"

    @abstractmethod
    def __call__(self, task: T) -> Any:
        """Do a task."""


def drive(record: Record, job: J, machine: Machine) -> J:
    """Do all missing tasks; failed tasks are named at the end, when all others are done.

    Raises Unfinished if the machine's time is up before that.

    Returns the job, ready to do a task again whose file is lost later.

    Args:
        record: Record to complete.
        job: Job that lists the missing tasks and does them.
        machine: Device, processes and cluster.
    """
    machine, job = replace(machine, device=record.header.terms.device), replace(job, record=record)
    job.check()
    tasks = job.missing()
    if tasks:
        record.check_numerics()
    change = job.changes().model_copy(update={"command": current_command() or ""})
    record.change(change, optional=not tasks)
    if not tasks:
        return job
    failed: dict[str, str | None] = {}
    label, total = job.labels(tasks), sum(map(job.size, tasks))
    start = f"{record.header.terms.norm} {tasks[0]}"
    with progress_bar(machine.progress, total, unit=job.counted, label=start) as bar:
        work = replace(job, until=machine.until, tick=bar.advance if machine.here else None)
        for outcome in execute(work, tasks, machine):
            if outcome.error is not None or outcome.result is None:
                failed[str(outcome.task)] = outcome.error
                continue
            bar.show(label(outcome.task, outcome.result))
            if not machine.here:
                bar.advance(job.size(outcome.task))
    if failed:
        first = next(iter(failed))
        where = _LOST if record.temporary else "stored; type the same command to try them again"
        raise FrontierError(
            f"{len(failed)} of {len(tasks)} units failed, and what was done is {where}. {first}: "
            f"{failed[first]}"
            + (f"; also {', '.join(list(failed)[1:4])}" if len(failed) > 1 else "")
        )
    if (
        machine.until is not None and job.missing()
    ):  # by the clock of this machine, or of one in the cluster
        header = record.header
        where = _LOST if record.temporary else f"stored in {record.place}; {header.how_to_resume}"
        raise Unfinished(
            f"time is up: {job.progress()} of {header.model.name} in {header.terms.norm} are done "
            f"and {where}"
        )
    return job
