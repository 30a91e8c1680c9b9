"""Many independent tasks: in this process, in local processes, on a Ray cluster. What they do is not known here."""

from advfrontier.execution.machine import Machine, as_machine
from advfrontier.execution.tasks import Outcome, execute

__all__ = ["Machine", "Outcome", "as_machine", "execute"]
