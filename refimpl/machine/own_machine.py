"""A machine of one's own: a known one with other figures, or one that all its figures are given of.

A figure is written as people write it, "16GiB", "12GB/s", "61.4TFLOP/s", or as a plain number of its unit.  A slip in
a unit would be a wrong answer to every question that follows, so each figure has a range: bits for bytes, TB for GB
and a number without its unit are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, get_args, get_type_hints

from refimpl.machine.catalogues import checked_catalogue
from refimpl.machine.gpus import ASSUMED, ASSUMED_EFFICIENCY
from refimpl.machine.model import FIGURES, Efficiency, Machine, Source
from refimpl.text import MachineError, closest, one_line, shown

PREFIXES = {
    "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
WRITTEN = re.compile(r"(?P<number>[-+]?(\d+\.?\d*(e[-+]?\d+)?|nan|inf))\s*(?P<prefix>[nuµmkKMGTP]?i?)(?P<unit>\D*)")
BITS = re.compile(r"\s*(b|bits?|bps|b/s|bits?/s)")
GIVEN = "without a source"


class Quantity(NamedTuple):
    """A figure of a machine: the field that has it, and the values that a GPU or a CPU can have."""

    field: str  #: of `Machine`
    unit: str
    least: float
    most: float
    example: str
    about: str  #: what it is, and where it is found

    @property
    def whole(self) -> bool:
        return self.field in ("memory_bytes", "multiprocessors")


#: Name in a file and in Python → the figure.
QUANTITIES = {
    "memory": Quantity("memory_bytes", "B", 1 << 26, 1 << 40, "16GiB", "device memory that a program can use"),
    "flops": Quantity("flops", "FLOP/s", 1e9, 1e15, "61.4TFLOP/s", "peak of fp32 operations, a multiply-add is two"),
    "bandwidth": Quantity("bandwidth", "B/s", 1e9, 1e14, "960GB/s", "peak of the device's own memory"),
    "link": Quantity("link", "B/s", 1e8, 1e12, "12GB/s", "what copies from pinned memory reach, one way"),
    "multiprocessors": Quantity("multiprocessors", "", 1, 4096, "96", "SMs, compute units or GPU cores"),
    "launch": Quantity("launch_seconds", "s", 1e-8, 1e-2, "3us", "from one short kernel to the next"),
    "copy_start": Quantity("copy_start_seconds", "s", 1e-8, 1e-1, "10us", "before the first byte of a copy moves"),
    "allocate": Quantity("allocate_seconds", "s", 1e-9, 1, "100us", "a driver's call that allocates"),
    "free": Quantity("free_seconds", "s", 1e-9, 1, "100us", "a driver's call that frees"),
    "host_rate": Quantity("host_rate", "B/s", 1e7, 1e13, "16GB/s", "what all threads of the host copy together"),
}  # fmt: skip
SHARES = tuple(field.name for field in fields(Efficiency) if field.name != "half_tiles")
NAMES = (*QUANTITIES, "efficiency", "catalogue")
NEEDED = ("memory", "flops", "bandwidth", "link", "multiprocessors")  #: of a machine that is like no other
HOWS: tuple[str, ...] = tuple(how for how in get_args(get_type_hints(Source)["how"]) if how != "given")


def described(
    base: Machine | None, given: Mapping[str, Any], name: str, sources: Mapping[str, Any] | None = None
) -> Machine:
    """A machine with some figures of its own.

    Args:
        base: whose figures it has otherwise; None: all that are needed are given.
        given: figure → value; the names are those of `NAMES`.
        name: of the new machine.
        sources: figure → "HOW: WHERE", as in "data sheet: GeForce RTX 4060".

    Raises:
        MachineError: says which figure cannot be, and what to write.
    """
    changed: dict[str, Any] = {}
    for what, value in given.items():
        if what not in NAMES:
            near = closest(what, NAMES)
            raise MachineError(
                f"a machine has no {what!r}; " + (f"did you mean {near}?" if near else f"it has {', '.join(NAMES)}")
            )
        if what == "efficiency":
            changed[what] = efficiency(value, base.efficiency if base else ASSUMED_EFFICIENCY)
        elif what == "catalogue":
            changed[what] = checked_catalogue(str(value))
        else:
            changed[QUANTITIES[what].field] = number(what, value)
    if base is None:
        missing = [what for what in NEEDED if what not in given]
        if missing:
            raise MachineError(f"{name} has no {', '.join(missing)}; give them, or the machine that it is like")
        base = Machine(name, **{"efficiency": ASSUMED_EFFICIENCY} | changed)
        kept: tuple[Source, ...] = () if "efficiency" in given else (ASSUMED,)
    else:
        kept = inherited(base, changed)
    return replace(base, **changed, name=name, sources=(*own_sources(given, sources or {}), *kept))


def number(what: str, value: Any) -> float | int:
    """A figure's value; raises `MachineError`."""
    quantity = QUANTITIES[what]
    found, factor = value, 1.0
    if isinstance(value, str):
        read = WRITTEN.fullmatch(value.strip().replace("_", ""))
        unit = read["unit"].strip() if read else ""
        if quantity.unit.startswith("B") and read and BITS.fullmatch(read["unit"]):
            raise MachineError(f"{what} is {shown(value)}, in bits; an eighth of it is bytes, as in {quantity.example}")
        units = {quantity.unit.lower(), ""} | ({"flops"} if what == "flops" else set())
        if not read or unit.lower() not in units or read["prefix"] not in PREFIXES:
            raise MachineError(f"{what} is {shown(value)}; write it as in {quantity.example}")
        found, factor = float(read["number"]), PREFIXES[read["prefix"]]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise MachineError(f"{what} is {shown(value)}; write it as in {quantity.example}")
    if not 0 < found < math.inf:
        raise MachineError(f"{what} is {shown(value)}; give a number above 0, as in {quantity.example}")
    result = found * factor
    if not quantity.least <= result <= quantity.most:
        raise MachineError(f"{what} is {shown(value)}, which no machine has; {instead(quantity, found)}")
    if quantity.whole and result != int(result):
        raise MachineError(f"{what} is {shown(value)}; give a whole number, as in {quantity.example}")
    return int(result) if quantity.whole else result


