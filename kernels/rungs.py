"""Rungs: a family's functions with *plain* kernels, which are to be read, or with *fast* ones.

`kernels.conv` has the plain ones and `kernels.fast.conv` the fast ones, under the same names and with the same
arguments.  Where fast kernels gained next to nothing there are none: such a family is plain on both rungs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

RUNGS = ("plain", "fast")


@cache
def module_of(family: str, rung: str) -> str:
    """The module with the functions of a family on a rung, as in "kernels.fast.conv"."""
    fast = f"kernels.fast.{family}"
    return fast if rung == "fast" and find_spec(fast) else f"kernels.{family}"


def function_of(call: str, rung: str) -> Callable[..., None]:
    """The function that a call names, as in "conv.backward_data", on a rung."""
    family, _, function = call.partition(".")
    found: Callable[..., None] = getattr(import_module(module_of(family, rung)), function)
    return found
