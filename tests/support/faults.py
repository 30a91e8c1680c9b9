"""Machines on which work goes wrong: the seam is `Machine.executor`, which does the tasks."""

from advfrontier import Machine
from advfrontier.execution import Outcome
from advfrontier.execution.tasks import attempt


def interrupted(after, **options):
    """Ctrl-C in the middle of the task after so many."""

    def executor(work, tasks):
        for k, task in enumerate(tasks):
            if k == after:
                raise KeyboardInterrupt
            yield attempt(work, task)

    return Machine(executor=executor, **options)


def failing(when, error="MemoryError: no room for this one", **options):
    """Tasks for which `when(k, task)` holds come to nothing."""

    def executor(work, tasks):
        for k, task in enumerate(tasks):
            yield Outcome(task, None, error) if when(k, task) else attempt(work, task)

    return Machine(executor=executor, **options)


def noting(seen, **options):
    """A machine that writes down what it was given to do: the folder of the record, and the
    task.
    """

    def executor(work, tasks):
        for task in tasks:
            seen.append((work.record.place, task))
            yield attempt(work, task)

    return Machine(executor=executor, **options)
