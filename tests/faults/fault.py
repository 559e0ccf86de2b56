"""A fault: what is wrong, where, and which tests are to catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old` occurs once in `file`, and `new` replaces it."""

    what: str  #: what is wrong now
    file: str
    old: str
    new: str
    tests: str  #: arguments of pytest; what is there of them
    slow: bool = False  #: whether tests marked slow are needed

    @property
    def room(self) -> str:
        package, room, *_ = self.file.split("/")
        return room.removesuffix(".py") if package == "refimpl" else package
