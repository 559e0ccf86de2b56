"""A test that never ends fails, with a traceback.

Its seconds are the processor's: however busy the machine is, a test needs the same number.  A test that needs none (a
deadlock), or that never returns to Python (a loop in compiled code), is ended by pytest's own `faulthandler_timeout`,
and its process with it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 1200.0  #: forty times as long as the longest test: a slow machine's tests are not ended


class Endless(BaseException):
    """No `Exception`: neither code under test may catch it, nor hypothesis look for a smaller example."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Endless` in the main thread once this process has computed for so long; again and again, for callbacks
    that swallow it.

    The alarms are of the clock on the wall: while a timer of the processor's time runs, the kernel tells that time in
    steps of some milliseconds, and what a test measures would be 0.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    begin = time.process_time()

    def look(*_: Any) -> None:
        if time.process_time() - begin >= seconds:
            raise Endless(f"the test has taken {seconds:g} s of processor time; more: pytest --limit SECONDS")

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds / 2, max(1.0, seconds / 10))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
