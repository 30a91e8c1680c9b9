"""The driver: evaluates what solvers ask for, counts every query, keeps the best points, stops and continues."""

from advfrontier.engine.checks import check_data, check_model
from advfrontier.engine.clean import CleanPass, clean_pass
from advfrontier.engine.oracle import Counts, Oracle, find_device
from advfrontier.engine.unit import Unit, advance, classify, start_unit, verify

__all__ = [
    "CleanPass",
    "Counts",
    "Oracle",
    "Unit",
    "advance",
    "check_data",
    "check_model",
    "classify",
    "clean_pass",
    "find_device",
    "start_unit",
    "verify",
]
