"""The slow twin of `verify`: the same rules, checked the obvious way, on small programs.

Memory is an array of cells of four bytes that hold values, and copies move cells; a compressed map has as many.  Order
is a graph of all instructions of two iterations, closed transitively; every pair of accesses is looked at.  Nothing
here is shared with `verify`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.machine import HOST
from refimpl.network import Call, Tensor
from refimpl.planner import CopyIn, CopyOut, Program
from refimpl.planner.instructions import Allocate, Copy, Free, FromStore, HostCopy, Launch, Record, ToStore, Wait

CELL = 4  #: bytes
NOTHING, MIXED = -1, -2


class Fault(Exception):
    """The program is wrong."""


def fault(program: Program) -> str | None:
    """What is wrong with a program; None if nothing is."""
    try:
        run = Run(program)
        for _ in range(2):
            run.iteration()
        if run.peak != program.peak_bytes or program.arena_bytes > program.budget:
            raise Fault("peak")
        all_pairs(run)
    except Fault as found:
        return str(found)
    return None


def plain(program: Program, state: dict[Tensor, int], number: int) -> tuple[dict[Call, list[int]], dict[Tensor, int]]:
    """Run the network's steps on values: what each call reads, and every tensor's value at the end."""
    network = program.network
    state = {tensor: value for tensor, value in state.items() if not tensor.managed}
    for tensor in (network.input, network.labels):
        state[tensor] = value_of("batch", number, tensor.name)
    reads = {}
    for step in network.steps:
        for position, call in enumerate(step.calls):
            reads[call] = [state[tensor] for tensor in (*call.reads, *call.updates)]
            for i, tensor in enumerate((*call.updates, *call.writes)):
                state[tensor] = value_of(step.number, position, i, *reads[call])
    return reads, state


def value_of(*what: Any) -> int:
    return hash(what) & (2**60 - 1)


class Run:
    """Executes a program in the order of its list; gathers accesses and the graph of what happens before what."""

    def __init__(self, program: Program) -> None:
        self.program = program
        if min(program.arena_bytes, program.pinned_bytes) < 0:
            raise Fault("sizes")
        self.device = np.full(program.arena_bytes // CELL, NOTHING)
        self.tiers: dict[str, tuple[int, int]] = {}  #: tier → where it begins in `pinned`, and its bytes
        nbytes = 0
        for name, its_bytes in {HOST: program.pinned_bytes, **program.tier_bytes}.items():
            self.tiers[name] = nbytes, its_bytes
            nbytes += -(-its_bytes // CELL) * CELL
        self.pinned = np.full(nbytes // CELL, NOTHING)
        self.owner = np.full(nbytes // CELL, NOTHING)  #: whose copy is in pinned memory, see `mark`
        self.store = np.full(max(0, program.store_bytes) // CELL, NOTHING)
        self.store_owner = np.full(max(0, program.store_bytes) // CELL, NOTHING)
        self.live: list[tuple[Tensor, int, int]] = []
        self.marks: dict[tuple[Tensor, int], int] = {}
        self.peak = self.iterations = 0
        self.accesses: list[tuple[int, int, int, int, bool]] = []  #: node, memory, start, end, whether it writes
        self.before: list[list[int]] = []  #: of every node, those directly before it
        self.last: dict[int, int] = {}  #: stream → its last node
        self.state = {tensor: value_of("initial", tensor.name) for tensor in program.network.resident}
        self.positions = {c: (s.number, i) for s in program.network.steps for i, c in enumerate(s.calls)}
        for tensor, address in program.resident.items():
            grain = program.setup.allocator.granularity
            nbytes = (tensor.nbytes + grain - 1) // grain * grain
            self.place(tensor, address, nbytes)
            self.device[self.cells(address, tensor.nbytes)] = self.state[tensor]

    @staticmethod
    def cells(address: int, nbytes: int) -> slice:
        return slice(address // CELL, (address + nbytes) // CELL)

    def place(self, tensor: Tensor, address: int, nbytes: int) -> None:
        if address % CELL or address < 0 or address + nbytes > self.program.arena_bytes or nbytes < tensor.nbytes:
            raise Fault("outside")
        if any(address < end and start < address + nbytes for _, start, end in self.live):
            raise Fault("overlap")
        self.live.append((tensor, address, address + nbytes))
        held = sum(end - start for _, start, end in self.live)
        if held > self.program.budget:
            raise Fault("budget")
        self.peak = max(self.peak, held)

    def find(self, tensor: Tensor, address: int) -> tuple[Tensor, int, int]:
        for entry in self.live:
            if entry[0] is tensor and entry[1] == address:
                return entry
        raise Fault("not alive")

    def node(self, stream: int, *names: str) -> int:
        """A new node on a stream, which has one of these names, if any are given."""
        if not 0 <= stream < len(self.program.streams):
            raise Fault("no such stream")
        if names and self.program.streams[stream] not in names:
            raise Fault("not on this stream")
        self.before.append([self.last[stream]] if stream in self.last else [])
        self.last[stream] = len(self.before) - 1
        return self.last[stream]

    def iteration(self) -> None:
        program, network = self.program, self.program.network
        self.tables()
        self.expected, after = plain(program, self.state, self.iterations)
        self.state = after
        self.iterations += 1
        batch = (network.input, network.labels)
        results = [tensor for tensor in program.pinned if tensor not in batch]
        self.pinned[:] = self.owner[:] = self.store[:] = self.store_owner[:] = NOTHING
        for tensor in batch:
            self.put_on_host(tensor, program.pinned[tensor], value_of("batch", self.iterations - 1, tensor.name))
        events: dict[int, int] = {}
        ran: list[Call] = []
        algorithms: dict[Call, set[str]] = {}
        for it in program.instructions:
            if isinstance(it, Allocate):
                if not it.tensor.managed:
                    raise Fault("resident")
                self.place(it.tensor, it.address, it.nbytes)
                self.device[self.cells(it.address, it.nbytes)] = NOTHING
            elif isinstance(it, Free):
                entry = self.find(it.tensor, it.address)
                if not it.tensor.managed or entry[2] - entry[1] != it.nbytes:
                    raise Fault("free")
                self.live.remove(entry)
                self.device[self.cells(it.address, it.nbytes)] = NOTHING
            elif isinstance(it, Record):
                events[it.event] = self.node(it.stream)
            elif isinstance(it, Wait):
                if it.event not in events:
                    raise Fault("not recorded")
                self.before[self.node(it.stream)].append(events[it.event])
            elif isinstance(it, Launch):
                self.launch(it)
                if not it.rebuild:
                    ran.append(it.call)
                algorithms.setdefault(it.call, set()).add(it.choice.algorithm if it.choice else "")
            elif isinstance(it, (CopyOut, CopyIn)):
                self.copy(it)
            elif isinstance(it, (ToStore, FromStore)):
                self.on_host(it)
        if sorted(map(id, ran)) != sorted(id(call) for step in network.steps for call in step.calls):
            raise Fault("calls")
        if any(len(names) > 1 for names in algorithms.values()):
            raise Fault("algorithms")
        if any(tensor.managed for tensor, _, _ in self.live):
            raise Fault("leak")
        for tensor in network.resident:
            if tensor.kind != "scratch" and self.value(tensor, program.resident[tensor]) != after[tensor]:
                raise Fault("state")
        for tensor in results:
            there = self.pinned[self.cells(program.pinned[tensor], tensor.nbytes)]
            if (there != after[tensor]).any():
                raise Fault("result")

    def tables(self) -> None:
        """What every tensor that stays has: an address, a multiple of four; and every stream a name of its own."""
        program, network = self.program, self.program.network
        ends = {t for step in network.steps for call in step.calls for t in call.writes}
        on_host = {network.input, network.labels, *(ends & {network.losses, network.predictions})}
        if set(program.resident) != set(network.resident) or set(program.pinned) != on_host:
            raise Fault("tables")
        if any(address % CELL for table in (program.resident, program.pinned) for address in table.values()):
            raise Fault("alignment")
        if len(set(program.streams)) != len(program.streams) or "host" in program.streams[:-1]:
            raise Fault("streams")

    def mark(self, tensor: Tensor, address: int) -> int:
        """A number for a copy of this tensor that begins at this address: one that is shifted is another."""
        return self.marks.setdefault((tensor, address), len(self.marks) + 1)

    def put_on_host(self, tensor: Tensor, address: int, value: int) -> None:
        self.pinned[self.cells(address, tensor.nbytes)] = value
        self.owner[self.cells(address, tensor.nbytes)] = self.mark(tensor, address)

    def value(self, tensor: Tensor, address: int) -> int:
        found = self.device[self.cells(address, tensor.nbytes)]
        return int(found[0]) if (found == found[0]).all() else MIXED

    def launch(self, it: Launch) -> None:
        call = it.call
        node = self.node(it.stream, "network" if it.call.collective else self.program.streams[0])
        if (
            call not in self.positions
            or len(it.addresses) != len(call.operands)
            or (it.choice is None) == call.choosable
        ):
            raise Fault("call")
        if it.choice is not None:
            offered = self.program.machine.choices(call)
            mine = it.choice.algorithm, it.choice.workspace_bytes
            if mine not in [(choice.algorithm, choice.workspace_bytes) for choice in offered]:
                raise Fault("choice")
        places = {}
        for tensor, address in zip(call.operands, it.addresses, strict=True):
            places[tensor] = self.find(tensor, address)
        step, _ = self.positions[call]
        once = call.once or any(not tensor.managed for tensor in call.updates)
        if it.rebuild and (once or step > self.program.network.depth):
            raise Fault("rebuild")
        values = [self.value(tensor, places[tensor][1]) for tensor in (*call.reads, *call.updates)]
        if values != self.expected[call]:
            raise Fault("value")
        for tensor in (*call.reads, *call.updates):
            self.accesses.append((node, 0, *places[tensor][1:], False))
        if it.workspace is not None:
            address, nbytes = it.workspace
            space = [entry for entry in self.live if entry[0].kind == "workspace" and entry[1] == address]
            if not space or space[0][2] < address + nbytes:
                raise Fault("workspace")
            self.device[self.cells(address, nbytes)] = NOTHING
            self.accesses.append((node, 0, *space[0][1:], True))
        if it.choice is not None and it.choice.workspace_bytes > (it.workspace[1] if it.workspace else 0):
            raise Fault("workspace")
        for i, tensor in enumerate((*call.updates, *call.writes)):
            address = places[tensor][1]
            self.device[self.cells(address, tensor.nbytes)] = value_of(*self.positions[call], i, *values)
            self.accesses.append((node, 0, *places[tensor][1:], True))

    def copy(self, it: CopyOut | CopyIn) -> None:
        node = self.node(it.stream, *(name for name in self.program.streams if name not in ("host", "network")))
        _, start, end = self.find(it.tensor, it.address)
        out = it.op == "copy out"
        if it.tier not in self.tiers:
            raise Fault("no such tier")
        first, limit = self.tiers[it.tier]
        place = first + it.pinned_address
        here, there = self.cells(it.address, it.nbytes), self.cells(place, it.nbytes)
        if it.nbytes != it.tensor.nbytes or not 0 <= it.pinned_address <= limit - it.nbytes or it.pinned_address % CELL:
            raise Fault("outside")
        if out:
            if self.value(it.tensor, it.address) in (NOTHING, MIXED):
                raise Fault("copies nothing")
            self.may_write(it, place)
            self.pinned[there] = self.device[here]
            self.owner[there] = self.mark(it.tensor, place)
        else:
            if (self.owner[there] != self.mark(it.tensor, place)).any():
                raise Fault("lost")
            self.device[here] = self.pinned[there]
        self.accesses.append((node, 0, start, end, not out))
        self.accesses.append((node, 1, place, place + it.nbytes, out))

    def may_write(self, it: Copy | HostCopy, place: int) -> None:
        """Nothing may write the batch's buffers, and only a result its own, from its beginning."""
        network = self.program.network
        for tensor, address in self.program.pinned.items():
            mine = tensor is it.tensor and place == address and tensor not in (network.input, network.labels)
            if not mine and place < address + tensor.nbytes and address < place + it.nbytes:
                raise Fault("not its to write")

    def on_host(self, it: ToStore | FromStore) -> None:
        """A map and what it would take at most, a bit a number more: all of that is written, and may be read."""
        node = self.node(it.stream, "host")
        numbers = it.nbytes // CELL
        most = it.nbytes + CELL * -(-numbers // 32)
        if it.nbytes != it.tensor.nbytes or not 0 <= it.pinned_address <= self.program.pinned_bytes - it.nbytes:
            raise Fault("outside")
        if (
            it.pinned_address % CELL
            or it.store_address % CELL
            or not 0 <= it.store_address <= self.program.store_bytes - most
        ):
            raise Fault("outside")
        raw, stored = self.cells(it.pinned_address, it.nbytes), self.cells(it.store_address, most)
        if it.op == "compress":
            if (self.owner[raw] != self.mark(it.tensor, it.pinned_address)).any():
                raise Fault("lost")
            self.store[stored], self.store_owner[stored] = NOTHING, self.mark(it.tensor, it.store_address)
            self.store[stored][:numbers] = self.pinned[raw]
        else:
            if (self.store_owner[stored] != self.mark(it.tensor, it.store_address)).any():
                raise Fault("lost")
            self.may_write(it, it.pinned_address)
            self.pinned[raw] = self.store[stored][:numbers]
            self.owner[raw] = self.mark(it.tensor, it.pinned_address)
        self.accesses.append((node, 1, it.pinned_address, it.pinned_address + it.nbytes, it.op == "decompress"))
        self.accesses.append((node, 2, it.store_address, it.store_address + most, it.op == "compress"))


def closure(before: list[list[int]]) -> NDArray[np.bool_]:
    """[i, j]: whether node i is certain to be done before node j begins."""
    count = len(before)
    sets: list[int] = []
    for nodes in before:
        mine = 0
        for node in nodes:
            mine |= sets[node] | 1 << node
        sets.append(mine)
    width = -(-count // 8)
    packed = np.frombuffer(b"".join(mine.to_bytes(width, "little") for mine in sets), np.uint8).reshape(count, width)
    return np.unpackbits(packed, axis=1, bitorder="little")[:, :count].astype(bool).T


def all_pairs(run: Run) -> None:
    """Every two accesses to the same bytes, one of them a write, are ordered."""
    node, memory, start, end, writes = (np.array(column) for column in zip(*run.accesses, strict=True))
    conflict = (node[:, None] < node[None, :]) & (memory[:, None] == memory[None, :])
    conflict &= (start[:, None] < end[None, :]) & (start[None, :] < end[:, None])
    conflict &= writes[:, None] | writes[None, :]
    first, second = np.nonzero(conflict)
    if not closure(run.before)[node[first], node[second]].all():
        raise Fault("not ordered")
