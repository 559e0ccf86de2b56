"""The machines: `refimpl.machines.titan_x`, `refimpl.machines.here`, `refimpl.machines.named("k40c")`.

A name is a model's, `here` for the device at hand, or the file of a profile.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from refimpl.machine import cpu_costs
from refimpl.machine.gpus import MACHINES
from refimpl.machine.here import current_gpu, rough_cpu
from refimpl.machine.measured_profile import machine_from_profile
from refimpl.machine.model import FIGURES, Efficiency, Machine
from refimpl.machine.work import MachineError
from refimpl.text import closest

__all__ = ["named"]

IN_SUMMARY = ("name", *FIGURES, "catalogue", "sources")


def __getattr__(name: str) -> Machine:
    asked = name.replace("_", "-")
    if asked in MACHINES or asked == "here":
        return named(asked)
    raise AttributeError(f"there is no machine {name!r}; there are {', '.join(sorted(__dir__()))}")


def __dir__() -> list[str]:
    return [*__all__, "here", *(machine.replace("-", "_") for machine in MACHINES)]


def named(name: str | Path) -> Machine:
    """The machine of that name, the device at hand for `here`, or the one a profile was measured on."""
    asked = str(name).strip()
    if asked in MACHINES:
        return MACHINES[asked]
    if asked.lower() == "here":
        return at_hand()
    if asked.endswith(".json") or Path(asked).is_file():
        return machine_from_profile(asked)
    plain = asked.lower().replace("_", "-").replace(" ", "-")
    if plain in MACHINES:
        return MACHINES[plain]
    near = closest(plain, [*MACHINES, "here"])
    hint = f"did you mean {near}?" if near else f"there are {', '.join(MACHINES)}, here, or a profile's file"
    raise MachineError(f"there is no machine {asked!r}; {hint}")


def at_hand(measure: bool = True) -> Machine:
    """The device at hand; `measure`: a CPU's kernels, if that was not done before."""
    from kernels.targets import gpu

    return cpu_costs.machine(rough_cpu(), measure) if gpu.why_not() is not None else current_gpu()


def summary(with_here: bool = True) -> list[dict[str, Any]]:
    """A row a machine, peaks and sizes in plain numbers: bytes, operations and bytes a second; a source of each."""
    listed = list(MACHINES.values())
    if with_here:
        listed.append(at_hand(measure=False))
    return [{name: _plain(getattr(one, name)) for name in IN_SUMMARY} for one in listed]


def _plain(value: Any) -> Any:
    """What JSON can show: efficiencies and sources by the names of their fields."""
    if isinstance(value, Efficiency):
        return asdict(value)
    return [source._asdict() for source in value] if isinstance(value, tuple) else value
