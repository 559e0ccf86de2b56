"""A profile: measured seconds of every algorithm of every call of a network, in a JSON file that is a machine anywhere.

    {"format": "refimpl profile", "version": 1, "device": "AMD EPYC, 2 cores", "kind": "cpu", "date": "2026-11-21",
     "network": "lenet", "batch": 32, "memory_bytes": …, "flops": …, "bandwidth": …,
     "copies": {"out": {"start_seconds": …, "bytes_per_second": …}, "in": {…}},
     "calls": {"relu.forward x=32x20x24x24 y=32x20x24x24": 1.9e-05, …},
     "choices": {"conv.forward b=20 x=… pad=0x0": [{"algorithm": "direct", "workspace_bytes": 0, "seconds": …}, …]}}

A call's key follows from its function, its shapes and its options, never from a layer's name: equal calls are measured
once, and a profile serves every network whose calls it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from refimpl.files import replacing
from refimpl.machine.gpus import ASSUMED, ASSUMED_EFFICIENCY
from refimpl.machine.model import Choice, Machine, Source, in_order
from refimpl.memory.tiers import HOST
from refimpl.network.call import Call
from refimpl.text import MachineError, contents, shown

FORMAT, VERSION = "refimpl profile", 1
COMMAND = "refimpl profile NETWORK --batch N --out FILE.json"
MAKE = f"make one with: {COMMAND}"
SMALLEST, LARGEST = 1e-15, 1e18  #: of any number in a profile: seconds, bytes, operations and bytes a second


def key(call: Call) -> str:
    """A call's key in a profile: `Call.key` as text."""

    def text(value: Any) -> str:
        if not isinstance(value, tuple):
            return str(value)
        several = value and isinstance(value[0], tuple | str)  # shapes of tensors
        return "+".join(map(text, value)) if several else "x".join(map(str, value))

    function, arguments = call.key
    return " ".join([function, *(f"{name}={text(value)}" for name, value in arguments)])


@dataclass(frozen=True)
class Copies:
    """Copies in one direction: seconds = start_seconds + bytes / bytes_per_second."""

    start_seconds: float
    bytes_per_second: float


