"""A program as plain values that JSON can hold: what a submission's process hands over to the grader.

Nothing of the submission's is executed or unpickled to read it.  Tensors are named, calls are places in the grader's
own network, an algorithm is looked up in the grader's own machine.  So a value here can be wrong, and then the
grader's proof refuses it; it cannot be more than a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from refimpl.machine import HOST, Machine
from refimpl.memory import BestFit
from refimpl.network import Call, Network, Tensor
from refimpl.planner import BASELINE, PlanContext, Program
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
from refimpl.text import RefimplError
from refimpl.vdnnpp import presets as vdnnpp

LARGEST = 1 << 50  #: of any number
MOST_PER_CALL = 200  #: instructions for each call of the network
GRAIN, COARSEST = 512, 2 << 20  #: bytes that addresses are multiples of, at least and at most

Values = Mapping[str, Any]


class NotAProgram(RefimplError, ValueError):
    """What was handed over is no program of this network: one line."""

    exit_status = None


def outline(network: Network) -> str:
    """A hash of the network's tensors and calls: a submission that changes them by mistake is told so."""
    tensors = [(tensor.name, tensor.nbytes) for tensor in (*network.managed, *network.resident)]
    calls = [[str(call) for call in step.calls] for step in network.steps]
    return sha256(repr((tensors, calls)).encode()).hexdigest()[:16]


# -- in the submission's process ---------------------------------------------------------------------------------------


def values_of(program: Program) -> dict[str, Any]:
    """The program as plain values."""
    places = {
        call: (number, place)
        for number, step in enumerate(program.network.steps)
        for place, call in enumerate(step.calls)
    }
    return {
        "network": outline(program.network),
        "setup": program.setup.name,
        "streams": [*program.streams],
        "granularity": program.setup.allocator.granularity,
        "pool": program.pool_bytes, "peak": program.peak_bytes, "arena": program.arena_bytes,
        "host": program.pinned_bytes, "store": program.store_bytes, "tiers": dict(program.tier_bytes),
        "resident": {tensor.name: address for tensor, address in program.resident.items()},
        "pinned": {tensor.name: address for tensor, address in program.pinned.items()},
        "instructions": [_written(it, places) for it in program.instructions],
    }  # fmt: skip


def _written(it: Instruction, places: Mapping[Call, tuple[int, int]]) -> list[Any]:
    if isinstance(it, Allocate):
        return ["allocate", it.step, it.tensor.name, it.tensor.nbytes, it.address, it.nbytes]
    if isinstance(it, Free):
        return ["free", it.step, it.tensor.name, it.address, it.nbytes, it.released]
    if isinstance(it, Launch):
        algorithm = [it.choice.algorithm, it.choice.workspace_bytes] if it.choice else None
        space = list(it.workspace) if it.workspace else None
        return ["launch", it.step, *places[it.call], list(it.addresses), algorithm, space, it.rebuild, it.stream]
    if isinstance(it, Record | Wait):
        return [it.op, it.step, it.stream, it.event]
    if isinstance(it, HostCopy):
        way = "to store" if isinstance(it, ToStore) else "from store"
        return [way, it.step, it.tensor.name, it.pinned_address, it.store_address, it.nbytes, it.stream]
    return [it.op, it.step, it.tensor.name, it.address, it.pinned_address, it.nbytes, it.stream, it.tier]


# -- in the grader's ---------------------------------------------------------------------------------------------------


def program_of(values: Values, network: Network, machine: Machine, budget: int) -> Program:
    """The program that was handed over, for the grader's own network, machine and budget; it is not proved yet.

    Raises:
        NotAProgram: says what is wrong.
    """
    try:
        if values["network"] != outline(network):
            raise NotAProgram("it plans another network than it was given: the submission has changed it")
        reader = Reader(values, network, machine, budget)
        return reader.program()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, NotAProgram):
            raise
        raise NotAProgram(f"it is no program of {network.name}: {type(error).__name__} in what it hands over") from None


