"""A test that never ends fails, with a traceback.

Its seconds are the processor's: however busy the machine is, a test needs the same number.  A test that needs none (a
deadlock), or that never returns to Python (a loop in compiled code), is ended by pytest's own `faulthandler_timeout`,
and its process with it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 300.0  #: several times as long as the longest test


class Endless(BaseException):
    """No `Exception`: neither code under test may catch it, nor hypothesis look for a smaller example."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Endless` in the main thread once this process has computed for so long; again and again, for callbacks
    that swallow it."""

    def stop(*_: Any) -> None:
        raise Endless(f"the test has taken {seconds:g} s of processor time; more: pytest --limit SECONDS")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, max(1.0, seconds / 10))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
