"""Run many independent tasks: in this process, in worker processes, or on a Ray cluster."""

from advfrontier.execution.execute import execute
from advfrontier.execution.tasks import Outcome

__all__ = ["Outcome", "execute"]