class Reader:
    """Reads one program, and trusts no value of it."""

    def __init__(self, values: Values, network: Network, machine: Machine, budget: int) -> None:
        self.values, self.network, self.machine, self.budget = values, network, machine, budget
        self.tensors = {tensor.name: tensor for tensor in (*network.managed, *network.resident)}
        self.workspaces: dict[int, Tensor] = {}  # by address, while they are allocated
        self.store = stored_by(PlanContext(network, machine, budget))
        self.readers: dict[str, Callable[..., Instruction]] = {
            "allocate": self.allocate, "free": self.free, "launch": self.launch, "copy out": self.copy_out,
            "copy in": self.copy_in, "to store": self.to_store, "from store": self.from_store,
            "record": lambda step, stream, event: Record(number(step), number(stream), number(event)),
            "wait": lambda step, stream, event: Wait(number(step), number(stream), number(event)),
        }  # fmt: skip

    def program(self) -> Program:
        values, calls = self.values, sum(len(step.calls) for step in self.network.steps)
        listed = values["instructions"]
        if not isinstance(listed, list) or len(listed) > MOST_PER_CALL * calls:
            raise NotAProgram(f"it hands over more than {MOST_PER_CALL} instructions for each of {calls} calls")
        grain = number(values["granularity"])
        if not GRAIN <= grain <= COARSEST or grain % GRAIN:
            raise NotAProgram(f"its addresses are multiples of {grain} bytes; a GPU wants multiples of {GRAIN}")
        streams = tuple(map(text, values["streams"]))
        made = Program(
            self.network, BASELINE.replace(name=text(values["setup"])[:80], allocator=BestFit(grain)), self.machine,
            self.budget, number(values["pool"]), [self.readers[one[0]](*one[1:]) for one in listed], streams,
            {self.tensor(name): number(at) for name, at in values["resident"].items()},
            {self.tensor(name): number(at) for name, at in values["pinned"].items()},
            fates={}, rows=[], counts=Counts(), peak_bytes=number(values["peak"]), arena_bytes=number(values["arena"]),
            pinned_bytes=number(values["host"]), planned_seconds=0.0, store_bytes=number(values["store"]),
            tier_bytes={text(name): number(taken) for name, taken in values["tiers"].items()},
        )  # fmt: skip
        if any(self.is_misplaced(it, grain) for it in made.instructions):
            raise NotAProgram(f"a block's address is no multiple of {grain} bytes")
        return replace(made, counts=counted_again(made))

    def is_misplaced(self, it: Instruction, grain: int) -> bool:
        return isinstance(it, Allocate) and bool(it.address % grain)

    def tensor(self, name: object) -> Tensor:
        if name not in self.tensors:
            raise NotAProgram(f"{self.network.name} has no tensor {text(name)[:40]!r}: the submission has changed it")
        return self.tensors[text(name)]

    def allocate(self, step: Any, name: Any, nbytes: Any, address: Any, block: Any) -> Allocate:
        if name in self.tensors:
            return Allocate(number(step), self.tensors[name], number(address), number(block))
        made = Tensor(f"workspace {text(name)[:40]}", (number(nbytes) // 4,), "workspace", managed=True)
        self.workspaces[number(address)] = made
        return Allocate(number(step), made, number(address), number(block))

    def free(self, step: Any, name: Any, address: Any, nbytes: Any, released: Any) -> Free:
        tensor = self.tensors.get(name) or self.workspaces.pop(number(address))
        return Free(number(step), tensor, number(address), number(nbytes), number(released))

    def launch(
        self, step: Any, of: Any, place: Any, addresses: Any, algorithm: Any, space: Any, rebuild: Any, stream: Any
    ) -> Launch:
        call = self.network.steps[number(of)].calls[number(place)]
        offered = self.machine.choices(call) if call.choosable else ()
        choice = next((one for one in offered if [one.algorithm, one.workspace_bytes] == algorithm), None)
        if (choice is None) != (algorithm is None):
            raise NotAProgram(f"{self.machine.name} offers no algorithm {text(algorithm)[:60]} for {call}")
        workspace = (number(space[0]), number(space[1])) if space else None
        at = tuple(map(number, addresses))
        return Launch(number(step), call, at, choice, workspace, rebuild is True, number(stream))

    def copy_out(self, *given: Any) -> CopyOut:
        return CopyOut(*self.copy(*given))

    def copy_in(self, *given: Any) -> CopyIn:
        return CopyIn(*self.copy(*given))

    def copy(
        self, step: Any, name: Any, address: Any, there: Any, nbytes: Any, stream: Any, tier: Any = HOST
    ) -> tuple[int, Tensor, int, int, int, int, str, str]:
        where = number(step), self.tensor(name), number(address), number(there), number(nbytes), number(stream)
        return *where, "", text(tier)

    def to_store(self, *given: Any) -> ToStore:
        return ToStore(*self.host_copy(*given), self.store.codec)

    def from_store(self, *given: Any) -> FromStore:
        return FromStore(*self.host_copy(*given), self.store.codec)

    def host_copy(
        self, step: Any, name: Any, address: Any, there: Any, nbytes: Any, stream: Any
    ) -> tuple[int, Tensor, int, int, int, int, int]:
        """How many bytes a map takes in the store is vDNN++'s count, and not what the submission says."""
        tensor, turn = self.tensor(name), self.network.steps[self.network.depth - 1]
        planned = self.store.bytes_in_store(tensor, turn)
        if planned is None:
            raise NotAProgram(f"{tensor} can be negative, so the store has no fewer bytes for it")
        return number(step), tensor, number(address), number(there), number(nbytes), planned, number(stream)


def stored_by(context: PlanContext) -> Any:
    """vDNN++'s store, whose count of bytes the grader takes."""
    return vdnnpp.VDNNPP_ALL.pinned.bind(context)


def number(value: object) -> int:
    """A whole number of a size that means something."""
    if type(value) is not int or not 0 <= value < LARGEST:
        raise NotAProgram(f"it hands over {text(value)[:40]!r} where a number belongs")
    return value


def text(value: object) -> str:
    return value if isinstance(value, str) else str(value)[:80]


def counted_again(program: Program) -> Counts:
    """Bytes moved and steps that run again, counted in the instructions; batch and results do not count."""
    moved = [it for it in program.instructions if isinstance(it, CopyIn | CopyOut) and it.tensor not in program.pinned]
    again = [it for it in program.instructions if isinstance(it, Launch) and it.rebuild]
    return Counts(
        offloaded_bytes=sum(it.nbytes for it in moved if isinstance(it, CopyOut)),
        prefetched_bytes=sum(it.nbytes for it in moved if isinstance(it, CopyIn)),
        recomputed_layers=len(again),
        waits=sum(isinstance(it, Wait) for it in program.instructions),
    )
