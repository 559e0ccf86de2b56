"""The work of a call, counted: the same on every machine, where seconds would not be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(function: Callable[..., object], *arguments: Any) -> int:
    """Lines of Python that a call runs, each as often as it does; what C code does is not counted."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count
