"""Fixtures of evaluations, as in the room `evaluation`."""

from evaluation.conftest import evaluation, longer, problem  # noqa: F401
