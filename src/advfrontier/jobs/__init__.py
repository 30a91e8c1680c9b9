"""Durable work: what a record lacks, and how to have it done."""

from advfrontier.jobs.driver import Model, drive
from advfrontier.jobs.setup import Prepared, prepare
from advfrontier.jobs.units import UnitJob, needs_gradients

__all__ = ["Model", "Prepared", "UnitJob", "drive", "needs_gradients", "prepare"]
