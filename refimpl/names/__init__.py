"""Names and the objects they mean: networks, machines, modules, presets, budgets; and what fits.

A table says where each object is, as text; the object is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any


@cache
def imported_from(where: str) -> Any:
    """The object at `MODULE:NAME` of this project; a class is called, without arguments."""
    module, _, name = where.partition(":")
    found = getattr(import_module(f"refimpl.{module}"), name)
    return found() if isinstance(found, type) else found


class Lookup(Mapping[str, Any]):
    """Name → object, imported when it is asked for.

    Args:
        where: name → `MODULE:NAME`.
    """

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = dict(where)

    def __getitem__(self, name: str) -> Any:
        return imported_from(self._where[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)
