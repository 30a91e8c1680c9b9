"""How many cases are tried, and how long each may take."""

import os
import signal
from contextlib import contextmanager

QUICK = 80
CASES = int(os.environ.get("ADVFRONTIER_FUZZ", str(QUICK)))
SECONDS = 20


class TooSlowError(BaseException):
    """Not an Exception, so that no reader can turn it into a FrontierError."""


@contextmanager
def time_limit(seconds=SECONDS):
    """Raise TooSlowError inside if it takes longer."""

    def stop(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
