"""Runs through a program twice and holds every instruction against the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from kernels.targets.collector import collector_paused
from refimpl.machine import HOST
from refimpl.network import Call, Tensor
from refimpl.planner.instructions import (
    COMPUTE,
    HOST_STREAM,
    NETWORK_STREAM,
    Allocate,
    Copy,
    Free,
    HostCopy,
    Instruction,
    Launch,
    Record,
    ToStore,
    Wait,
    Work,
)
from refimpl.planner.program import Program
from refimpl.planner.verify.happens_before import HappensBefore, Unordered
from refimpl.planner.verify.lifetimes import CheckedBlock, CheckedDevice, HostMemory
from refimpl.planner.verify.plain_run import PlainRun
from refimpl.planner.verify.proof import Proof, Unsafe, describe, layer_of, stream_name
from refimpl.text import counted, noun

Moved = Copy | HostCopy
CELL = 4  #: bytes of a number; every address is a multiple of it


def verify(program: Program) -> Proof:
    """The proof that a program is right; raises `Unsafe` with the first thing that is wrong."""
    with collector_paused():
        return Check(program).run()


class Check:
    """The state of everything at one instruction: the arenas, the clocks, the plain run beside it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.device = CheckedDevice(program.arena_bytes)
        self.pinned = HostMemory(program.pinned_bytes, program.pinned)
        self.tiers = {name: HostMemory(size, name=f"the {name} tier") for name, size in program.tier_bytes.items()}
        self.tiers[HOST] = self.pinned
        self.store = HostMemory(program.store_bytes, name="the store")
        self.host = len(program.streams) - 1 if HOST_STREAM in program.streams else -1  #: the stream of its threads
        #: the stream of collective calls
        self.network = program.streams.index(NETWORK_STREAM) if NETWORK_STREAM in program.streams else -1
        self.order = HappensBefore(max(len(program.streams), 1))
        self.plain = PlainRun(program.network)
        self.position = -1  #: of the running instruction, over both iterations
        self.algorithms: dict[Call, str | None] = {}  #: of every call that has been run in this iteration
        self.offered: dict[Call, set[tuple[str, int]]] = {}  #: the machine's algorithms, each with its workspace
        self.ran: set[Call] = set()  #: and not as a rebuild
        self.unread: set[int] = set()  #: positions of copies that are not read yet
        self.unawaited: dict[int, int] = {}  #: event → position of its record, until a stream waits for it
        self.idle: dict[int, str] = {}  #: position → why that instruction is of no use
        self.handlers: dict[str, Callable[[Any], None]] = {
            "allocate": self.allocate, "free": self.free, "launch": self.launch, "copy out": self.copy_out,
            "copy in": self.copy_in, "record": self.record, "wait": self.wait,
        }  # fmt: skip

    def run(self) -> Proof:
        program, handlers = self.program, self.handlers
        self.check_tables()
        self.place_resident()
        for _ in range(2):
            self.begin()
            try:
                for instruction in program.instructions:
                    self.position += 1
                    handlers.get(instruction.op, self.host_copy)(instruction)
            except Unordered as clash:
                self.refuse_unordered(clash)
            self.end()
        counts = Counter(instruction.op for instruction in program.instructions)
        return Proof(
            instructions=len(program.instructions),
            launches=counts["launch"],
            copies=counts["copy out"] + counts["copy in"],
            waits=counts["wait"],
            events=counts["record"],
            accesses=self.order.accesses,
            peak_bytes=self.device.peak,
            warnings=tuple(self.useless()),
        )

    # -- before, between and after the iterations ----------------------------------------------------------------------

    def check_tables(self) -> None:
        """The streams' names and the tables of addresses are those that a back end relies on."""
        program, streams = self.program, self.program.streams
        if len(set(streams)) < len(streams) or (HOST_STREAM in streams and streams[-1] != HOST_STREAM):
            self.refuse(
                1, f"streams need different names, and {HOST_STREAM} is the last; they are {', '.join(streams)}"
            )
        tables = {
            "resident": (program.resident, set(program.network.resident)),
            "pinned": (program.pinned, {*program.network.on_host, *self.plain.batch, *self.plain.results()}),
        }
        for name, (table, wanted) in tables.items():
            for tensor in wanted ^ set(table):
                self.refuse(
                    2, f"the table {name} {'has no' if tensor in wanted else 'has a needless'} {tensor}", tensor
                )
            for tensor, address in table.items():
                if address % CELL:
                    self.refuse(2, f"{tensor} is at {address}, which is no multiple of {CELL} bytes", tensor)

    def place_resident(self) -> None:
        """The resident tensors are where the program says, with the values of before training."""
        program = self.program
        grain = program.setup.allocator.granularity
        for tensor, address in program.resident.items():
            block = self.device.allocate(tensor, address, -(-tensor.nbytes // grain) * grain)
            if block is None:
                self.refuse(2, f"{tensor}, which is resident, {self.in_the_way(address, tensor.nbytes)}", tensor)
            block.number = self.plain.initial.get(tensor)
        for tensor in self.pinned.misplaced:
            self.refuse(2, f"the host's buffer of {tensor} overlaps another's, or leaves pinned memory", tensor)
        for tensor in program.network.on_host:
            self.pinned.stays[program.pinned[tensor]].number = self.plain.initial[tensor]

    def begin(self) -> None:
        """A new batch is in the host's buffers; of the iteration before, only what outlives it is left.

        The backend must make sure that the host touches its buffers between two iterations only.
        """
        self.expected = self.plain.iteration()
        self.order.forget_events()
        for memory in (*self.tiers.values(), self.store):
            memory.forget()
        for block in self.pinned.stays.values():
            assert block.tensor is not None
            if block.tensor not in self.plain.on_host:
                block.number = self.plain.numbers[block.tensor] if block.tensor in self.plain.batch else None
        for forgotten in (self.algorithms, self.ran, self.unread, self.unawaited, self.idle):
            forgotten.clear()

    def end(self) -> None:
        """The checks at the end of an iteration."""
        program, plain = self.program, self.plain
        for call, role in plain.roles.items():  # rule 3
            if call not in self.ran:
                self.refuse(3, f"{call} of {role.step} is never run", layer=role.step.layer.name)
        for tensor in plain.outlives():
            block = self.device.live.get(program.resident.get(tensor, -1))
            if tensor in plain.on_host:
                block = self.pinned.stays[program.pinned[tensor]]
            if block is None or block.number != plain.numbers[tensor]:
                held = plain.maker(block.number if block else None)
                where = f"the host's copy of {tensor}" if tensor in plain.on_host else tensor
                self.refuse(3, f"at the end {where} holds {held}, not {plain.maker(plain.numbers[tensor])}", tensor)
        for tensor in plain.results():
            host = self.pinned.stays.get(program.pinned.get(tensor, -1))
            if host is None or host.number != plain.numbers[tensor]:
                self.refuse(3, f"the result {tensor} is never copied out, or before it is there", tensor)
        leaked = [block.tensor for block in self.device.live.values() if block.tensor and block.tensor.managed]
        if leaked:  # rule 4
            came = self.last(Allocate, leaked[0])
            by = f", by {self.name(came)}" if came is not None else ""
            self.refuse(4, f"{', '.join(map(str, leaked))} held at the end: {leaked[0]} was allocated{by}", leaked[0])
        if self.device.peak != program.peak_bytes:  # rule 5
            self.refuse(5, f"the program says {program.peak_bytes} bytes at its peak; it holds {self.device.peak}")
        for name, taken in {HOST: program.pinned_bytes, **program.tier_bytes}.items():
            limits = [tier.nbytes for tier in program.machine.tiers if tier.name == name]
            if not limits or (limits[0] is not None and taken > limits[0]):
                has = f"{limits[0]}" if limits else "none"
                self.refuse(5, f"the program takes {taken} bytes of the {name} tier; {program.machine.name} has {has}")
        if program.arena_bytes > program.budget:
            self.refuse(5, f"the arena has {program.arena_bytes} bytes; the budget is {program.budget}")

    def useless(self) -> list[str]:
        """Instructions of no use, as the iteration just run has shown."""
        idle = self.idle | dict.fromkeys(self.unread, "its copy is never read")
        idle |= dict.fromkeys(self.unawaited.values(), "no stream waits for it")
        length = len(self.program.instructions)
        return [f"{describe(self.program, at % length)}: {why}" for at, why in sorted(idle.items())]

    # -- the instructions ----------------------------------------------------------------------------------------------

    def allocate(self, it: Allocate) -> None:
        if not it.tensor.managed:
            self.refuse_here(2, "the tensor is resident, and there already", it, it.tensor)
        self.check_address(it, it.tensor, it.address)
        if it.nbytes < it.tensor.nbytes:
            self.refuse_here(2, f"its block has {it.nbytes} bytes, the tensor {it.tensor.nbytes}", it, it.tensor)
        if self.device.held + it.nbytes > self.program.budget:  # rule 5
            over = self.device.held + it.nbytes - self.program.budget
            self.refuse_here(
                5, f"it takes {over} {noun(over, 'byte')} more than the budget of {self.program.budget}", it, it.tensor
            )
        if self.device.allocate(it.tensor, it.address, it.nbytes) is None:
            self.refuse_here(2, f"its block {self.in_the_way(it.address, it.nbytes)}", it, it.tensor)

    def free(self, it: Free) -> None:
        block = self.block(it.tensor, it.address, it)
        if not it.tensor.managed:
            self.refuse_here(2, "the tensor is resident, and stays", it, it.tensor)
        if block.end != it.address + it.nbytes:
            self.refuse_here(2, f"it frees {it.nbytes} bytes of a block of {block.end - it.address}", it, it.tensor)
        self.device.free(block)

    def launch(self, it: Launch) -> None:
        call = it.call
        role = self.plain.roles.get(call)
        if role is None:
            self.refuse_here(3, "the network has no such call", it)
        if len(it.addresses) != len(call.operands):
            self.refuse_here(
                2, f"{counted(len(it.addresses), 'address')} for {counted(len(call.operands), 'operand')}", it
            )
        operands = zip(call.operands, it.addresses, strict=True)
        blocks = [self.block(tensor, address, it) for tensor, address in operands]
        self.check_times(it, role.repeatable)
        self.check_algorithm(it)
        reads, writes = self.expected[call]
        self.work(it)
        for i, number in zip(role.reads, reads, strict=True):
            self.read(blocks[i], it, number)
        if it.workspace is not None:
            self.order.write(self.workspace(it, *it.workspace))
        for i, number in zip(role.writes, writes, strict=True):
            self.write(blocks[i], number)

    def copy_out(self, it: Copy) -> None:
        source = self.block(it.tensor, it.address, it)
        self.check_size(it)
        memory = self.tier(it)
        target = self.buffer_to_fill(it, memory, it.pinned_address, it.nbytes)
        self.copy(it, source, target)
        if it.pinned_address in memory.stays:  # a result: the user reads it
            self.mark_read(target)

    def copy_in(self, it: Copy) -> None:
        target = self.block(it.tensor, it.address, it)
        self.check_size(it)
        self.copy(it, self.copy_to_read(it, self.tier(it), it.pinned_address), target)

    def host_copy(self, it: HostCopy) -> None:
        """Into the store a map may take all the room that its codec has for the worst one."""
        self.check_size(it)
        if isinstance(it, ToStore):
            source = self.copy_to_read(it, self.pinned, it.pinned_address)
            target = self.buffer_to_fill(it, self.store, it.store_address, it.codec.room(it.nbytes))
        else:
            source = self.copy_to_read(it, self.store, it.store_address)
            target = self.buffer_to_fill(it, self.pinned, it.pinned_address, it.nbytes)
        self.copy(it, source, target)

    def record(self, it: Record) -> None:
        self.check_stream(it)
        self.order.record(it.stream, it.event)
        if it.event in self.unawaited:
            self.idle[self.unawaited[it.event]] = "no stream waits for it before it is recorded again"
        self.unawaited[it.event] = self.position

    def wait(self, it: Wait) -> None:
        self.check_stream(it)
        if not self.order.recorded(it.event):
            self.refuse_here(1, f"event {it.event} has not been recorded in this iteration", it)
        self.unawaited.pop(it.event, None)
        if not self.order.wait(it.stream, it.event):
            self.idle[self.position] = "its stream is ordered after that event already"

    # -- rule 1: a piece of work and its accesses ----------------------------------------------------------------------

    def work(self, it: Work) -> None:
        self.check_stream(it)
        self.order.work(it.stream, self.position)

    def read(self, block: CheckedBlock, it: Work, number: int | None = None) -> None:
        """A read finds something, and of a launch what the plain run reads; and it is ordered after the last write."""
        if block.number is None or (number is not None and block.number != number):
            self.refuse_value(block, it, number)
        self.order.read(block)
        if block.copied >= 0:
            self.mark_read(block)

    def write(self, block: CheckedBlock, number: int | None) -> None:
        self.order.write(block)
        block.number, block.copied = number, -1

    def copy(self, it: Moved, source: CheckedBlock, target: CheckedBlock) -> None:
        self.work(it)
        self.read(source, it)
        self.write(target, source.number)
        target.copied = self.position
        self.unread.add(self.position)

    def mark_read(self, block: CheckedBlock) -> None:
        self.unread.discard(block.copied)
        block.copied = -1

    def check_stream(self, it: Work | Record | Wait) -> None:
        """Kernels run on the stream 0, collective calls and the host's work on theirs, and copies on any but those."""
        if not 0 <= it.stream < len(self.program.streams):
            self.refuse_here(1, f"the program has no stream {it.stream}", it)
        if isinstance(it, Launch) and it.stream != (self.network if it.call.collective else COMPUTE):
            what, where = ("collective calls", self.network) if it.call.collective else ("kernels", COMPUTE)
            self.refuse_here(1, f"{what} run on {stream_name(self.program, where)} alone", it)
        if isinstance(it, Moved) and it.stream == self.network:
            self.refuse_here(1, f"{NETWORK_STREAM} is for collective calls alone", it)
        if isinstance(it, Moved) and (it.stream == self.host) != isinstance(it, HostCopy):
            self.refuse_here(1, f"on {HOST_STREAM} maps go to the store and come back, and nowhere else", it)

    # -- rule 2: where things are --------------------------------------------------------------------------------------

    def check_address(self, it: Instruction, tensor: Tensor, address: int) -> None:
        if address % CELL:
            self.refuse_here(2, f"{address} is no multiple of {CELL} bytes", it, tensor)

    def block(self, tensor: Tensor, address: int, it: Instruction) -> CheckedBlock:
        """The tensor's live block at this address."""
        block = self.device.live.get(address)
        if block is None or block.tensor is not tensor:
            self.refuse_untouchable(tensor, address, it)
        return block

    def workspace(self, it: Launch, address: int, nbytes: int) -> CheckedBlock:
        """The live block that the launch may fill as it likes."""
        block = self.device.live.get(address)
        if block is None or block.tensor is None or block.tensor.kind != "workspace" or block.end < address + nbytes:
            self.refuse_here(2, f"no workspace of {nbytes} bytes is alive at {address}", it)
        return block

    def tier(self, it: Copy) -> HostMemory:
        """The memory that the copy names; each tier has addresses of its own."""
        if it.tier not in self.tiers:
            self.refuse_here(2, f"the program has no {it.tier} tier", it, it.tensor)
        return self.tiers[it.tier]

    def buffer_to_fill(self, it: Moved, memory: HostMemory, address: int, nbytes: int) -> CheckedBlock:
        """A buffer of the host that the instruction may write to."""
        if memory is self.pinned and it.tensor in self.plain.batch:
            self.refuse_here(2, "the host's batch is not the program's to write", it, it.tensor)
        self.check_address(it, it.tensor, address)
        target = memory.overwrite(it.tensor, address, nbytes, self.position)
        if target is None:
            what = f"bytes {address} to {address + nbytes} of {memory.name} are not its to write"
            self.refuse_here(2, what, it, it.tensor)
        return target

    def copy_to_read(self, it: Moved, memory: HostMemory, address: int) -> CheckedBlock:
        """The buffer of the host that holds a copy of the tensor."""
        source = memory.buffer(it.tensor, address)
        if source is None:
            lost = memory.lost.get(it.tensor)
            why = "" if lost is None else f": {self.name(lost)} went over it"
            self.refuse_here(2, f"{memory.name} has no copy of it at {address}{why}", it, it.tensor, lost)
        return source

    def check_size(self, it: Moved) -> None:
        if it.nbytes != it.tensor.nbytes:
            self.refuse_here(2, f"it copies {it.nbytes} bytes; the tensor has {it.tensor.nbytes}", it, it.tensor)

    # -- rule 3: what is run, and how often ----------------------------------------------------------------------------

    def check_times(self, it: Launch, repeatable: bool) -> None:
        if it.rebuild:
            if not repeatable:
                self.refuse_here(3, "no rebuild may run it: it is a backward call, or it changes what is resident", it)
        elif it.call in self.ran:
            self.refuse_here(3, "it has been run in this iteration", it)
        else:
            self.ran.add(it.call)

    def check_algorithm(self, it: Launch) -> None:
        """Another algorithm sums in another order: a rebuild with it would not be the same to the bit."""
        choice = it.choice
        if (choice is None) == it.call.choosable:
            self.refuse_here(3, f"{'an' if choice else 'no'} algorithm is given", it)
        algorithm, needed = (choice.algorithm, choice.workspace_bytes) if choice else (None, it.call.scratch)
        if choice is not None:
            if it.call not in self.offered:
                choices = self.program.machine.choices(it.call)
                self.offered[it.call] = {(one.algorithm, one.workspace_bytes) for one in choices}
            if (algorithm, needed) not in self.offered[it.call]:
                machine = self.program.machine.name
                self.refuse_here(3, f"{machine} offers no {algorithm} with a workspace of {needed} bytes", it)
        if needed > (it.workspace[1] if it.workspace else 0):
            self.refuse_here(2, f"{'its algorithm' if choice else 'it'} needs a workspace of {needed} bytes", it)
        before = self.algorithms.setdefault(it.call, algorithm)
        if algorithm != before:
            self.refuse_here(3, f"it uses the algorithm {algorithm}, and used {before} before", it)

    # -- when something is wrong ---------------------------------------------------------------------------------------

    def name(self, position: int) -> str:
        """The instruction at a position, for people."""
        iteration, index = divmod(position, len(self.program.instructions))
        return describe(self.program, index, later=iteration > 0)

    def refuse(self, rule: int, message: str, tensor: Tensor | None = None, layer: str = "") -> NoReturn:
        raise Unsafe(rule, message, tensor=tensor, layer=layer)

    def refuse_here(
        self,
        rule: int,
        why: str,
        it: Instruction,
        tensor: Tensor | None = None,
        earlier: int | None = None,
        missing: tuple[str, str] | None = None,
    ) -> NoReturn:
        instructions = self.program.instructions
        first = None if earlier is None else instructions[earlier % len(instructions)]
        layer = layer_of(self.program, it)
        raise Unsafe(rule, f"{self.name(self.position)}: {why}", it, first, tensor, layer, missing)

    def refuse_unordered(self, clash: Unordered) -> NoReturn:
        """Rule 1, broken."""
        it = self.program.instructions[self.position % len(self.program.instructions)]
        assert isinstance(it, Work)
        late, early = stream_name(self.program, it.stream), stream_name(self.program, clash.stream)
        block = clash.block
        where = f"bytes {block.address} to {block.end}, where {block.tensor} is now"
        why = f"it and {self.name(clash.earlier)} both touch {where}; {late} does not wait for {early}"
        self.refuse_here(1, why, it, block.tensor, clash.earlier, (late, early))

    def refuse_untouchable(self, tensor: Tensor, address: int, it: Instruction) -> NoReturn:
        """Rule 2, broken: the tensor has no live block at this address."""
        there = self.device.live.get(address)
        why = f"{tensor} is not alive at {address}" + (f", where {there.tensor} is" if there else "")
        freed = self.last(Free, tensor)
        if freed is not None:
            why += f"; {self.name(freed)} was the last to free it"
        self.refuse_here(2, why, it, tensor, freed)

    def refuse_value(self, block: CheckedBlock, it: Instruction, number: int | None) -> NoReturn:
        """Rule 3, broken: the block holds nothing, or not what the plain run reads here."""
        wanted = "" if number is None else f", and should be {self.plain.maker(number)}"
        writer = block.written_at if block.written_at >= 0 else None
        by = "" if writer is None else f" ({self.name(writer)})"
        why = f"what {block.tensor} holds is {self.plain.maker(block.number)}{by}{wanted}"
        self.refuse_here(3, why, it, block.tensor, writer)

    def last(self, kind: type[Allocate] | type[Free], tensor: Tensor) -> int | None:
        """The position of this iteration's last allocation, or free, of a tensor."""
        index = self.position % len(self.program.instructions)
        for back, it in enumerate(reversed(self.program.instructions[: index + 1])):
            if isinstance(it, kind) and it.tensor is tensor and (back or kind is Allocate):
                return self.position - back
        return None

    def in_the_way(self, address: int, nbytes: int) -> str:
        """Why a block cannot be here."""
        other = self.device.overlapped(address, nbytes)
        if other is None:
            return f"at {address} is outside the arena of {self.program.arena_bytes} bytes"
        return f"at {address} overlaps that of {other.tensor}, bytes {other.address} to {other.end}"
