"""Rungs: a family's functions with its *plain* kernels, to be read, or with its *fast* ones.

    with rung("plain"):
        trainer = Trainer(program)

`kernels.conv` is plain and `kernels.fast.conv` fast; both have the same functions with the same arguments.  A family
without plain kernels uses its fast ones on both rungs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import Any

RUNGS = ("plain", "fast")
_current: ContextVar[str] = ContextVar("rung", default="fast")


def current() -> str:
    """The rung chosen by the innermost `rung` block."""
    return _current.get()


@contextmanager
def rung(name: str) -> Iterator[None]:
    """Launches bound inside have the kernels of this rung."""
    if name not in RUNGS:
        raise ValueError(f"there are no {name} kernels; choose from {', '.join(RUNGS)}")
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def family(name: str, of: str | None = None) -> Any:
    """A family's module on a rung (None: the current one)."""
    plain = (of or current()) == "plain" and find_spec(f"kernels.{name}") is not None
    return import_module(f"kernels.{name}" if plain else f"kernels.fast.{name}")


def function_of(call: str) -> Callable[..., None]:
    """The function that a call names, as in "conv.backward_data", on the current rung."""
    name, _, function = call.partition(".")
    found: Callable[..., None] = getattr(family(name), function)
    return found
