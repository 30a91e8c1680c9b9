"""Robustness curves from ensembles of minimum-norm attacks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advfrontier.attacks.tensors import attack
    from advfrontier.errors import FrontierError
    from advfrontier.evaluation.certify import certify
    from advfrontier.evaluation.compare import compare, rank
    from advfrontier.evaluation.evaluate import evaluate
    from advfrontier.evaluation.evaluation import Evaluation
    from advfrontier.evaluation.trace import Traces, trace
    from advfrontier.evaluation.union import union
    from advfrontier.evaluation.verify import Verification, verify
    from advfrontier.execution import Machine
    from advfrontier.frontier.allocation import allocate
    from advfrontier.pool.ensemble import Ensemble
    from advfrontier.pool.plugins import register

__version__ = "0.1.0"
__all__ = [
    "Ensemble",
    "Evaluation",
    "FrontierError",
    "Machine",
    "Traces",
    "Verification",
    "allocate",
    "attack",
    "certify",
    "compare",
    "evaluate",
    "rank",
    "register",
    "trace",
    "union",
    "verify",
]

# Imported on first use: the rooms that need no torch stay quick to import.
_HOMES = {
    "Ensemble": "advfrontier.pool.ensemble",
    "Evaluation": "advfrontier.evaluation.evaluation",
    "FrontierError": "advfrontier.errors",
    "Machine": "advfrontier.execution.tasks",
    "Traces": "advfrontier.evaluation.trace",
    "Verification": "advfrontier.evaluation.verify",
    "allocate": "advfrontier.frontier.allocation",
    "attack": "advfrontier.attacks.tensors",
    "certify": "advfrontier.evaluation.certify",
    "compare": "advfrontier.evaluation.compare",
    "evaluate": "advfrontier.evaluation.evaluate",
    "rank": "advfrontier.evaluation.compare",
    "register": "advfrontier.pool.plugins",
    "trace": "advfrontier.evaluation.trace",
    "union": "advfrontier.evaluation.union",
    "verify": "advfrontier.evaluation.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
