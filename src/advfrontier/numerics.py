"""Versions of the rooms whose code decides the bits of a distance.

Raise a room's version by one in the same commit that changes a distance, however little: another
order of a sum, another constant, another random number, another rule. The golden test of stored
distances fails as long as that is forgotten. Comments, docstrings, names, and refactoring that
leaves every bit as it was do not change a version.

A record holds the versions it was begun with. Under other versions it can be read and compared,
but not extended, because its distances would be of two kinds.
"""

from __future__ import annotations

NUMERICS = {"threat": 1, "solvers": 1, "engine": 1}  # room to version