def instead(quantity: Quantity, found: float) -> str:
    """The same number with the unit that was probably meant."""
    for prefix in ("G", "T", "M", "u"):
        if quantity.unit and quantity.least <= found * PREFIXES[prefix] <= quantity.most:
            return f"did you mean {found:g}{prefix}{quantity.unit}?"
    return f"write it as in {quantity.example}"


def efficiency(value: Any, base: Efficiency) -> Efficiency:
    """The shares of the peaks, some of them given."""
    if isinstance(value, Efficiency):
        return value
    if not isinstance(value, Mapping):
        raise MachineError(f"efficiency is {shown(value)}; give shares by name, as in {{forward = 0.4}}")
    for share, one in value.items():
        if share not in SHARES:
            raise MachineError(f"there is no efficiency {share!r}; there are {', '.join(SHARES)}")
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 < one <= 1:
            raise MachineError(f"efficiency {share} is {shown(one)}; give a share above 0 and at most 1")
    return replace(base, **value)


def own_sources(given: Mapping[str, Any], sources: Mapping[str, Any]) -> tuple[Source, ...]:
    """Where the given figures come from; those of the same place together."""
    found: dict[tuple[str, str], list[str]] = {}
    for what, text in sources.items():
        if what not in given:
            near = closest(what, given)
            raise MachineError(
                f"sources has {what!r}, which is not given" + (f"; did you mean {near}?" if near else "")
            )
        how, _, where = str(text).partition(":")
        if not isinstance(text, str) or how.strip() not in HOWS or not where.strip():
            raise MachineError(f"the source of {what} is {shown(text)}; write {', '.join(HOWS)}, a colon, and where")
    for what in given:
        how, _, where = str(sources.get(what, f"given: {GIVEN}")).partition(":")
        field = QUANTITIES[what].field if what in QUANTITIES else what
        found.setdefault((how.strip(), one_line(where.strip())), []).append(field)
    return tuple(Source(how, where, tuple(of)) for (how, where), of in found.items())  # type: ignore[arg-type]


def inherited(base: Machine, changed: Mapping[str, Any]) -> tuple[Source, ...]:
    """The sources of the figures that stay: that this machine has them is assumed."""
    kept = []
    for source in base.sources:
        of = tuple(field for field in source.of if field not in changed)
        if of:
            kept.append(Source("assumed", f"{base.name}'s ({source.how}: {source.where})", of))
    return tuple(kept)


def figure_rows(machine: Machine) -> list[tuple[str, str, str, str]]:
    """Each figure of a machine: its name, its value as a file has it, how it is known and where it is from."""
    known = {field: (source.how, source.where) for source in machine.sources for field in source.of}
    rows = []
    for what, quantity in QUANTITIES.items():
        default = quantity.field not in FIGURES and quantity.field not in known
        how, where = ("assumed", "every machine's") if default else known.get(quantity.field, ("", ""))
        rows.append((what, text(getattr(machine, quantity.field), quantity), how, where))
    shares = ", ".join(f"{share} {getattr(machine.efficiency, share):g}" for share in (*SHARES, "half_tiles"))
    return [*rows, ("efficiency", shares, *known.get("efficiency", ("", "")))]


def text(value: float, quantity: Quantity) -> str:
    """A value as a file may have it."""
    if quantity.unit == "B":
        return next(
            f"{value / PREFIXES[p]:g}{p}B" for p in ("Gi", "Mi", "Ki", "") if not value % (PREFIXES[p] // 4 or 1)
        )
    if quantity.unit == "s":
        return f"{value * 1e6:g}us"
    prefix = "T" if quantity.unit == "FLOP/s" else "G" if quantity.unit else ""
    return f"{value / PREFIXES[prefix]:g}{prefix}{quantity.unit}"
