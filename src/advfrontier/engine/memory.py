"""Memory that a step frees is kept for the next one.

Every step of an attack allocates and frees the same few megabytes. By default glibc gives them back to the system each
time, which clears them page by page when they are asked for again: up to a third of the time on small models.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's settings
_KEPT = 256 * 2**20  # bytes that may be free before any go back to the system
_LARGEST = 32 * 2**20  # bytes of one allocation; glibc takes no more


@cache
def keep_freed_memory() -> None:
    """Tell glibc, once in a process; with another allocator there is nothing to tell."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
