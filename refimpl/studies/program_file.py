"""A program as plain values that JSON can hold, so that another computer, or another process, can prove it and time it.

    {"format": "refimpl program 2", "budget": …, "streams": ["compute", …], "resident": {"conv1.w": 0, …},
     "instructions": [["allocate", 1, "conv1", 1048576, 802816, true], …]}

An instruction is its word and its fields in order: a tensor is its name, a call its place among all calls of the
network, an algorithm its name and workspace.  Reading needs the network and the machine, which the file only names, and
trusts nothing: every value is checked for its type and size, algorithms are looked up in the machine, and
`Program.verify` proves what was read.  So a value can be wrong, and it cannot be more than a value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from refimpl.machine import Choice, Machine
from refimpl.memory import BestFit
from refimpl.network import Call, Network, Tensor
from refimpl.network.seams import with_seams
from refimpl.planner.instructions import (
    Allocate,
    CopyIn,
    CopyOut,
    Counts,
    Free,
    FromStore,
    HostCopy,
    Instruction,
    Launch,
    Record,
    ToStore,
    Wait,
)
from refimpl.planner.program import Program
from refimpl.slots.context import Context
from refimpl.slots.questions import Pinned
from refimpl.slots.setup import Setup
from refimpl.text import RefimplError, one_line, shown

FORMAT = "refimpl program 2"
KINDS: dict[str, type] = {kind.op: kind for kind in (Allocate, Free, Launch, CopyOut, CopyIn, Record, Wait)} | {
    "to store": ToStore, "from store": FromStore,
}  # fmt: skip
WORDS = {kind: word for word, kind in KINDS.items()}
SIZES = ("budget", "pool_bytes", "peak_bytes", "arena_bytes", "pinned_bytes", "store_bytes")
READERS_OWN = ("codec", "planned")  #: fields of a host copy that are the reader's: how it is stored, in how many bytes
LARGEST = 1 << 50  #: of any number
MOST_PER_CALL = 200  #: instructions for each call of the network
GRAIN, COARSEST = 512, 2 << 20  #: bytes that addresses are multiples of, at least and at most


class ProgramFileError(RefimplError, ValueError):
    """A program that has no place in a file, or a file that holds none: one line that says why."""


def outline(network: Network) -> str:
    """A hash of the network's tensors and calls: a program is for no other network of the same name."""
    tensors = [(tensor.name, tensor.nbytes) for tensor in (*network.managed, *network.resident)]
    steps = [[str(call) for call in step.calls] for step in network.steps]
    return sha256(repr((tensors, steps)).encode(errors="backslashreplace")).hexdigest()[:16]


def document(program: Program) -> dict[str, Any]:
    """A program as values that JSON can hold.  Raises `ProgramFileError`."""
    if program.setup.allocator.driver_calls:
        raise ProgramFileError(f"{program.setup.name} calls the driver for each block, which a file cannot say")
    places = {call: place for place, call in enumerate(calls(program.network))}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.name
        if isinstance(value, Choice):
            return [value.algorithm, value.workspace_bytes]
        return places[value] if isinstance(value, Call) else value

    return {
        "format": FORMAT, "network": program.network.name, "batch": program.network.batch,
        "outline": outline(program.network), "machine": program.machine.name, "setup": program.setup.name,
        **({"seams": True} if program.network.whole else {}),
        "granularity": program.setup.allocator.granularity, **{name: getattr(program, name) for name in SIZES},
        "streams": [*program.streams], "tiers": dict(program.tier_bytes),
        "resident": {tensor.name: address for tensor, address in program.resident.items()},
        "pinned": {tensor.name: address for tensor, address in program.pinned.items()},
        "instructions": [
            [WORDS[type(it)], *(plain(getattr(it, name)) for name in fields(type(it)))] for it in program.instructions
        ],
    }  # fmt: skip


def fields(kind: type) -> list[str]:
    """The fields of an instruction that are written."""
    return [one.name for one in dataclasses.fields(kind) if one.name not in READERS_OWN]


def read(found: Any, network: Network, machine: Machine, pinned: Pinned | None = None) -> Program:
    """The program of a document, not yet verified; it counts nothing, and its seconds are 0.

    Args:
        found: the document, as JSON has it.
        network, machine: as they are here.
        pinned: how maps are stored that the host's threads copy; None: a program with such maps is refused.

    Raises:
        ProgramFileError: says what is wrong with the document.
    """
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise ProgramFileError(f"it is not a program of the format {FORMAT!r}")
    if found.get("seams") is True and not network.conventions.as_pytorch:
        network = with_seams(network)
    if found.get("outline") != outline(network):
        raise ProgramFileError(f"it is for another network than {network.name}({network.batch}) is here")
    try:
        return _Reader(found, network, machine, pinned).program()
    except KeyError as error:
        raise ProgramFileError(f"it has no {one_line(str(error.args[0]))}") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProgramFileError(f"it is damaged: {one_line(' '.join(str(error).split()))}") from None


def calls(network: Network) -> Iterable[Call]:
    """Every call of an iteration, in the network's order."""
    return (call for step in network.steps for call in step.calls)


