"""Many independent tasks: in this process, in local processes, on a Ray cluster. What they do is not known here."""

from advfrontier.execution.tasks import Machine, Outcome, as_machine, execute

__all__ = ["Machine", "Outcome", "as_machine", "execute"]
