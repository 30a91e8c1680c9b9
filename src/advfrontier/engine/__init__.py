"""The driver: evaluates what solvers ask for, counts every query, keeps the best points, stops and continues."""

from advfrontier.engine.checks import check_data, check_model
from advfrontier.engine.clean import CleanPass, clean_pass
from advfrontier.engine.digest import model_digest
from advfrontier.engine.evidence import accuracy_flag, beaten, noise_check
from advfrontier.engine.expectation import LAST_LOOK, vote, votes
from advfrontier.engine.loop import advance, classify
from advfrontier.engine.margins import robustly_misclassified
from advfrontier.engine.oracle import Counts, Oracle, find_device, own_device, own_dtype
from advfrontier.engine.race import RaceUnit, advance_race, start_race
from advfrontier.engine.unit import Unit, start_unit

__all__ = [
    "LAST_LOOK",
    "CleanPass",
    "Counts",
    "Oracle",
    "RaceUnit",
    "Unit",
    "accuracy_flag",
    "advance",
    "advance_race",
    "beaten",
    "check_data",
    "check_model",
    "classify",
    "clean_pass",
    "find_device",
    "model_digest",
    "noise_check",
    "own_device",
    "own_dtype",
    "robustly_misclassified",
    "start_race",
    "start_unit",
    "vote",
    "votes",
]
