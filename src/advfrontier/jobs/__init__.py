"""Durable work: what a record lacks, and how to have it done."""

from advfrontier.jobs.driver import Model, drive
from advfrontier.jobs.setup import prepare
from advfrontier.jobs.units import UnitJob, needs_gradients

__all__ = ["Model", "UnitJob", "drive", "needs_gradients", "prepare"]
