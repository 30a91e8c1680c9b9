"""Independent tasks of any kind: in this process, in local processes, on a Ray cluster."""

from advfrontier.execution.tasks import Machine, Outcome, as_machine, execute

__all__ = ["Machine", "Outcome", "as_machine", "execute"]