class _Reader:
    """A document, and the network and machine that it is about."""

    def __init__(self, found: Mapping[str, Any], network: Network, machine: Machine, pinned: Pinned | None) -> None:
        self.found, self.network, self.machine, self.calls = found, network, machine, [*calls(network)]
        every = (*network.managed, *network.resident, *network.given, *network.results)
        self.named = {tensor.name: tensor for tensor in every}
        self.workspaces: dict[int, Tensor] = {}  #: those that are allocated, by address
        context = Context(network, machine, self.whole(found["budget"]))
        self.store: Any = pinned.bind(context) if pinned else None  #: a `BoundStore`

    def program(self) -> Program:
        found, grain = self.found, self.whole(self.found["granularity"])
        if not GRAIN <= grain <= COARSEST or grain % GRAIN:
            raise ValueError(f"addresses are multiples of {grain} bytes; a GPU needs multiples of {GRAIN}")
        listed = found["instructions"]
        if not isinstance(listed, list) or len(listed) > MOST_PER_CALL * len(self.calls):
            raise ValueError(
                f"there are more than {MOST_PER_CALL} instructions a call, of which it has {len(self.calls)}"
            )
        sizes: dict[str, Any] = {name: self.whole(found[name]) for name in SIZES}
        network = self.network
        made = Program(
            network=network,
            setup=Setup(self.text(found["setup"]), allocator=BestFit(granularity=grain), seams=bool(network.whole)),
            machine=self.machine,
            instructions=[self.instruction(*one) for one in listed],
            streams=tuple(self.text(name) for name in found["streams"]),
            resident=self.addresses(found["resident"]),
            pinned=self.addresses(found["pinned"]),
            fates={},
            rows=[],
            counts=Counts(),
            planned_seconds=0.0,
            tier_bytes={self.text(name): self.whole(size) for name, size in found["tiers"].items()},
            **sizes,
        )
        if any(isinstance(it, Allocate) and it.address % grain for it in made.instructions):
            raise ValueError(f"a block's address is no multiple of {grain} bytes")
        return made

    def instruction(self, op: Any, *values: Any) -> Instruction:
        kind = KINDS.get(self.text(op))
        if kind is None:
            raise ValueError(f"there is no instruction {shown(op)}")
        given = dict(zip(fields(kind), values, strict=True))
        made = {name: self.value(name, value) for name, value in given.items() if name not in ("tensor", "choice")}
        if "tensor" in given:
            made["tensor"] = self.tensor(kind, self.text(given["tensor"]), made)
        if "choice" in given:
            made["choice"] = self.choice(made["call"], given["choice"])
        if issubclass(kind, HostCopy):
            made |= self.stored(made["tensor"])
        built: Instruction = kind(**made)
        return built

    def value(self, name: str, value: Any) -> Any:
        """A field's value, of the type that it has."""
        if name == "call":
            return self.calls[self.whole(value)]
        if name == "addresses":
            return tuple(self.whole(one) for one in value)
        if name == "workspace":
            return None if value is None else (self.whole(value[0]), self.whole(value[1]))
        if name in ("why", "tier"):
            return self.text(value)
        return self.flag(value) if name in ("stays", "rebuild") else self.whole(value)

    def tensor(self, kind: type, name: str, given: Mapping[str, Any]) -> Tensor:
        """The network's tensor of that name; a workspace is no tensor of the network."""
        if name in self.named:
            return self.named[name]
        if kind is Allocate:
            self.workspaces[given["address"]] = Tensor(name, (given["nbytes"] // 4,), "workspace", managed=True)
        if given.get("address") not in self.workspaces:
            raise ValueError(f"{self.network.name} has no tensor {shown(name)}")
        return self.workspaces[given["address"]]

    def choice(self, call: Call, value: Any) -> Choice | None:
        """The machine's own algorithm of that name and workspace: how fast it is, no file says."""
        offered = self.machine.choices(call) if call.choosable else ()
        found = next((one for one in offered if [one.algorithm, one.workspace_bytes] == value), None)
        if (found is None) != (value is None):
            raise ValueError(f"{self.machine.name} has no algorithm {shown(value)} for {call}")
        return found

    def stored(self, tensor: Tensor) -> dict[str, Any]:
        """How many bytes a map takes in the store is the reader's count, and not what the document says."""
        if self.store is None:
            raise ValueError("it stores maps with the host's threads, which cannot be read here")
        planned = self.store.bytes_in_store(tensor, self.network.steps[self.network.depth - 1])
        if planned is None:
            raise ValueError(f"the store has no fewer bytes for {tensor}")
        return {"planned": planned, "codec": self.store.codec}

    def addresses(self, found: Mapping[str, Any]) -> dict[Tensor, int]:
        unknown = next((name for name in found if name not in self.named), None)
        if unknown is not None:
            raise ValueError(f"{self.network.name} has no tensor {shown(unknown)}")
        return {self.named[name]: self.whole(address) for name, address in found.items()}

    def whole(self, value: Any) -> int:
        if type(value) is not int or not 0 <= value < LARGEST:
            raise ValueError(f"{shown(value)} is not a whole number of at least 0")
        return value

    def flag(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{shown(value)} is not true or false")
        return value

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not a text")
        return value
