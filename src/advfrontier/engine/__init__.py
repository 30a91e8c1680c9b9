"""Evaluates what solvers ask for, counts every query, keeps the best points, stops and resumes."""

from advfrontier.engine.checks import accuracy_flag, check_data, check_model
from advfrontier.engine.clean import CleanPass, clean_pass
from advfrontier.engine.diagnose import Stretch, beaten, diagnose_points, noise_check
from advfrontier.engine.digest import model_digest
from advfrontier.engine.expectation import LAST_LOOK, vote, votes
from advfrontier.engine.loop import Search, Shard, advance_search
from advfrontier.engine.margins import robustly_misclassified
from advfrontier.engine.oracle import Counts, Oracle, find_device, own_device, own_dtype
from advfrontier.engine.unit import Unit, advance, classify

__all__ = [
    "LAST_LOOK",
    "CleanPass",
    "Counts",
    "Oracle",
    "Search",
    "Shard",
    "Stretch",
    "Unit",
    "accuracy_flag",
    "advance",
    "advance_search",
    "beaten",
    "check_data",
    "check_model",
    "classify",
    "clean_pass",
    "diagnose_points",
    "find_device",
    "model_digest",
    "noise_check",
    "own_device",
    "own_dtype",
    "robustly_misclassified",
    "vote",
    "votes",
]
