"""A small program to spoil, tools to spoil one with, and ways to spoil any, one instruction at a time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

import pytest

from refimpl.network import Builder, Network, Tensor
from refimpl.planner import CopyIn, CopyOut, Free, Instruction, Launch, Program, plan
from refimpl.planner.instructions import Compress, Decompress, pinned_size
from refimpl.planner.verify import Unsafe
from refimpl.vdnnpp import Compressed
from tests.refimpl.modules import OffloadSome, PooledPinned, PrefetchAhead, machine, setup

# -- a program ---------------------------------------------------------------------------------------------------------


def small_network() -> Network:
    """conv1 and relu1 share a map; relu2 has one of its own with conv2, pool1 reads it."""
    b = Builder("small", (2, 3, 8, 8))
    b.conv(4, 3, pad=1)
    b.relu()
    b.conv(4, 3, pad=1)
    b.relu()
    b.pool(2)
    b.fc(3)
    b.softmax()
    return b.build()


def small_program(**modules: object) -> Program:
    return plan(small_network(), setup(**modules), machine(), 1 << 26)


#: Modules that make maps leave and come back.
MOVING = {"offload": OffloadSome(), "prefetch": PrefetchAhead(2), "pinned": PooledPinned()}
#: And be compressed meanwhile, early enough for others to get their buffers.
COMPRESSING = MOVING | {"pinned": Compressed(), "join": True}


def find(program: Program, op: str, name: str = "", last: bool = False, rebuild: bool | None = None) -> int:
    """The index of the first instruction (or the last) of a kind; `name`: its tensor, or its launch's function."""
    found = []
    for index, it in enumerate(program.instructions):
        called = it.call.function if isinstance(it, Launch) else getattr(getattr(it, "tensor", None), "name", "")
        if it.op == op and name in ("", called) and (rebuild is None or getattr(it, "rebuild", False) == rebuild):
            found.append(index)
    return found[-1 if last else 0]


def tensor(program: Program, name: str) -> Tensor:
    everything = (*program.network.managed, *program.network.resident)
    return next(tensor for tensor in everything if tensor.name == name)


def refused(program: Program) -> Unsafe:
    with pytest.raises(Unsafe) as caught:
        program.verify()
    assert "\n" not in str(caught.value)
    return caught.value


def more_pinned(program: Program, nbytes: int) -> tuple[Program, int]:
    """The program with more pinned memory, and where that begins."""
    start = pinned_size(program.pinned_bytes)
    return dataclasses.replace(program, pinned_bytes=start + nbytes), start


# -- tools -------------------------------------------------------------------------------------------------------------


def with_instructions(program: Program, instructions: Sequence[Instruction]) -> Program:
    return dataclasses.replace(program, instructions=list(instructions))


def without(program: Program, index: int) -> Program:
    """The program without one instruction."""
    return with_instructions(program, [*program.instructions[:index], *program.instructions[index + 1 :]])


def inserted(program: Program, index: int, *new: Instruction) -> Program:
    """The program with new instructions in front of the one at `index`."""
    return with_instructions(program, [*program.instructions[:index], *new, *program.instructions[index:]])


def changed(program: Program, index: int, **fields: object) -> Program:
    """The program with some fields of one instruction changed."""
    instructions = list(program.instructions)
    instructions[index] = dataclasses.replace(instructions[index], **fields)
    return with_instructions(program, instructions)


def moved(program: Program, index: int, to: int) -> Program:
    """The program with one instruction elsewhere."""
    instructions = list(program.instructions)
    instructions.insert(to, instructions.pop(index))
    return with_instructions(program, instructions)


# -- ways: each yields what was done, and the program that comes of it -------------------------------------------------

Mutant = tuple[str, Program]


def removals(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Without each wait, record, copy, launch and work of the host's threads in turn."""
    for index, it in enumerate(program.instructions):
        if it.op not in ("allocate", "free"):
            yield f"{it.op} removed", without(program, index)


def swaps(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Every two neighbours swapped."""
    for index in range(1, len(program.instructions)):
        yield "neighbours swapped", moved(program, index, index - 1)


def early_frees(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Every free somewhat earlier."""
    for index, it in enumerate(program.instructions):
        if isinstance(it, Free):
            yield "free moved ahead", moved(program, index, max(0, index - drawn.randint(1, 8)))


def wrong_addresses(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """One operand of each launch elsewhere: a granule away, or where another tensor lies at some time."""
    addresses = sorted({it.address for it in program.instructions if it.op == "allocate"})
    for index, it in enumerate(program.instructions):
        if isinstance(it, Launch) and it.addresses:
            operand = drawn.randrange(len(it.addresses))
            mine = it.addresses[operand]
            other = drawn.choice([mine + 512, max(0, mine - 512), *addresses])
            given = (*it.addresses[:operand], other, *it.addresses[operand + 1 :])
            yield "operand elsewhere", changed(program, index, addresses=given)


def other_streams(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Each copy, and each work of the host's threads, on another stream."""
    for index, it in enumerate(program.instructions):
        if isinstance(it, MOVES):
            others = [stream for stream in range(len(program.streams)) if stream != it.stream]
            yield "copy on another stream", changed(program, index, stream=drawn.choice(others))


def other_buffers(program: Program, drawn: random.Random) -> Iterator[Mutant]:
    """Each copy with another pinned buffer, and each compressed map elsewhere in the store."""
    addresses = sorted({it.pinned_address for it in program.instructions if isinstance(it, MOVES)})
    regions = sorted({it.store_address for it in program.instructions if isinstance(it, (Compress, Decompress))})
    for index, it in enumerate(program.instructions):
        if isinstance(it, MOVES):
            yield "copy with another buffer", changed(program, index, pinned_address=drawn.choice(addresses))
        if isinstance(it, (Compress, Decompress)):
            store = drawn.choice([*regions, it.store_address + 512, max(0, it.store_address - 512)])
            yield "compressed map elsewhere", changed(program, index, store_address=store)


MOVES = (CopyOut, CopyIn, Compress, Decompress)
WAYS = (removals, swaps, early_frees, wrong_addresses, other_streams, other_buffers)
