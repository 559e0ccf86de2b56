"""The machines by attribute: `refimpl.machines.titan_x`, `refimpl.machines.here`, `refimpl.machines.named("k40c")`."""

from __future__ import annotations

from refimpl.machine import MACHINES, Machine
from refimpl.machine import machine as named

__all__ = ["named"]


def __getattr__(name: str) -> Machine:
    asked = name.replace("_", "-")
    if asked in MACHINES or asked == "here":
        return named(asked)
    raise AttributeError(f"there is no machine {name!r}; there are {', '.join(sorted(__dir__()))}")


def __dir__() -> list[str]:
    return [*__all__, "here", *(machine.replace("-", "_") for machine in MACHINES)]
