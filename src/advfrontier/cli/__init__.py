"""Command line: reads arguments, calls `evaluation`, and hands the results to `report`."""

from advfrontier.cli.app import main

__all__ = ["main"]
