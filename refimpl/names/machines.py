"""The machines: `refimpl.machines.titan_x`, `refimpl.machines.here`, `refimpl.machines.named("k40c")`.

A name is a model's, `here` for the device at hand, the file of a profile, or a TOML file that describes a machine of
one's own; `titan-x:own` is one with another catalogue of algorithms.  `refimpl.machines.like("rtx-4090",
memory="16GiB")` describes one in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refimpl.machine.catalogues import CATALOGUES
from refimpl.machine.gpus import MACHINES
from refimpl.machine.model import FIGURES, Efficiency, Machine
from refimpl.text import MachineError, closest, shown, toml_tables

__all__ = ["like", "named"]

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
    base, colon, catalogue = asked.rpartition(":")
    if colon and (catalogue in CATALOGUES or base in MACHINES):
        return named(base).with_catalogue(catalogue)
    if asked.lower() == "here":
        return at_hand()
    if asked.endswith(".toml"):
        return from_file(asked)
    if asked.endswith(".json") or Path(asked).is_file():
        from refimpl.machine.measured_profile import machine_from_profile

        return machine_from_profile(asked)
    plain = asked.lower().replace("_", "-").replace(" ", "-")
    if plain in MACHINES:
        return MACHINES[plain]
    near = closest(plain, [*MACHINES, "here"])
    hint = (
        f"did you mean {near}?"
        if near
        else f"there are {', '.join(MACHINES)}, here, or the file of a profile or of your own machine"
    )
    raise MachineError(f"there is no machine {asked!r}; {hint}")


def like(base: str | Machine, name: str = "", sources: Mapping[str, str] | None = None, **figures: Any) -> Machine:
    """A machine with some figures of its own: `like("rtx-4090", memory="16GiB", link="12GB/s")`.

    Args:
        base: the machine whose figures it has otherwise.
        name: of the new one; empty: the base's, with what differs.
        sources: figure → where it is from, as in "measured: nvbandwidth".
        figures: as `docs/machines.md` explains them, written as in a file.

    Raises:
        MachineError: says which figure cannot be, and what to write.
    """
    found = base if isinstance(base, Machine) else at_hand(measure=False) if base == "here" else named(base)
    if type(found) is not Machine:
        raise MachineError(f"{found.name} is measured, and not a model whose figures can be others; be like a GPU's")
    from refimpl.machine.own_machine import described

    differs = ", ".join(f"{what} {value}" for what, value in figures.items())
    return described(found, figures, name or (f"{found.name} ({differs})" if differs else found.name), sources)


def from_file(path: str) -> Machine:
    """The machine that a TOML file describes; its name is the file's, unless it has one.  Raises `MachineError`."""
    given = toml_tables(path, MachineError)
    name, sources, base = given.pop("name", Path(path).stem), given.pop("sources", {}), given.pop("like", None)
    try:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise MachineError(f"name is {shown(name)}; give a text of one line")
        if not isinstance(sources, Mapping):
            raise MachineError(f"sources is {shown(sources)}; write a table [sources] with a line for each figure")
        if base is None:
            from refimpl.machine.own_machine import described

            return described(None, given, name, sources)
        if not isinstance(base, str) or base.endswith(".toml"):
            raise MachineError(f"like is {shown(base)}; give a machine's name, as in rtx-4090")
        return like(base, name, sources, **{str(what): value for what, value in given.items()})
    except MachineError as error:
        raise MachineError(f"{path}: {error}") from None


def at_hand(measure: bool = True) -> Machine:
    """The device at hand; `measure`: a CPU's kernels, if that was not done before."""
    from kernels.targets import gpu
    from refimpl.machine import cpu_costs
    from refimpl.machine.here import current_gpu, rough_cpu

    return cpu_costs.machine(rough_cpu(), measure) if gpu.why_not() is not None else current_gpu()


def listed(names: Iterable[str] = (), with_here: bool = True) -> list[Machine]:
    """The machines of these names; of none, all that have a name."""
    found = [named(name) for name in names]
    return found or [*MACHINES.values(), *([at_hand(measure=False)] if with_here else [])]


def summary(with_here: bool = True, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """A row a machine, peaks and sizes in plain numbers: bytes, operations and bytes a second; a source of each."""
    return [{name: _plain(getattr(one, name)) for name in IN_SUMMARY} for one in listed(names, with_here)]


def _plain(value: Any) -> Any:
    """What JSON can show: efficiencies and sources by the names of their fields."""
    if isinstance(value, Efficiency):
        return asdict(value)
    return [source._asdict() for source in value] if isinstance(value, tuple) else value
