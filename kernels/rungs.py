"""Rungs: a family's functions with *plain* kernels, which are to be read, or with *fast* ones.

`kernels.conv` has the plain ones and `kernels.fast.conv` the fast ones, under the same names and with the same
arguments.  A family without plain kernels uses its fast ones on both rungs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

RUNGS = ("plain", "fast")


def family(name: str, rung: str) -> Any:
    """A family's module on a rung."""
    plain = rung == "plain" and find_spec(f"kernels.{name}") is not None
    return import_module(f"kernels.{name}" if plain else f"kernels.fast.{name}")


def function_of(call: str, rung: str) -> Callable[..., None]:
    """The function that a call names, as in "conv.backward_data", on a rung."""
    name, _, function = call.partition(".")
    found: Callable[..., None] = getattr(family(name, rung), function)
    return found
