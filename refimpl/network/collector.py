"""Python's garbage collector, paused while a great many objects are made that all stay.

It looks at all of them again and again, in search of garbage that is not there; for networks, plans and programs of
thousands of layers that is half of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside; as it was before, afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