@dataclass(frozen=True)
class Profile:
    """Measured times.  `calls` are seconds by key, `choices` those of the choosable calls."""

    device: str
    kind: Literal["cpu", "gpu"]
    date: str
    network: str
    batch: int
    memory_bytes: int
    flops: float  #: the best rate of any convolution or fully connected layer
    bandwidth: float  #: of a plain copy within the device's memory, bytes read and written
    copies: Mapping[str, Copies]
    calls: Mapping[str, float]
    choices: Mapping[str, tuple[Choice, ...]]

    def save(self, path: str | Path) -> None:
        """Write the file, all or nothing."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False)
        try:
            with replacing(path) as file:
                file.write(f"{text}\n".encode(errors="backslashreplace"))
        except OSError as error:
            raise MachineError(f"the profile cannot be written to {path}: {error.strerror or error}") from None


def load(path: str | Path) -> Profile:
    """Read a profile; anything but a whole, sound one is refused with one line that says what is wrong."""
    try:
        found = json.loads(contents(path))
    except OSError as error:
        raise MachineError(f"the profile {path} cannot be read: {error.strerror or error}; {MAKE}") from None
    except (ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise MachineError(f"{path} is cut off or damaged, it is not JSON ({what}); {MAKE}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise MachineError(f"{path} is not a profile; {MAKE}")
    if found.get("version") != VERSION:
        raise MachineError(
            f"{path} has version {shown(found.get('version'))} of the format, this program reads {VERSION}; {MAKE}"
        )
    try:
        return _checked(found)
    except KeyError as error:
        raise MachineError(f"{path} is damaged: {error.args[0]!r} is missing; {MAKE}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise MachineError(f"{path} is damaged: {error}; {MAKE}") from None


def _checked(found: dict[str, Any]) -> Profile:
    plain = {f.name: found[f.name] for f in fields(Profile) if f.name not in ("copies", "calls", "choices")}
    for name, value in plain.items():
        if name in ("device", "kind", "date", "network"):
            _text(name, value)
        else:
            plain[name] = _positive(name, value, whole=name in ("batch", "memory_bytes"))
    if plain["kind"] not in ("cpu", "gpu"):
        raise ValueError(f"kind is {shown(plain['kind'])}, not cpu or gpu")
    return Profile(
        **plain,
        copies={
            way: Copies(*(_positive(f"copies {way}", found["copies"][way][part.name]) for part in fields(Copies)))
            for way in ("out", "in")
        },
        calls={name: _positive(shown(name), seconds) for name, seconds in found["calls"].items()},
        choices={name: _choices(shown(name), made) for name, made in found["choices"].items()},
    )


def _choices(name: str, made: list[dict[str, Any]]) -> tuple[Choice, ...]:
    if not made:
        raise ValueError(f"{name} has no algorithm")
    return in_order(
        Choice(
            _text("algorithm", one["algorithm"]),
            _positive(name, one["workspace_bytes"], whole=True, zero=True),
            _positive(name, one["seconds"]),
        )
        for one in made
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}, not a text")
    return value


def _positive(name: str, value: Any, whole: bool = False, zero: bool = False) -> Any:
    """A number within the range that sums, products and quotients of measurements can be computed in."""
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value != value:
        raise ValueError(f"{name} is {shown(value)}, not a {'whole ' if whole else ''}number")
    if value < SMALLEST and not (zero and value == 0):
        raise ValueError(f"{name} is {shown(value)}, too small")
    if value > LARGEST:
        raise ValueError(f"{name} is {shown(value)}, too large")
    return value


# -- the machine that a profile is -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfiledMachine(Machine):
    """Measured seconds instead of a model; knows the profile's calls and no others."""

    profile: Profile = field(kw_only=True, repr=False, compare=False)
    path: str = field(kw_only=True, default="")

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        """How long a call ran when it was measured, by this algorithm (None: the fastest)."""
        if call.choosable or call.collective or call.is_pytorchs:
            return super().seconds(call, choice)
        name = key(call)
        seconds = self.profile.calls.get(name)
        if seconds is None:
            raise self._lacks(name)
        return seconds

    def copy_seconds(self, nbytes: int, direction: Literal["out", "in"], tier: str = HOST) -> float:
        """How long a copy takes by what two sizes took; a tier with a rate of its own has that one."""
        copies = self.profile.copies[direction]
        return copies.start_seconds + nbytes / (self.tier_rate(tier) or copies.bytes_per_second)

    def with_catalogue(self, name: str) -> Machine:
        """A profile has the seconds of our own kernels alone."""
        if name != self.catalogue:
            raise MachineError(
                f"{self.path or 'this profile'} has measured seconds of the catalogue {self.catalogue}, not of {name}; "
                f"leave :{name} out, or name a machine that is a model"
            )
        return self

    def _make_choices(self, call: Call) -> tuple[Choice, ...]:
        name = key(call)
        made = self.profile.choices.get(name)
        if made is None:
            raise self._lacks(name)
        return made

    def _lacks(self, name: str) -> MachineError:
        was = f"{self.profile.network}, batch {self.profile.batch}"
        return MachineError(
            f"{self.path or 'this profile'} is a profile of {was} and has no {name}; profile the network you mean: "
            f"{COMMAND}"
        )


def machine_from_profile(path: str | Path) -> ProfiledMachine:
    """The machine that a profile was measured on."""
    return as_machine(load(path), str(path))


def as_machine(profile: Profile, path: str = "") -> ProfiledMachine:
    """A profile as a machine; its name is the file's, or the device's."""
    where = f"on {profile.device}, {profile.date}: {profile.network}, batch {profile.batch}"
    return ProfiledMachine(
        name=Path(path).name if path else profile.device,
        memory_bytes=profile.memory_bytes,
        flops=profile.flops,
        bandwidth=profile.bandwidth,
        link=min(copies.bytes_per_second for copies in profile.copies.values()),
        multiprocessors=1,
        efficiency=ASSUMED_EFFICIENCY,
        catalogue="own",
        sources=(Source("measured", where, ("memory_bytes", "flops", "bandwidth", "link")), ASSUMED),
        profile=profile,
        path=path,
    )
