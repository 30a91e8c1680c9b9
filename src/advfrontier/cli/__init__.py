"""The command line. Thin: it reads arguments, calls `evaluation`, and hands what comes back to `report`."""

from advfrontier.cli.app import main

__all__ = ["main"]
