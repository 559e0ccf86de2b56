"""Rungs: a family's functions with *plain* kernels, which are to be read, or with *fast* ones.

`kernels.conv` has the plain ones and `kernels.fast.conv` the fast ones, under the same names and with the same
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

RUNGS = ("plain", "fast")


def function_of(call: str, rung: str) -> Callable[..., None]:
    """The function that a call names, as in "conv.backward_data", on a rung."""
    name, _, function = call.partition(".")
    found: Callable[..., None] = getattr(import_module(f"kernels{'.fast' * (rung == 'fast')}.{name}"), function)
    return found
