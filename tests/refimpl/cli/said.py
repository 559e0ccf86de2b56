"""How a command ended and what it said, and the types of the fixtures that run one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass
class Said:
    status: int
    out: str
    err: str


class Command(Protocol):
    """The fixture `refimpl`."""

    def __call__(self, *arguments: Any) -> Said: ...


class Wrong(Protocol):
    """The fixture `wrong`: the one line on standard error."""

    def __call__(self, *arguments: Any) -> str: ...
