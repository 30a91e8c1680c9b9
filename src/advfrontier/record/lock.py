"""Lock between processes and threads that share a folder of this machine or of a file server.

The operating system holds the lock and releases it when its holder ends, however it ends. The
lock's file stays: removing it could let two holders lock two files of the same name.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advfrontier.errors import FrontierError, explain_os_errors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_SECONDS = 60.0  # a holder needs milliseconds; one that was stopped would hold everybody up
_PAUSE = 0.001  # seconds before the second attempt; pauses grow to ten times that
_BUSY = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_MISSING = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextmanager
def file_lock(path: Path, *, seconds: float = _SECONDS) -> Iterator[bool]:
    """Hold the lock of a file; the file is made where it is missing.

    Yields whether the file system has locks: some file servers have none.

    Args:
        path: The lock's file, used for nothing else.
        seconds: How long to wait for another holder before FrontierError is raised.
    """
    with explain_os_errors("written", path.parent):
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with explain_os_errors("locked", path):
            locked = _acquire(file, path, seconds)
        yield locked
    finally:
        os.close(file)  # which releases the lock


def _acquire(file: int, path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = _PAUSE
    while True:
        try:
            _try_lock(file)
        except OSError as error:
            if error.errno in _MISSING:
                return False
            if error.errno not in _BUSY:
                raise
        else:
            return True
        if time.monotonic() > deadline:
            raise FrontierError(
                f"{path} has been locked for {seconds:g} s by another process that works on this "
                "record: end that process if it was suspended, and run the same command again, "
                "which resumes"
            )
        time.sleep(pause)
        pause = min(2 * pause, 10 * _PAUSE)


if sys.platform == "win32":

    def _try_lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:

    def _try_lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
