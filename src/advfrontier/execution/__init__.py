"""Many independent tasks: in this process, in local processes, on a Ray cluster. What they do is not known here."""

from advfrontier.execution.execute import execute
from advfrontier.execution.machine import Machine, as_machine
from advfrontier.execution.tasks import Outcome

__all__ = ["Machine", "Outcome", "as_machine", "execute"]
