"""A program in a file: every instruction as a JSON list, so that another computer can prove it and time it.

    {"format": "refimpl program 1", "budget": …, "streams": ["compute", …], "resident": {"conv1.w": 0, …},
     "instructions": [["allocate", 1, "conv1", 1048576, 802816, true], …]}

An instruction is its word and its fields in order: a tensor is its name, a call its place among all calls of the
network.  Reading needs the network and the machine, which the file only names, and trusts nothing: `Program.verify`
proves what was read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from refimpl.machine import Choice, Machine
from refimpl.memory import BestFit
from refimpl.network import Call, Network, Tensor
from refimpl.planner.instructions import (
    Allocate,
    CopyIn,
    CopyOut,
    Counts,
    Free,
    HostCopy,
    Instruction,
    Launch,
    Record,
    Wait,
)
from refimpl.planner.program import Program
from refimpl.planner.setup import Setup
from refimpl.text import RefimplError, one_line, shown

FORMAT = "refimpl program 1"
KINDS: dict[str, type] = {kind.op: kind for kind in (Allocate, Free, Launch, CopyOut, CopyIn, Record, Wait)}
SIZES = ("budget", "pool_bytes", "peak_bytes", "arena_bytes", "pinned_bytes")
LARGEST = 1 << 62


class ProgramFileError(RefimplError, ValueError):
    """A program that has no place in a file, or a file that holds none: one line that says why."""


def document(program: Program) -> dict[str, Any]:
    """A program as values that JSON can hold.  Raises `ProgramFileError`."""
    if any(isinstance(it, HostCopy) for it in program.instructions):
        raise ProgramFileError(f"{program.setup.name} stores maps with the host's threads, which a file cannot say")
    if program.setup.allocator.driver_calls:
        raise ProgramFileError(f"{program.setup.name} calls the driver for each block, which a file cannot say")
    places = {call: place for place, call in enumerate(calls(program.network))}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.name
        if isinstance(value, Choice):
            return [value.algorithm, value.workspace_bytes, value.seconds]
        return places[value] if isinstance(value, Call) else value

    return {
        "format": FORMAT, "network": program.network.name, "batch": program.network.batch,
        "machine": program.machine.name, "setup": program.setup.name,
        "granularity": program.setup.allocator.granularity, **{name: getattr(program, name) for name in SIZES},
        "streams": [*program.streams], "tiers": dict(program.tier_bytes),
        "resident": {tensor.name: address for tensor, address in program.resident.items()},
        "pinned": {tensor.name: address for tensor, address in program.pinned.items()},
        "instructions": [
            [it.op, *(plain(getattr(it, one.name)) for one in dataclasses.fields(it))] for it in program.instructions
        ],
    }  # fmt: skip


def read(found: Any, network: Network, machine: Machine) -> Program:
    """The program of a document, not yet verified; its seconds are 0.  Raises `ProgramFileError`."""
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise ProgramFileError(f"it is not a program of the format {FORMAT!r}")
    try:
        return _Reader(found, network).program(machine)
    except KeyError as error:
        raise ProgramFileError(f"it has no {one_line(str(error.args[0]))}") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProgramFileError(f"it is damaged: {one_line(' '.join(str(error).split()))}") from None


def calls(network: Network) -> Iterable[Call]:
    """Every call of an iteration, in the network's order."""
    return (call for step in network.steps for call in step.calls)


class _Reader:
    """A document and the network that it is about."""

    def __init__(self, found: Mapping[str, Any], network: Network) -> None:
        self.found, self.network, self.calls = found, network, [*calls(network)]
        every = (*network.managed, *network.resident, *network.given, *network.results)
        self.named = {tensor.name: tensor for tensor in every}
        self.workspaces: dict[int, Tensor] = {}  #: those that are allocated, by address

    def program(self, machine: Machine) -> Program:
        found = self.found
        streams = [self.text(name) for name in found["streams"]]
        return Program(
            network=self.network,
            setup=Setup(self.text(found["setup"]), allocator=BestFit(granularity=self.whole(found["granularity"]))),
            machine=machine,
            instructions=[self.instruction(*one) for one in found["instructions"]],
            streams=tuple(streams),
            resident=self.addresses(found["resident"]),
            pinned=self.addresses(found["pinned"]),
            fates={},
            rows=[],
            counts=Counts(),
            planned_seconds=0.0,
            tier_bytes={self.text(name): self.whole(size) for name, size in found["tiers"].items()},
            budget=self.whole(found["budget"]),
            pool_bytes=self.whole(found["pool_bytes"]),
            peak_bytes=self.whole(found["peak_bytes"]),
            arena_bytes=self.whole(found["arena_bytes"]),
            pinned_bytes=self.whole(found["pinned_bytes"]),
        )

    def instruction(self, op: str, *values: Any) -> Instruction:
        kind = KINDS.get(self.text(op))
        if kind is None:
            raise ValueError(f"there is no instruction {shown(op)}")
        names = [one.name for one in dataclasses.fields(kind)]
        given = dict(zip(names, values, strict=True))
        made: dict[str, Any] = {name: self.value(name, value) for name, value in given.items() if name != "tensor"}
        if "tensor" in given:
            made["tensor"] = self.tensor(kind, self.text(given["tensor"]), made)
        built: Instruction = kind(**made)
        return built

    def value(self, name: str, value: Any) -> Any:
        """A field's value, of the type that it has."""
        if name == "call":
            return self.calls[self.whole(value)]
        if name == "choice":
            return value and Choice(self.text(value[0]), self.whole(value[1]), float(value[2]))
        if name == "addresses":
            return tuple(self.whole(one) for one in value)
        if name == "workspace":
            return value and (self.whole(value[0]), self.whole(value[1]))
        if name in ("why", "tier"):
            return self.text(value)
        return bool(value) if name in ("stays", "rebuild") else self.whole(value)

    def tensor(self, kind: type, name: str, given: Mapping[str, Any]) -> Tensor:
        """The network's tensor of that name; a workspace is no tensor of the network."""
        if name in self.named:
            return self.named[name]
        if kind is Allocate:
            self.workspaces[given["address"]] = Tensor(name, (given["nbytes"] // 4,), "workspace", managed=True)
        if given["address"] not in self.workspaces:
            raise ValueError(f"{self.network.name} has no tensor {shown(name)}")
        return self.workspaces[given["address"]]

    def addresses(self, found: Mapping[str, Any]) -> dict[Tensor, int]:
        return {self.named[name]: self.whole(address) for name, address in found.items()}

    def whole(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
            raise ValueError(f"{shown(value)} is not a whole number of at least 0")
        return value

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not a text")
        return value
